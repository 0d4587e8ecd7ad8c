"""Leases: blocks of a counter that one process has taken from the store in advance, and spends by itself.

A block is charged to the counter when it is granted, like a request of that cost. So it is never admitted
twice, and a limit holds if a process dies. What bounds a block:

    fixed_window     it ends with its window: at most the limit is admitted in each window
    the others       it ends after a hundredth of the period: what is admitted in any period is at most what
                     was charged in a period and a hundredth
    all              it ends after a second; what is unspent then goes back

Both ends are on this process's monotonic clock, counted from before the grant was asked for. The server decided
later than that, so the end never comes too late:

    10/second, fixed windows; sent at 100 ms, the server says that 400 ms are left of the window, received at
    104 ms: spent before 500 ms, and the window ends between 500 and 504 ms

The size of a block: twice what this process has used in the last tenth of a second, so that it lasts that long; at
most an eighth of what is left (with more than four processes, half of one process's equal part). So blocks shrink to
none as the limit comes near: then every request asks the store. What lies unspent in a block may cause refusals in
other processes: at most that share, for at most the life of a block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.core.decision import Decision, Receipt, Source
from headgate.core.failure_policy import FailurePolicy, OnStoreError
from headgate.core.meter import ALGORITHMS, Algorithm
from headgate.core.spread import SpreadMode
from headgate.core.units import SECOND

if TYPE_CHECKING:
    from headgate.core.decision import Hit, Key, Stamp
    from headgate.core.denial import Nanos
    from headgate.core.meter import Meter
    from headgate.core.units import Micros

MAX_LIFE: Final[Micros] = SECOND
"""After this span an unspent block goes back, whatever its window."""
HORIZON: Final[Micros] = SECOND // 10
"""How long a block should last."""
OF_PERIOD: Final = 100
"""Outside fixed windows a block lives for this fraction (one in N) of the period."""
MIN_SHARE: Final = 8
"""A block is at most this fraction (one in N) of what is left."""
MIN_BLOCK: Final = 2
"""A smaller block saves no call to the store."""
HOT: Final = 16
"""With `auto`: this many units within the horizon make a counter hot."""
_GROWTH: Final = 2
_PER_PROCESS: Final = 2
"""A block is at most this fraction (one in N) of one process's equal part."""
_RENEWED_AT: Final = 4
"""The next block is requested when this fraction (one in N) of the present one is left."""
_NANOS: Final = 1_000
NO_NAME: Final = ""
"""The id of a receipt for unused units: it never leaves this process, so no store has to remember it."""


LEASED: Final = object()
"""In place of the state in an `Outcome`: it was spent from a block."""


class FromLease(Decision):
    """Answered from a block that this process holds: the store has counted it before."""

    __slots__ = ()

    @property
    def source(self) -> Source:
        """See `Decision.source`."""
        return Source.LEASE


class LeaseBlock:
    """What was granted of one counter, and how much of it is left."""

    __slots__ = (
        "beyond",
        "clock",
        "ends",
        "key",
        "left",
        "low",
        "meter",
        "next",
        "noted",
        "noted_at",
        "policy",
        "reset_at",
        "size",
        "stamp",
    )

    def __init__(self, hit: Hit, policy: FailurePolicy, decision: Decision, sent: Nanos, received: Nanos) -> None:
        """`hit` took the block, and `decision` admitted it; `policy` is that of the hits that may spend it."""
        self.key: Final[Key] = hit.key
        self.meter: Final[Meter] = hit.meter
        self.policy = policy
        self.stamp: Final[Stamp] = decision.stamp
        self.size: Final = hit.cost
        self.left = hit.cost
        self.noted = hit.cost
        self.noted_at = received
        """What was left when the demand was last noted, and when that was."""
        self.low = hit.cost // _RENEWED_AT
        """The next block is asked for when no more than this is left; -1 if it was."""
        self.beyond = decision.remaining
        """What was left of the limit beside this block, when last known."""
        self.ends: Final[Nanos] = sent + life(hit.meter, decision) * _NANOS
        self.reset_at: Final[Nanos] = received + decision.reset_after * _NANOS
        """Until the whole limit is available, as if all of the block were spent."""
        self.clock: Final[Micros] = decision.at - received // _NANOS
        """The store's clock, less the monotonic clock of this process."""
        self.next: LeaseBlock | None = None
        """The block that follows, if there is one already."""

    def answer(self, cost: int, now: Nanos) -> FromLease:
        """The answer to a hit that this block has room for; it is not spent yet."""
        micros = now // _NANOS
        left = self.left - cost
        reset_after = max(0, (self.reset_at - now) // _NANOS)
        return FromLease(True, self.beyond + left, reset_after, 0, 0, self.stamp, self.clock + micros)  # noqa: FBT003 (the first field)

    def unspent(self) -> Receipt | None:
        """Take out what is left, to be given back; None if nothing is."""
        left, self.left = self.left, 0
        self.low = -1
        return Receipt(self.key, self.meter, self.stamp, left, NO_NAME) if left else None

    def used_since_noted(self, now: Nanos) -> tuple[int, Nanos]:
        """What was spent of it since this was last asked, and how long ago that was."""
        used, self.noted = max(0, self.noted - self.left), self.left
        passed, self.noted_at = now - self.noted_at, now
        return used, passed


class BlockRequest(NamedTuple):
    """A block that is wanted."""

    key: Key
    meter: Meter
    policy: FailurePolicy
    used: int
    """Within the last horizon, by this process."""
    known: Decision
    """The store's last answer."""


class Spent(NamedTuple):
    """What was spent of a block for a request that is not decided yet."""

    block: LeaseBlock
    cost: int
    answer: FromLease


def is_leasable(hit: Hit) -> bool:
    """Whether a hit may be spent from a block; else the store must be asked."""
    policy = hit[6]
    return (
        policy is not None
        and policy.spread is not None
        and policy.spread.mode in {SpreadMode.LEASED, SpreadMode.AUTO}
        and ALGORITHMS[hit.meter.algorithm].spread
    )


def grant_policy(policy: FailurePolicy) -> FailurePolicy:
    """The policy of the hit that takes a block: without the store there is none.

    With `local` the block is noted in this process's share, which an outage then begins with.
    """
    on_error = OnStoreError.LOCAL if policy.on_error is OnStoreError.LOCAL else OnStoreError.DENY
    return FailurePolicy(on_error, policy.replicas)


def life(meter: Meter, decision: Decision) -> Micros:
    """How long after it was asked for a block may be spent."""
    if meter.algorithm is not Algorithm.FIXED_WINDOW:
        return min(MAX_LIFE, meter.period // OF_PERIOD)
    assert meter.creditable_until is not None  # noqa: S101 (windows have it)
    return min(MAX_LIFE, meter.creditable_until(decision.stamp, meter) - decision.at)


def is_hot(policy: FailurePolicy, used: int) -> bool:
    """Whether what a process took within the last horizon is enough for a block."""
    is_auto = policy.spread is not None and policy.spread.mode is SpreadMode.AUTO
    return used >= (HOT if is_auto else MIN_BLOCK)


def block_size(policy: FailurePolicy, used: int, meter: Meter, known: Decision, processes: int) -> int:
    """How much to ask for; 0 is nothing.

    `used` is what this process took within the last horizon, `known` the store's last answer, and `processes` how many
    share the limit.
    """
    if not is_hot(policy, used):
        return 0
    lasts = min(HORIZON, life(meter, known))
    wanted = _GROWTH * used * lasts // HORIZON
    size = min(wanted, known.remaining // max(MIN_SHARE, _PER_PROCESS * processes))
    return size if size >= MIN_BLOCK else 0


def is_grant(decision: Decision) -> bool:
    """Whether the store has counted a block as it must be: now, on enough replicas, and not from a later time."""
    return decision.allowed and decision.source is Source.STORE and decision.is_replicated and decision.delay == 0
