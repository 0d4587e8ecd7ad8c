"""Leaky bucket: a queue of `capacity` that lets `amount` per period out, evenly; a full queue refuses.

    capacity 3, one a second

    in    ●●●●                 ●
    out   ●    ●    ●          ●        the 1st goes at once, the 2nd is told to wait 1 s,
          0s   1s   2s   3s   4s        the 3rd 2 s; the 4th finds the queue full

Each admitted request is told its `delay`: the time until everything before it has gone
out. Requests that wait that long leave at a constant rate, however bursty the arrivals. A
delay above `max_delay` refuses too, so no request waits longer than the rule says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.core.algorithms.bucket import State, expires_at, filled, level, present, time_to_drain

if TYPE_CHECKING:
    from headgate.core.decision import Outcome, Stamp
    from headgate.core.meter import Meter
    from headgate.core.units import Micros

__all__ = ["State", "charge", "creditable_until", "decide", "expires_at", "give_back"]


def decide(state: State | None, meter: Meter, now: Micros, cost: int) -> Outcome:
    """Admit if the queue has room for `cost` and what is ahead goes out within `max_delay`."""
    state = present(state, now)
    period = meter.period
    ahead = level(state, meter, now)
    ahead_after = ahead + cost * period
    room = meter.capacity * period - ahead_after
    delay = time_to_drain(ahead, meter)
    if room >= 0 and delay <= meter.max_delay:
        after = (now, ahead_after, 0) if cost else state
        reset_after = time_to_drain(ahead_after, meter)
        # The next request has all of that ahead of it, which may take longer than `max_delay`.
        left = room // period if reset_after <= meter.max_delay else 0
        return (after, True, left, reset_after, 0, delay, (now, ahead_after), now)
    left = max(0, meter.capacity * period - ahead) // period if delay <= meter.max_delay else 0
    retry_after = None
    if cost <= meter.capacity:
        retry_after = max(time_to_drain(-room, meter), delay - meter.max_delay)
    return (state, False, left, delay, retry_after, 0, (now, ahead), now)


def charge(state: State | None, meter: Meter, now: Micros, cost: int) -> State:
    """Count unconditionally, also past the limit."""
    return filled(now, level(present(state, now), meter, now) + cost * meter.period, meter)


def give_back(state: State | None, meter: Meter, now: Micros, stamp: Stamp, amount: int) -> State | None:
    """Leave the queue again, if no other request is behind.

    Requests behind were told their delay when they were admitted. Moving the end of the
    queue forward under them would send two requests out at once.
    """
    assert isinstance(stamp, tuple)  # noqa: S101 (our own receipts)
    if state is None or _end(state, meter) != _end(stamp, meter):
        return state
    credit = min(level(present(state, now), meter, now), amount * meter.period)
    return filled(state[0], state[1] + state[2] - credit, meter)


def _end(state: tuple[int, ...], meter: Meter) -> int:
    """The instant at which the queue runs empty, times `amount`, which makes it a whole number."""
    return state[0] * meter.amount + sum(state[1:])


def creditable_until(stamp: Stamp, meter: Meter) -> Micros:
    """When the request has gone out."""
    assert isinstance(stamp, tuple)  # noqa: S101 (our own receipts)
    return stamp[0] + time_to_drain(min(stamp[1], meter.max_level), meter)
