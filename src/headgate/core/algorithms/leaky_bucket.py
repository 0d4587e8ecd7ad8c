"""Leaky bucket: a queue of `capacity` that lets `amount` per period out, evenly; a full queue refuses.

    capacity 3, one a second

    in    ●●●●                 ●
    out   ●    ●    ●          ●        the 1st goes at once, the 2nd is told to wait 1 s,
          0s   1s   2s   3s   4s        the 3rd 2 s; the 4th finds the queue full

Each admitted request is told its `delay`: the time until everything before it has gone
out. Whoever waits that long leaves at a constant rate, however bursty the arrivals. A
delay above `max_delay` refuses too, so nobody waits longer than the rule says.
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
    """Admit if the queue has room for `cost` and what is ahead goes out within `max_delay`."""
    state = present(state, now)
    period = meter.period
    ahead = level(state, meter, now)
    ahead_after = ahead + cost * period
    room = meter.capacity * period - ahead_after
    delay = time_to_drain(ahead, meter)
    if room >= 0 and delay <= meter.max_delay:
        after = (now, ahead_after)
        return (after, True, room // period, time_to_drain(ahead_after, meter), 0, delay, after, now)
    left = max(0, meter.capacity * period - ahead) // period
    retry_after = None
    if cost <= meter.capacity:
        retry_after = max(time_to_drain(-room, meter), delay - meter.max_delay)
    return (state, False, left, delay, retry_after, 0, (now, ahead), now)


def give_back(state: State | None, meter: Meter, now: Micros, stamp: Stamp, amount: int) -> State | None:
    """Leave the queue again, if nobody has joined behind.

    Those behind were told their time when they came. Moving the end of the queue
    forward under them would send two requests out at once.
    """
    if state is None or state != stamp:
        return state
    ahead = level(present(state, now), meter, now)
    return (now, ahead - min(ahead, amount * meter.period))


def creditable_until(stamp: Stamp, meter: Meter) -> Micros:
    """When the request has gone out."""
    assert isinstance(stamp, tuple)  # noqa: S101 (our own receipts)
    return expires_at(stamp, meter)
