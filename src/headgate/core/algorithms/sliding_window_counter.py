"""Sliding window counter: this window's count, plus the part of the last window still in view.

    last window: 80          this window: 30
    |················████████|██████··············|
                     ╰── one period back from now ──╯
    25 % of the last window is still in view:  floor(80 · 0.25) + 30 = 50 used

State: (start of this window, count in it, count in the window before).
Three numbers per key, and a limit that moves smoothly; it takes the last window's
requests as evenly spread, so it is an estimate where the log is exact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from headgate.core.units import MAX_COUNTED

if TYPE_CHECKING:
    from headgate.core.decision import Outcome, Stamp
    from headgate.core.meter import Meter
    from headgate.core.units import Micros

State: TypeAlias = tuple[int, int, int]


def decide(state: State | None, meter: Meter, now: Micros, cost: int) -> Outcome:
    """Admit while `floor(previous · (period − elapsed) / period) + current + cost` is within the amount."""
    period = meter.period
    amount = meter.amount
    elapsed = now % period
    start = now - elapsed
    current, previous = _counts(state, meter, start)
    if state is not None and state[0] > start:
        state = (start, current, previous)
    base = previous * (period - elapsed) // period + current
    used = base + cost
    if used <= amount:
        reset_after = _until(previous, current + cost, 0, period, elapsed)
        after = (start, current + cost, previous) if cost else state
        return (after, True, amount - used, reset_after, 0, 0, start, now)
    left = amount - base if base < amount else 0
    retry_after = _until(previous, current, amount - cost, period, elapsed) if cost <= amount else None
    reset_after = _until(previous, current, 0, period, elapsed)
    return (state, False, left, reset_after, retry_after, 0, start, now)


def _counts(state: State | None, meter: Meter, start: Micros) -> tuple[int, int]:
    """The counts of the window that begins at `start` and of the one before it."""
    if state is None:
        return 0, 0
    counted_in, current, previous = state
    if counted_in == start:
        return current, previous
    if counted_in == start - meter.period:
        return 0, current
    if counted_in > start:  # the clock stepped back: what was counted counts now
        return min(meter.amount, current + previous), 0
    return 0, 0


def charge(state: State | None, meter: Meter, now: Micros, cost: int) -> State:
    """Count unconditionally, also past the limit."""
    start = now - now % meter.period
    current, previous = _counts(state, meter, start)
    return (start, min(current + cost, MAX_COUNTED), previous)


def _until(previous: int, current: int, most: int, period: Micros, elapsed: Micros) -> Micros:
    """The wait until no more than `most` is in view, if nothing is added."""
    if current <= most:  # what is left of the previous window decides
        return max(0, _faded(previous, most - current, period) - elapsed)
    # Later than the next boundary, where this window's count becomes the previous one.
    return period - elapsed + _faded(current, most, period)


def _faded(count: int, most: int, period: Micros) -> Micros:
    """The least `elapsed` at which `floor(count · (period − elapsed) / period) <= most`."""
    if count <= most:
        return 0
    # count · (period − elapsed) < (most + 1) · period, solved for whole microseconds
    return period + 1 + (-(most + 1) * period) // count


def give_back(state: State | None, meter: Meter, now: Micros, stamp: Stamp, amount: int) -> State | None:
    """Lower the count of the receipt's window while that window is still in view."""
    assert isinstance(stamp, int)  # noqa: S101 (our own receipts)
    if state is None or now >= creditable_until(stamp, meter):
        return state
    start, current, previous = state
    if start == stamp:
        return (start, max(0, current - amount), previous)
    if start == stamp + meter.period:
        return (start, current, max(0, previous - amount))
    return state


def expires_at(state: State, meter: Meter) -> Micros:
    """Two windows after its start, when its count has left the view."""
    return state[0] + 2 * meter.period


def creditable_until(stamp: Stamp, meter: Meter) -> Micros:
    """Two windows after the start of the receipt's window."""
    assert isinstance(stamp, int)  # noqa: S101 (our own receipts)
    return stamp + 2 * meter.period
