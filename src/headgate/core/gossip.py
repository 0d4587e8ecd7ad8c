"""Gossip: each region counts its own admissions and reports them to the others, so that each decides on the sum.

Each region has a ledger for every counter: how much it has admitted in a period. What is known of a ledger only grows,
as in a grow-only counter, so a report may arrive twice, late or in any order:

    region "us" reports 40, then 55, then 40 again, then 55 again: its ledger is known as 55

What was reported and not yet added is added to the region's own counter, once, under a limit that is the ledger itself:
adding 15 to "added so far" is refused if that would make it more than 55, so of two processes that do the same only
one does.

A ledger falls by what is given back. What others have read before counts there until the ledger passes it again:
too much is counted there, never too little.

The ledgers of a fixed window are those of the window. Other algorithms have longer ones, because what one region
admitted is charged to the others when they read it, whatever window it was in.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.core.limit import Rate
from headgate.core.meter import Algorithm, Meter
from headgate.core.units import MAX_AMOUNT, MAX_PERIOD, MINUTE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headgate.core.decision import Decision, Key
    from headgate.core.units import Micros

SILENT_INTERVALS: Final = 3
"""After this many intervals without a report, a region is no longer trusted to be within the limit."""
_LEDGER_PERIODS: Final = 16
_MIN_LEDGER: Final = MINUTE


class RegionCount(NamedTuple):
    """What a region has admitted in a period. A later period, or more in the same one, is newer."""

    period: Micros
    """When it began."""
    units: int


RegionCounts = dict[str, RegionCount]
"""What is known of each region."""

NOTHING: Final = RegionCount(0, 0)


def merged(one: Mapping[str, RegionCount], other: Mapping[str, RegionCount]) -> RegionCounts:
    """What is known of two: of each region the newest. Idempotent, commutative and associative."""
    return {region: max(one.get(region, NOTHING), other.get(region, NOTHING)) for region in {**one, **other}}


def total(ledger: Mapping[str, RegionCount], period: Micros) -> int:
    """What all regions together have admitted in a period, as far as is known."""
    return sum(entry.units for entry in ledger.values() if entry.period == period)


def owed(heard: RegionCount, added: RegionCount) -> int:
    """What a region has reported and is not yet added; 0 if the periods differ."""
    return max(0, heard.units - added.units) if heard.period == added.period else 0


def share_name(name: Key) -> Key:
    """The counter of what a region has admitted by itself, measured by its share."""
    return f"{name}|&s"


def ledger_name(name: Key) -> Key:
    """The ledger of a region, on its own store."""
    return f"{name}|&l"


def added_name(name: Key, region: str) -> Key:
    """How much of a region's ledger was added to a counter."""
    return f"{name}|&a.{region}"


@lru_cache(8_192)
def ledger_meter(meter: Meter, amount: int = MAX_AMOUNT) -> Meter:
    """How a ledger of a limit is measured: by the window of a fixed window, by a longer one of other algorithms."""
    limit = meter.limit
    assert isinstance(limit, Rate)  # noqa: S101 (slots are not shared so)
    if meter.algorithm is Algorithm.FIXED_WINDOW:
        return Meter(Rate(amount, limit.period, None, limit.calendar), Algorithm.FIXED_WINDOW, bounds=meter.bounds)
    period = min(max(limit.period * _LEDGER_PERIODS, _MIN_LEDGER), MAX_PERIOD)
    return Meter(Rate(amount, period), Algorithm.FIXED_WINDOW)


def entry_of(decision: Decision) -> RegionCount:
    """The entry that a look at a ledger of the greatest amount says."""
    assert isinstance(decision.stamp, int)  # noqa: S101 (of a fixed window)
    return RegionCount(decision.stamp, MAX_AMOUNT - decision.remaining)


def over_bound(admitted_by_others: Iterable[float], interval: float, delay: float, *, is_cut: bool = False) -> float:
    """The most that is admitted over a limit: what the others admit before this region reads it.

    `admitted_by_others` are their rates; seconds. While a region is cut off, it is trusted for three intervals more.
    """
    intervals = SILENT_INTERVALS + 1 if is_cut else 1
    return sum(admitted_by_others) * (intervals * interval + 2 * delay)
