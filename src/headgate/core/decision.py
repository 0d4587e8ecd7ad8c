"""What goes into a counter store and what comes out: hits, decisions, receipts."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from headgate.core.failure_policy import FailurePolicy
    from headgate.core.meter import Meter
    from headgate.core.units import Micros

Key: TypeAlias = str
"""A counter's name, made by `headgate.core.keys`."""

Stamp: TypeAlias = "int | tuple[int, int] | str"
"""Which window, instant or holder an admission was counted in; only its algorithm reads it."""


Outcome: TypeAlias = "tuple[Any, bool, int, Micros, Micros | None, Micros, Stamp, Micros]"
"""What an algorithm answers: the next state, then the fields of a `Decision` in their order.

A plain tuple, because one is made on every check and this saves a third of the time.
"""


class Source(StrEnum):
    """How an answer was reached."""

    STORE = "store"
    REPLICA = "replica"
    LEASE = "lease"
    DENY_CACHE = "deny_cache"
    EXEMPT = "exempt"
    BLOCK = "block"
    DEGRADED_ALLOW = "degraded_allow"
    DEGRADED_DENY = "degraded_deny"
    DEGRADED_LOCAL = "degraded_local"


BY_WEIGHT: Final = (
    Source.LEASE,
    Source.STORE,
    Source.REPLICA,
    Source.DEGRADED_ALLOW,
    Source.DEGRADED_LOCAL,
    Source.DEGRADED_DENY,
    Source.DENY_CACHE,
)
"""Of several decisions' sources the last of these is the verdict's."""


class Hit(NamedTuple):
    """A limit bound to one request: take `cost` from the counter `key`, measured by `meter`."""

    key: Key
    meter: Meter
    cost: int
    holder: str | None = None
    """Who holds the slots."""
    ttl: Micros | None = None
    """How long a slot is held that is not released."""
    forced: bool = False
    """Count it even past the limit: it was used already, as when a reservation was too small."""
    failure_policy: FailurePolicy | None = None
    """What the rule requires of the store beyond counting; None is nothing."""


class Decision(NamedTuple):
    """The answer for one hit. Times are spans from `at`, in microseconds."""

    allowed: bool
    remaining: int
    """What is left after this decision. A denied hit leaves it as it was."""
    reset_after: Micros
    """Until the whole limit is available again, if no other request comes."""
    retry_after: Micros | None
    """The shortest wait after which this cost is admitted if no other request comes; None is never; 0 if allowed."""
    delay: Micros
    """How long the caller must hold an admitted request back (leaky bucket, throttling)."""
    stamp: Stamp
    """Where an admission was counted, for its receipt."""
    at: Micros
    """The store's clock when it decided."""

    @property
    def source(self) -> Source:
        """How the decision was reached; decisions that the store did not make have a class of their own."""
        return Source.STORE

    @property
    def is_replicated(self) -> bool:
        """Whether the count is on as many replicas as the rule requires."""
        return True


class Receipt(NamedTuple):
    """The proof of one admission, with which it can be given back, in part or in whole, once."""

    key: Key
    meter: Meter
    stamp: Stamp
    amount: int
    id: str
    """Empty if it never leaves its maker, who gives it back once: then no store has to remember it."""


def undoing(hit: Hit, decision: Decision) -> Receipt:
    """The receipt with which a store undoes an admission that no caller gets: it leaves no trace."""
    return Receipt(hit.key, hit.meter, decision.stamp, hit.cost, "")
