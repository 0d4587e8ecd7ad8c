"""Small arrival histories and what the real algorithms make of them.

`draw_algorithms` turns these into pictures, and tests hold the pages to the numbers
they quote. Nothing is made up here: every answer comes from `headgate.core`.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.core.algorithms import bucket, concurrency
from headgate.core.limit import Rate, Slots, parse_limit
from headgate.core.meter import Algorithm, Meter
from headgate.core.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.core.units import Micros

START: Final[Micros] = 1_700_000_000 * SECOND
"""Second 0 of every picture: a multiple of ten seconds, so that a window begins there."""

WINDOW_LIMIT: Final = "5/10s"
_BEFORE_THE_BOUNDARY: Final = (7.0, 7.6, 8.2, 8.8, 9.4)
_BEHIND_IT: Final = (10.4, 11.0, 11.6, 12.2, 12.8, 13.4)
_LATER: Final = (16.4, 18.3, 20.6, 22.3, 24.3, 26.7)
WINDOW_ARRIVALS: Final = (*_BEFORE_THE_BOUNDARY, *_BEHIND_IT, *_LATER)
"""The same for all three windows, so that their pictures can be compared."""
WINDOW_END: Final = 30.0

BUCKET_LIMIT: Final = "1/second burst 4"
TOKEN_ARRIVALS: Final = (1.0, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 3.5, 5.5, 9.0, 9.25, 9.5, 9.75, 10.0, 10.25)
TOKEN_END: Final = 13.0
LEAKY_ARRIVALS: Final = (1.0, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 4.5, 9.0, 9.25, 9.5)
LEAKY_END: Final = 13.0

SLOTS_LIMIT: Final = "3 concurrent ttl 6s"
SLOTS_END: Final = 16.0


class Answer(NamedTuple):
    """One arrival and how it was answered; times in seconds since `START`."""

    at: float
    allowed: bool
    remaining: int
    delay: float
    retry_after: float | None
    state: Any


class Hold(NamedTuple):
    """A caller that wants a slot: when, until when, and whether a renewal or death is part of the story."""

    name: str
    asks: float
    releases: float | None = None
    """None: it dies, and its ttl frees the slot."""
    renews: float | None = None


SLOT_STORY: Final = (
    Hold("A", 1.0, releases=4.0),
    Hold("B", 1.8),
    Hold("C", 2.6, releases=13.5, renews=7.5),
    Hold("D", 3.3),
    Hold("E", 5.0, releases=10.0),
    Hold("F", 6.6),
    Hold("G", 8.6, releases=12.0),
)


def meter(limit: str, algorithm: Algorithm) -> Meter:
    """The meter of a limit as people write it."""
    parsed = parse_limit(limit)
    assert isinstance(parsed, Rate | Slots)  # noqa: S101 (all limits here measure something)
    return Meter(parsed, algorithm)


def instant(seconds: float) -> Micros:
    """A time of the picture on the clock of the algorithms."""
    return START + round(seconds * SECOND)


def replay(limit: str, algorithm: Algorithm, arrivals: Sequence[float]) -> list[Answer]:
    """Send the arrivals through an algorithm, one unit each."""
    measure = meter(limit, algorithm)
    state: Any = None
    answers = []
    for at in arrivals:
        after, allowed, remaining, _, retry_after, delay, _, _ = measure.decide(state, measure, instant(at), 1)
        state = after if measure.commit is None else measure.commit(state, measure, after)
        wait = None if retry_after is None else retry_after / SECOND
        answers.append(Answer(at, allowed, remaining, delay / SECOND, wait, state))
    return answers


def state_at(answers: Sequence[Answer], seconds: float) -> Any:  # noqa: ANN401 (each algorithm has its own state)
    """The state after the last arrival up to a time; only for algorithms whose states are values."""
    return next((answer.state for answer in reversed(answers) if answer.at <= seconds), None)


def window_parts(answers: Sequence[Answer], seconds: float, limit: str = WINDOW_LIMIT) -> tuple[int, int]:
    """What a sliding window counter still sees of the last window, and what it has counted in this one."""
    period = meter(limit, Algorithm.SLIDING_WINDOW_COUNTER).period
    state = state_at(answers, seconds)
    if state is None:
        return 0, 0
    start, current, previous = state
    elapsed = instant(seconds) % period
    this_window = instant(seconds) - elapsed
    if start == this_window:
        return previous * (period - elapsed) // period, current
    return (current * (period - elapsed) // period, 0) if start == this_window - period else (0, 0)


def in_bucket(answers: Sequence[Answer], seconds: float, algorithm: Algorithm, limit: str = BUCKET_LIMIT) -> float:
    """What a bucket holds (of debt, or of queue) at a time, in units."""
    measure = meter(limit, algorithm)
    return bucket.level(state_at(answers, seconds), measure, instant(seconds)) / measure.period


class Slot(NamedTuple):
    """One holder's story as it went."""

    name: str
    asked: float
    allowed: bool
    ended: float
    renewed: float | None
    died: bool


def slots() -> list[Slot]:
    """Play `SLOT_STORY` through the real concurrency algorithm, in the order of its events."""
    measure = meter(SLOTS_LIMIT, Algorithm.CONCURRENCY)
    events = [(hold.asks, "asks", hold) for hold in SLOT_STORY]
    events += [(hold.renews, "renews", hold) for hold in SLOT_STORY if hold.renews is not None]
    events += [(hold.releases, "releases", hold) for hold in SLOT_STORY if hold.releases is not None]
    state: concurrency.State | None = None
    admitted: dict[str, bool] = {}
    expiry: dict[str, float] = {}
    for at, what, hold in sorted(events):
        if what == "releases":
            state = concurrency.give_back(state, measure, instant(at), hold.name, 1)
            continue
        state, allowed, *_ = concurrency.decide(state, measure, instant(at), 1, hold.name, measure.period)
        admitted.setdefault(hold.name, allowed)
        if allowed:
            expiry[hold.name] = (state[hold.name].expiry - START) / SECOND
    return [
        Slot(
            hold.name,
            hold.asks,
            admitted[hold.name],
            expiry.get(hold.name, hold.asks) if hold.releases is None else hold.releases,
            hold.renews,
            died=admitted[hold.name] and hold.releases is None,
        )
        for hold in SLOT_STORY
    ]


STORIES: Final = {
    Algorithm.FIXED_WINDOW: (WINDOW_LIMIT, WINDOW_ARRIVALS),
    Algorithm.SLIDING_WINDOW_COUNTER: (WINDOW_LIMIT, WINDOW_ARRIVALS),
    Algorithm.SLIDING_WINDOW_LOG: (WINDOW_LIMIT, WINDOW_ARRIVALS),
    Algorithm.TOKEN_BUCKET: (BUCKET_LIMIT, TOKEN_ARRIVALS),
    Algorithm.LEAKY_BUCKET: (BUCKET_LIMIT, LEAKY_ARRIVALS),
}


def answers(algorithm: Algorithm) -> list[Answer]:
    """What an algorithm answers in its own picture; slots have a story of another kind."""
    limit, arrivals = STORIES[algorithm]
    return replay(limit, algorithm, arrivals)


def fingerprint(algorithm: Algorithm) -> str:
    """Stands in the picture, so that a test can see whether it was drawn from today's answers."""
    told = slots() if algorithm is Algorithm.CONCURRENCY else [answer[:-1] for answer in answers(algorithm)]
    return sha256(repr(told).encode()).hexdigest()[:16]
