"""Token bucket: a bucket of `capacity` tokens, refilled at `amount` per period; a request takes its cost.

    capacity 4, one token a second

    tokens 4 ▔▔╲              ╱▔▔▔▔▔▔      a burst of 4 passes at once,
           2    ╲      ╱╲    ╱             then one a second;
           0     ╲____╱  ╲__╱              an idle second earns one back

The state holds what is missing, not what is left: `bucket` says how that drains. A full
bucket lacks nothing, so nothing is written or refilled while no request comes.

With a `max_delay` (action: throttle) a request may also take tokens that will only be
there within that time; it is told to wait for them.

State: as in `bucket`, and a fourth number, what receipts have put back so far. A receipt
is good for what was missing right after it, less what has come back since, by itself or
by other receipts; but not for less than its own amount, of which only what was refilled
since is gone for certain. Credited twice, tokens would let more than the burst through.

    capacity 10, one a second; at 0 s A takes 5, then B takes 5; A is given back
    at 5 s the bucket is full again, and C takes 10; then B is given back
    missing after B 10, less 5 that A put back, less 5 refilled: B credits nothing
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from headgate.core.algorithms.bucket import filled, level, time_to_drain

if TYPE_CHECKING:
    from headgate.core.decision import Outcome, Stamp
    from headgate.core.meter import Meter
    from headgate.core.units import Micros

State: TypeAlias = tuple[int, int, int, int]


def decide(state: State | None, meter: Meter, now: Micros, cost: int) -> Outcome:
    """Admit if the bucket has `cost` tokens, or (throttling) will have them within `max_delay`."""
    state = _present(state, now)
    period = meter.period
    missing = level(state, meter, now)
    missing_after = missing + cost * period
    room = meter.capacity * period - missing_after
    delay = 0 if room >= 0 else time_to_drain(-room, meter)
    if delay <= meter.max_delay and cost <= meter.capacity:
        credited = 0 if state is None else state[3]
        after = (now, missing_after, 0, credited) if cost else state
        stamp = (now, missing_after + credited)
        left = room // period if room > 0 else 0
        return (after, True, left, time_to_drain(missing_after, meter), 0, delay, stamp, now)
    left = max(0, meter.capacity * period - missing) // period
    retry_after = delay - meter.max_delay if cost <= meter.capacity else None
    return (state, False, left, time_to_drain(missing, meter), retry_after, 0, (now, missing), now)


def _present(state: State | None, now: Micros) -> State | None:
    """The state itself, or, if the clock stepped back, with the same missing as of now."""
    return state if state is None or state[0] <= now else (now, *state[1:])


def charge(state: State | None, meter: Meter, now: Micros, cost: int) -> State:
    """Take tokens unconditionally, also past the limit."""
    missing = level(_present(state, now), meter, now) + cost * meter.period
    return (*filled(now, missing, meter), 0 if state is None else state[3])


def give_back(state: State | None, meter: Meter, now: Micros, stamp: Stamp, amount: int) -> State | None:
    """Put tokens back, but only those that have not come back since the receipt."""
    assert isinstance(stamp, tuple)  # noqa: S101 (our own receipts)
    if state is None:
        return None
    at, shares, overdrawn, credited = state
    refilled = max(0, now - stamp[0]) * meter.amount
    not_back_yet = max(stamp[1] - credited, amount * meter.period) - refilled
    missing = shares + overdrawn - max(0, now - at) * meter.amount
    credit = min(missing, not_back_yet, amount * meter.period)
    if credit <= 0:
        return state
    # Taken off what was missing at the last admission, it is right whatever the limit is by now.
    of_overdrawn = min(credit, overdrawn)
    return (at, shares - (credit - of_overdrawn), overdrawn - of_overdrawn, credited + credit)


def expires_at(state: State, meter: Meter) -> Micros:
    """When nothing is missing and no receipt is left that has to know what others put back."""
    at, shares, overdrawn, credited = state
    most = meter.max_level if credited else min(shares, meter.max_level)
    return at + time_to_drain(most + min(overdrawn, meter.max_overdraft), meter)


def creditable_until(stamp: Stamp, meter: Meter) -> Micros:
    """When everything that was missing after the receipt has come back by itself."""
    assert isinstance(stamp, tuple)  # noqa: S101 (our own receipts)
    return stamp[0] + time_to_drain(min(stamp[1], meter.max_level), meter)
