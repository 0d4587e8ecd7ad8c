"""What a denial says about the hits that follow it on the same counter, and for how long.

A store that has refused a hit would refuse every hit on that counter with the same meter and
at least the same cost until `retry_after` has passed, whatever other callers take meanwhile:

    fixed_window            the count of a window only grows; it is gone at the window's end
    sliding_window_counter  what is in view of two windows only fades; what is taken adds to it
    sliding_window_log      entries leave the view in their order; what is taken adds newer ones
    token_bucket            what is missing comes back at the meter's rate; what is taken adds to it.
                            With a `max_delay` the wait until it would be admitted is shorter by that, and as fixed
    leaky_bucket            likewise: the queue drains at the meter's rate, and grows at its end

So a cached denial cannot refuse what the store would admit, with three exceptions, all noticed when
the store is asked again, which is after one second: what other processes give back or reset (a request
over several servers of which one refuses is given back on the others); a limit that another process
applies with other numbers; and a server clock that is set, forwards, or backwards over the beginning of a
window (`fixed_window`, `sliding_window_counter`). Otherwise a clock that steps back prolongs the wait.

`concurrency` is different: slots are released at any moment, which is the normal end of a denial there,
so while the store answers its denials are not used. While it does not, no release is seen by it, and
they hold like the others, except for holders that renew their slots.

Two instants are needed, both on this process's monotonic clock. The server decided between `sent`
and `received`. The denial's end is counted from `sent`, so that it is never later than the true end.
What a caller is told is counted from `received`, so that a caller who waits that long is not early:

    sent 100 ms, received 104 ms, retry_after 50 ms: refused from memory before 150 ms;
    at 120 ms the caller is told 34 ms, so to come back at 154 ms, and the server admits from 154 ms at the latest
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from headgate.core.decision import Decision, Source
from headgate.core.meter import Algorithm

if TYPE_CHECKING:
    from headgate.core.decision import Hit
    from headgate.core.meter import Meter
    from headgate.core.units import Micros

Nanos: TypeAlias = int
"""An instant on the monotonic clock of this process: read on every check, and a division is spared."""

MAX_AGE: Final[Nanos] = 1_000_000_000
"""The greatest age of a denial that is used while the store answers."""
_MICRO: Final = 1_000
NO_END: Final[Nanos] = 2**62
_new = tuple.__new__  # half the time of FromDenyCache(...)


class FromDenyCache(Decision):
    """Answered from memory: the store has refused it, and would still refuse it by what is known here."""

    __slots__ = ()

    @property
    def source(self) -> Source:
        """See `Decision.source`."""
        return Source.DENY_CACHE


class Denial(NamedTuple):
    """A hit that the store has refused."""

    meter: Meter
    cost: int
    decision: Decision
    received: Nanos
    """When the answer arrived."""
    asks_at: Nanos
    """When the store is asked again."""
    ends: Nanos
    """When it would be admitted if no other caller takes anything."""


class KnownAdmission(NamedTuple):
    """How a counter stood that would have admitted its part of a refused request."""

    meter: Meter
    cost: int
    decision: Decision
    received: Nanos
    asks_at: Nanos


def denial(hit: Hit, decision: Decision, sent: Nanos, received: Nanos) -> Denial:
    """What is remembered of a refusal."""
    wait = decision.retry_after
    ends = NO_END if wait is None else sent + wait * _MICRO
    is_held = hit.meter.algorithm is Algorithm.CONCURRENCY
    return Denial(hit.meter, hit.cost, decision, received, received if is_held else min(sent + MAX_AGE, ends), ends)


def confirmed(known: Denial | None, new: Denial, now: Nanos) -> Denial:
    """What is remembered of two denials of one counter: `known`, if the new one says that it still holds, else `new`.

    The smaller cost implies more. What is left shows that it is still refused, unless a caller may also take
    what is not available yet (throttling).
    """
    if (
        known is None
        or known.cost >= new.cost
        or now >= known.ends
        or new.decision.remaining >= known.cost
        or (new.meter.max_delay and new.meter.algorithm is Algorithm.TOKEN_BUCKET)
        or not is_same_meter(known.meter, new.meter)
    ):
        return new
    return known._replace(asks_at=min(new.asks_at, known.ends))


def extended(known: Denial, now: Nanos) -> Denial:
    """The same, to be used for another while without asking the store."""
    if known.meter.algorithm is Algorithm.CONCURRENCY:
        return known
    return known._replace(asks_at=min(now + MAX_AGE, known.ends))


def refusal(known: Denial, hit: Hit, now: Nanos, end: Nanos) -> FromDenyCache | None:
    """The answer to a hit; None if the denial does not imply it. `end` is its `asks_at`, or its `ends` in an outage."""
    meter, known_cost, decision, received, _, _ = known
    _, asked_meter, cost, _, _, forced, _ = hit
    if not received <= now < end or cost < known_cost or forced or not cost:
        return None
    if asked_meter is not meter and not is_same_meter(asked_meter, meter):
        return None
    _, remaining, reset_after, wait, _, stamp, at = decision
    if cost != known_cost:
        wait = _wait_for(cost, known)
    passed = (now - received) // _MICRO
    if wait is not None:
        wait -= passed
    reset_after -= passed
    if reset_after < 0:  # noqa: PLR1730 (on every refusal, and max() takes twice as long)
        reset_after = 0
    # The denial's end counts from `sent`, so it is over before either of them is.
    answer: FromDenyCache = _new(FromDenyCache, (False, remaining, reset_after, wait, 0, stamp, at + passed))
    return answer


def as_it_stood(known: KnownAdmission, hit: Hit, now: Nanos, end: Nanos) -> FromDenyCache | None:
    """The answer to a hit of a refused request that would have been admitted; None if that is not known."""
    meter, known_cost, decision, received, _ = known
    if not received <= now < end or hit.cost > known_cost or hit.forced or not is_same_meter(hit.meter, meter):
        return None
    passed = (now - received) // _MICRO
    reset_after = max(0, decision.reset_after - passed)
    return FromDenyCache(True, decision.remaining, reset_after, 0, 0, decision.stamp, decision.at + passed)  # noqa: FBT003 (the first field)


def _wait_for(cost: int, known: Denial) -> Micros | None:
    """How long a greater cost than the refused one waits, at most: never told too short.

    The end of a window is the same for all. A bucket needs the difference on top, at its rate. Of the sliding
    windows it is known when all of it is available again.
    """
    meter, decision = known.meter, known.decision
    if cost > meter.capacity or decision.retry_after is None:
        return None
    if meter.algorithm in {Algorithm.TOKEN_BUCKET, Algorithm.LEAKY_BUCKET}:
        return decision.retry_after + -(-(cost - known.cost) * meter.period // meter.amount)
    return max(decision.retry_after, decision.reset_after)


def is_same_meter(one: Meter, other: Meter) -> bool:
    """Whether two meters measure the same limit; bounds of a calendar follow from the limit and the time."""
    return one is other or (
        one.limit == other.limit and one.algorithm is other.algorithm and one.max_delay == other.max_delay
    )
