"""Fixed window: at most `amount` in each window; all windows start at multiples of the period.

    10/minute     |  7 admitted   | 10 admitted  x x |  2 admitted …
               10:00           10:01              10:02

State: (start of the window, count in it). A state of an earlier window counts nothing.
Cheapest of all, and exact per window; across a boundary twice the amount may pass
within one period. Calendar windows (days, months) work the same with other bounds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from headgate.core.units import MAX_COUNTED

if TYPE_CHECKING:
    from headgate.core.decision import Outcome, Stamp
    from headgate.core.meter import Meter
    from headgate.core.units import Micros

State: TypeAlias = tuple[int, int]


def window(meter: Meter, now: Micros) -> tuple[Micros, Micros]:
    """The start and end of the window that `now` lies in."""
    bounds = meter.bounds
    if bounds is None:
        start = now - now % meter.period
        return start, start + meter.period
    # The bounds come from the caller's clock, `now` from the store's; around a boundary they may differ.
    if now < bounds.start:
        return bounds.previous, bounds.start
    return (bounds.start, bounds.end) if now < bounds.end else (bounds.end, bounds.next_end)


def decide(state: State | None, meter: Meter, now: Micros, cost: int) -> Outcome:
    """Admit while the window's count stays within the amount."""
    count = 0
    if state is not None and meter.bounds is None and 0 <= (elapsed := now - state[0]) < meter.period:
        start, count = state  # still the same window, which is usual; a division is spared
        left_of_window = meter.period - elapsed
    else:
        start, end = window(meter, now)
        left_of_window = end - now
        if state is not None:
            counted_in, count = state
            if counted_in < start:
                count = 0
            elif counted_in > start:  # the clock stepped back: what was counted counts now
                state = (start, count)
    used = count + cost
    amount = meter.amount
    if used <= amount:
        after = (start, used) if cost else state
        return (after, True, amount - used, left_of_window if used else 0, 0, 0, start, now)
    left = amount - count if count < amount else 0
    retry_after = left_of_window if cost <= amount else None
    return (state, False, left, left_of_window if count else 0, retry_after, 0, start, now)


def charge(state: State | None, meter: Meter, now: Micros, cost: int) -> State:
    """Count unconditionally, also past the limit."""
    start, _ = window(meter, now)
    count = 0 if state is None or state[0] < start else state[1]
    return (start, min(count + cost, MAX_COUNTED))


def give_back(state: State | None, meter: Meter, now: Micros, stamp: Stamp, amount: int) -> State | None:
    """Lower the count of the window the receipt is from, if it is still the current one."""
    if state is None or state[0] != stamp or window(meter, now)[0] != stamp:
        return state
    return (state[0], max(0, state[1] - amount))


def expires_at(state: State, meter: Meter) -> Micros:
    """The end of the window."""
    return creditable_until(state[0], meter)


def creditable_until(stamp: Stamp, meter: Meter) -> Micros:
    """The end of the window."""
    assert isinstance(stamp, int)  # noqa: S101 (our own receipts)
    if meter.bounds is None:
        return stamp + meter.period
    return window(meter, stamp)[1]
