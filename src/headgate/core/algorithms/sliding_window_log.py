"""Sliding window log: at most `amount` in every interval of one period, wherever it begins.

The instants of the last admissions are kept in a ring, the newest just before `next`. A cost of n
is n entries. Entries that were out of view at an admission are no longer held.

    limit 5 in 10 s          next
                              ▼
    ring   [ 12 | 15 | 19 |   3 |  9 ]      now = 20: 3 and 9 have left the last 10 s,
             newest    ▲                    12, 15 and 19 count, so 2 are left

What is held is sorted, so a binary search says how many are in view. Exact, at 8 bytes per
unit of the limit here and 3 to 5 in Redis, which needs less because nothing it holds is older
than a period; the estimate beside it (sliding_window_counter) needs three numbers.

The ring grows with use up to the amount, and is only made smaller once what it would
drop is out of view: a limit that is lowered and raised again forgets nothing.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from headgate.core.decision import Outcome, Stamp
    from headgate.core.meter import Meter
    from headgate.core.units import Micros

_MIN_SIZE = 16
EMPTY = -(2**62)
"""Fills unused entries: an instant before all others."""


class Ring:
    """Instants of admissions: `held` of them, the newest before `times[next]`, which is written next."""

    __slots__ = ("held", "next", "times")

    def __init__(self, entries: array[int], size: int) -> None:
        """Make a ring for `size` entries that holds `entries`, which are oldest first."""
        self.times = entries + array("q", [EMPTY]) * (size - len(entries))
        self.held = len(entries)
        self.next = self.held % size

    def in_order(self) -> array[int]:
        """All entries, oldest first."""
        times, oldest = self.times, self.next - self.held
        return times[oldest : self.next] if oldest >= 0 else times[oldest:] + times[: self.next]

    def newest(self) -> Micros:
        """The last admission, or `EMPTY`."""
        return self.times[self.next - 1] if self.held else EMPTY

    def newer(self, count: int) -> Micros:
        """The entry at this rank, counted from the newest, which has rank 1."""
        return self.times[self.next - count]

    def count_since(self, cutoff: Micros) -> int:
        """How many entries are later than `cutoff`."""
        times, end, held = self.times, self.next, self.held
        oldest = end - held
        if oldest >= 0:
            return end - bisect_right(times, cutoff, oldest, end)
        # The wrapped part holds the newer entries; only if all of it is in view can older ones be.
        newer = end - bisect_right(times, cutoff, 0, end)
        if newer < end:
            return newer
        return newer + len(times) - bisect_right(times, cutoff, oldest + len(times))

    def present(self, now: Micros) -> Ring:
        """The ring itself, or, if the clock stepped back, what was counted as counted now."""
        if self.newest() <= now:
            return self
        return Ring(array("q", [min(time, now) for time in self.in_order()]), len(self.times))


class Admission(NamedTuple):
    """What `commit` has to write: `cost` entries of `now`, beside the `live` ones."""

    now: Micros
    cost: int
    live: int


def decide(state: Ring | None, meter: Meter, now: Micros, cost: int) -> Outcome:
    """Admit if the last period holds at most `amount − cost` admissions. `commit` then writes."""
    amount = meter.amount
    period = meter.period
    if state is None:
        if cost <= amount:
            after = Admission(now, cost, 0) if cost else None
            return (after, True, amount - cost, period if cost else 0, 0, 0, now, now)
        return (None, False, amount, 0, None, 0, now, now)
    state = state.present(now)
    live = state.count_since(now - period)
    if live + cost <= amount:
        newest = now if cost else state.newest()
        reset_after = max(0, newest + period - now)
        return (Admission(now, cost, live) if cost else state, True, amount - live - cost, reset_after, 0, 0, now, now)
    reset_after = state.newest() + period - now if live else 0
    retry_after = None
    if cost <= amount:
        # This many of the oldest in view must leave it; the last of those says when.
        leaving = live + cost - amount
        retry_after = state.newer(live - leaving + 1) + period - now
    return (state, False, max(0, amount - live), reset_after, retry_after, 0, now, now)


def charge(state: Ring | None, meter: Meter, now: Micros, cost: int) -> Admission:
    """Count unconditionally, also past the limit; `commit` then writes.

    Past the limit only the newest `amount` entries matter, because the older ones leave first.
    """
    live = 0 if state is None else state.count_since(now - meter.period)
    return Admission(now, min(cost, meter.amount), live)


def commit(state: Ring | None, meter: Meter, change: Ring | Admission | None) -> Ring | None:
    """Apply what `decide` or `charge` returned. Writes into the ring it is given."""
    if not isinstance(change, Admission):
        return change
    now, cost, live = change
    size = min(_MIN_SIZE, meter.amount) if state is None else len(state.times)
    if size > meter.amount:
        size = meter.amount
    elif live + cost > size:
        size = min(meter.amount, max(2 * size, live + cost))
    if state is None:
        state = Ring(array("q"), size)
    else:
        state = state.present(now)
        if len(state.times) != size:
            state = Ring(state.in_order()[-size:], size)
    times, at = state.times, state.next
    if cost == 1:
        times[at] = now
    else:
        until_end = min(cost, size - at)
        times[at : at + until_end] = array("q", [now]) * until_end
        times[: cost - until_end] = array("q", [now]) * (cost - until_end)
    state.next = (at + cost) % size
    state.held = min(size, live + cost)
    return state


def give_back(state: Ring | None, meter: Meter, now: Micros, stamp: Stamp, amount: int) -> Ring | None:
    """Take entries of the receipt's instant out again while it is in view."""
    assert isinstance(stamp, int)  # noqa: S101 (our own receipts)
    if state is None or now >= creditable_until(stamp, meter):
        return state
    entries = state.in_order()
    upto = bisect_right(entries, stamp)
    first = bisect_right(entries, stamp - 1)
    taken_out = min(amount, upto - first)
    if not taken_out:
        return state
    del entries[upto - taken_out : upto]
    return Ring(entries, len(state.times))


def expires_at(state: Ring, meter: Meter) -> Micros:
    """When the newest admission leaves the view."""
    return state.newest() + meter.period


def creditable_until(stamp: Stamp, meter: Meter) -> Micros:
    """When the receipt's instant leaves the view."""
    assert isinstance(stamp, int)  # noqa: S101 (our own receipts)
    return stamp + meter.period
