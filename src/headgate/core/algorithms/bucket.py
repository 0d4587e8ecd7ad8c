"""What the two buckets share: a level that drains evenly.

State: (instant of the last admission, what was in the bucket then, what was overdrawn
then: charged by force beyond what the bucket can hold, up to `meter.max_overdraft`).

The level is counted in shares: one unit is `period` shares, and `amount` shares drain
in each microsecond. At 7 a second one unit takes 142,857.14… µs, which no whole number
of microseconds can say; in shares it is 1,000,000, of which 7 drain in each, exactly.
So no rounding error can add up, whatever the rate.

After a change of the limit the level is kept, at most as full as the new bucket can be,
and read as if the new rate had held since the last admission.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from headgate.core.meter import Meter
    from headgate.core.units import Micros

State: TypeAlias = tuple[int, int, int]


def present(state: State | None, now: Micros) -> State | None:
    """The state itself, or, if the clock stepped back to before it, the same level as of now."""
    if state is not None and state[0] > now:
        return (now, state[1], state[2])
    return state


def level(state: tuple[int, ...] | None, meter: Meter, now: Micros) -> int:
    """How many shares are in the bucket now."""
    if state is None:
        return 0
    shares = min(state[1], meter.max_level)
    if state[2]:
        shares += min(state[2], meter.max_overdraft)
    shares -= (now - state[0]) * meter.amount
    return max(0, shares)


def filled(now: Micros, shares: int, meter: Meter) -> State:
    """The state of a bucket with this many shares in it; what it cannot hold is overdrawn."""
    held = min(shares, meter.max_level)
    return (now, held, min(shares - held, meter.max_overdraft))


def time_to_drain(shares: int, meter: Meter) -> Micros:
    """How long that many shares take to drain, rounded up to a whole microsecond."""
    return -(-shares // meter.amount)


def expires_at(state: State, meter: Meter) -> Micros:
    """When the bucket is empty of debt: from then on it is the same as no bucket."""
    return state[0] + time_to_drain(min(state[1], meter.max_level) + min(state[2], meter.max_overdraft), meter)
