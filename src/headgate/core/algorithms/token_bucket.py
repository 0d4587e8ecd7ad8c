"""Token bucket: a bucket of `capacity` tokens, refilled at `amount` per period; a request takes its cost.

    capacity 4, one token a second

    tokens 4 ▔▔╲              ╱▔▔▔▔▔▔      a burst of 4 passes at once,
           2    ╲      ╱╲    ╱             then one a second;
           0     ╲____╱  ╲__╱              an idle second earns one back

Kept upside down, as what is missing: `bucket` says how that drains. An untouched bucket
misses nothing, so nothing has to be written or refilled while nobody asks.

With a `max_delay` (action: throttle) a request may also take tokens that will only be
there within that time; it is told to wait for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.core.algorithms.bucket import State, expires_at, level, present, time_to_drain

if TYPE_CHECKING:
    from headgate.core.decision import Outcome, Stamp
    from headgate.core.meter import Meter
    from headgate.core.units import Micros

__all__ = ["State", "creditable_until", "decide", "expires_at", "give_back"]


def decide(state: State | None, meter: Meter, now: Micros, cost: int) -> Outcome:
    """Admit if `cost` tokens are there, or (throttling) will be within `max_delay`."""
    state = present(state, now)
    period = meter.period
    missing = level(state, meter, now)
    missing_after = missing + cost * period
    room = meter.capacity * period - missing_after
    delay = 0 if room >= 0 else time_to_drain(-room, meter)
    if delay <= meter.max_delay and cost <= meter.capacity:
        after = (now, missing_after)
        left = room // period if room > 0 else 0
        return (after, True, left, time_to_drain(missing_after, meter), 0, delay, after, now)
    left = max(0, meter.capacity * period - missing) // period
    retry_after = delay - meter.max_delay if cost <= meter.capacity else None
    return (state, False, left, time_to_drain(missing, meter), retry_after, 0, (now, missing), now)


def give_back(state: State | None, meter: Meter, now: Micros, stamp: Stamp, amount: int) -> State | None:
    """Put tokens back, but only those that have not come back by themselves since.

    The receipt says what was missing right after it. Whatever of that has been refilled
    by now must not be credited a second time; it would let more than the burst through.
    """
    assert isinstance(stamp, tuple)  # noqa: S101 (our own receipts)
    missing = level(present(state, now), meter, now)
    not_yet_refilled = level(present(stamp, now), meter, now)
    credit = min(missing, not_yet_refilled, amount * meter.period)
    return (now, missing - credit) if credit else state


def creditable_until(stamp: Stamp, meter: Meter) -> Micros:
    """When everything that was missing after the receipt has come back by itself."""
    assert isinstance(stamp, tuple)  # noqa: S101 (our own receipts)
    return expires_at(stamp, meter)
