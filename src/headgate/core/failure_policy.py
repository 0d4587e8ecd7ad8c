"""The failure policy of a rule: what it does without its store or above capacity, and how many replicas it needs.

With it goes where the parts of the limit are held, because both are the same for every hit of a rule.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from headgate.core.spread import SpreadMode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.core.decision import Hit
    from headgate.core.spread import Spread

_IN_ONE_PLACE = (SpreadMode.EXACT, SpreadMode.LEASED, SpreadMode.AUTO)


class OnStoreError(StrEnum):
    """What a rule answers while its counters cannot be reached."""

    ALLOW = "allow"
    DENY = "deny"
    LOCAL = "local"


class OnOverload(StrEnum):
    """What happens to a check while this process has as many in flight as its store can answer in time.

    Neither admits a request: overload is no way past a limit.
    """

    WAIT = "wait"
    """It waits for its turn; in the decision service no longer than a setting says."""
    DENY = "deny"
    """It fails at once with `Overloaded`, and nothing is counted."""


class OnShortfall(StrEnum):
    """What happens to a request whose count fewer replicas have than its rule requires."""

    MARK = "mark"
    """It is admitted, and the verdict says that it is not replicated."""
    DENY = "deny"
    """It is refused, and what was counted is given back."""


class FailurePolicy(NamedTuple):
    """What a hit requires of the store, beyond counting."""

    on_error: OnStoreError = OnStoreError.ALLOW
    replicas: int = 0
    """How many replicas must have the count before the answer is given."""
    on_overload: OnOverload = OnOverload.WAIT
    spread: Spread | None = None
    """Where the parts of the limit are held; None is in one place, the store."""
    on_shortfall: OnShortfall = OnShortfall.MARK
    may_be_stale: bool = False
    """Whether a replica may answer. Only peeks ask for it; what is taken is decided by the primary."""


def for_replicas(hits: Sequence[Hit]) -> Sequence[Hit]:
    """The same hits, for a peek that a replica may answer.

    Counters in parts and in regions stay as they are: what a peek finds out about their parts decides later requests.
    """
    return [_for_replica(hit) for hit in hits]


def _for_replica(hit: Hit) -> Hit:
    policy = hit.failure_policy or FailurePolicy()
    if policy.spread is not None and policy.spread.mode not in _IN_ONE_PLACE:
        return hit
    return hit._replace(failure_policy=policy._replace(may_be_stale=True))


def failure_policy_of(
    on_error: OnStoreError,
    replicas: int = 0,
    on_overload: OnOverload = OnOverload.WAIT,
    spread: Spread | None = None,
    on_shortfall: OnShortfall = OnShortfall.MARK,
) -> FailurePolicy | None:
    """The policy of a hit; None for the default, so that the hot path has nothing to check."""
    held = None if spread is None or spread.mode is SpreadMode.EXACT else spread
    failure_policy = FailurePolicy(on_error, replicas, on_overload, held, on_shortfall)
    return None if failure_policy == FailurePolicy() else failure_policy
