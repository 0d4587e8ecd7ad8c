"""Borrowing: a region takes blocks of a limit from its home region, and spends them without asking.

What is borrowed is counted at home already. So the limit holds there, and what is admitted in the region is at most
what was counted. A block of a fixed window ends with the home's window. A block of the other algorithms ends after
`HOLD` of the period, because what is counted at home fades while the block is held: in any period at most what was
counted in a period and that much more is admitted.

The size of a block follows the demand for the last one, and shrinks as the limit comes near: never more than a
fraction of what is left, so that the other regions get blocks too, down to a single unit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.core.decision import Decision, Source, Stamp
from headgate.core.meter import Algorithm
from headgate.core.units import SECOND

if TYPE_CHECKING:
    from headgate.core.meter import Meter
    from headgate.core.units import Micros

HORIZON: Final[Micros] = SECOND
"""A block covers the demand of this span."""
_MIN_PERIOD: Final[Micros] = SECOND
_HOLD: Final = 10
"""Blocks of sliding windows and buckets are held for at most this fraction (one in N) of the period."""


class FromBlock(Decision):
    """Admitted from a block that was borrowed before."""

    __slots__ = ()

    @property
    def source(self) -> Source:
        """See `Decision.source`."""
        return Source.LEASE


class Grant(NamedTuple):
    """Units that were counted at home and not yet spent here."""

    stamp: Stamp
    left: int
    ends: Micros
    """On this process's clock, which was read before the home was asked: never later than at home."""
    id: str


def is_worth_it(meter: Meter) -> bool:
    """Whether a block of a limit can be held long enough; else every hit is counted at home, as one that waits is."""
    return meter.period >= _MIN_PERIOD and not meter.max_delay


def block_size(spent: int, elapsed: Micros, left_at_home: int, regions: int) -> int:
    """How much to borrow: for the demand of one `HORIZON`, and no more than a part of what is left."""
    demand = -(-spent * HORIZON // max(1, elapsed)) if spent else 1
    return max(1, min(demand, left_at_home // (2 * regions)))


def ends_at(meter: Meter, sent: Micros, reset_after: Micros) -> Micros:
    """When a block that was asked for at `sent` must not be spent any more."""
    if meter.algorithm is Algorithm.FIXED_WINDOW:
        return sent + reset_after
    return sent + meter.period // _HOLD


def over_bound(meter: Meter) -> int:
    """The most that is admitted over the limit in any period: what fades at home while a block is held."""
    return 0 if meter.algorithm is Algorithm.FIXED_WINDOW else -(-meter.amount // _HOLD)
