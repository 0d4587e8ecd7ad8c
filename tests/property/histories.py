"""Histories for the property tests: what is asked of one counter, and when.

A step is drawn as words ("one microsecond before it may be tried again", "one more than
is left"), which only get their numbers as the history is walked: that is where the
edges of each algorithm are.
"""

from __future__ import annotations

import os
from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from hypothesis import strategies as st

from headgate.core.limit import Rate, Slots
from headgate.core.meter import MAX_LOG, Algorithm, Meter
from headgate.core.units import DAY, HOUR, MAX_AMOUNT, MAX_COUNTED, MAX_PERIOD, MAX_WAIT, MINUTE, SECOND
from headgate.testing.clock import NEW_YEAR

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.core.decision import Decision

LONG: Final = os.environ.get("HYPOTHESIS_PROFILE") == "long"
STEPS: Final[Counter[Algorithm]] = Counter()
"""How many steps were walked, by algorithm."""

RATES: Final = tuple(algorithm for algorithm in Algorithm if algorithm is not Algorithm.CONCURRENCY)


class Do(StrEnum):
    """What happens in a step."""

    TAKE = "take"
    FORCE = "take past the limit"
    GIVE_BACK = "give back"
    CHANGE = "change the limit"


class Jump(StrEnum):
    """How far the clock moves before it."""

    STAY = "stay"
    TICK = "1 us"
    UNIT = "as long as one unit lasts"
    TENTH = "a tenth of the period"
    HALF = "half the period"
    ALMOST = "1 us less than the period"
    PERIOD = "the period"
    BOUNDARY = "to the next window"
    BEFORE_BOUNDARY = "1 us before the next window"
    AFTER_BOUNDARY = "1 us into the next window"
    RETRY = "until retry_after"
    BEFORE_RETRY = "1 us before retry_after"
    RESET = "until reset_after"
    BEFORE_RESET = "1 us before reset_after"
    TWO_PERIODS = "two periods"
    MANY = "many periods"
    BACK_TICK = "back 1 us"
    BACK_UNIT = "back as long as one unit lasts"
    BACK_HALF = "back half the period"
    BACK_PERIOD = "back the period"
    BACK_MANY = "back many periods"


class Cost(StrEnum):
    """How much it costs; of giving back, how much of the receipt."""

    ONE = "1"
    ZERO = "0"
    TWO = "2"
    THIRD = "a third of the capacity"
    LEFT = "what is left"
    LEFT_AND_ONE = "one more than is left"
    ALL = "the whole capacity"
    TOO_MUCH = "one more than the capacity"
    HUGE = "a million millions"


FORWARD: Final = tuple(jump for jump in Jump if not jump.name.startswith("BACK"))

CLOSE: Final = (
    *(Jump.STAY, Jump.STAY, Jump.TICK, Jump.UNIT, Jump.TENTH, Jump.TENTH, Jump.HALF),
    *(Jump.ALMOST, Jump.PERIOD, Jump.BOUNDARY, Jump.AFTER_BOUNDARY, Jump.RETRY),
)
FITTING: Final = (Cost.ONE, Cost.ONE, Cost.TWO, Cost.THIRD, Cost.THIRD, Cost.LEFT, Cost.LEFT_AND_ONE, Cost.ZERO)
"""Steps so close together, and costs of which so many fit, that much can be given back in time."""


class Step(NamedTuple):
    """One step in words. `pick` chooses among holders, receipts or limits."""

    do: Do
    jump: Jump
    cost: Cost
    pick: int

    def __repr__(self) -> str:
        return f"{self.jump.name} {self.do.name} {self.cost.name} {self.pick}"


class History(NamedTuple):
    """Limits that one counter has in turn, when it starts, and what then happens."""

    meters: list[Meter]
    start: int
    steps: list[Step]


class At(NamedTuple):
    """One step with its numbers."""

    do: Do
    now: int
    meter: Meter
    cost: int
    pick: int = 0
    holder: str = ""
    ttl: int = 1


def longest_ttl(meter: Meter) -> int:
    """The longest `At.ttl` there can be under a limit."""
    return max(1, meter.period * 3 // 2)


class Walk:
    """Goes through a history and gives each step its numbers, from the limit and the last answer."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.now = history.start
        self.meter = history.meters[0]
        self.last: Decision | None = None

    def __iter__(self) -> Iterator[At]:
        for do, jump, cost, pick in self.history.steps:
            STEPS[self.meter.algorithm] += 1
            if do is Do.CHANGE:
                self.meter = self.history.meters[pick % len(self.history.meters)]
            self.now = max(1, self.now + self._span(jump))
            ttl = max(1, self.meter.period * (1 + pick % 3) // 2)
            yield At(do, self.now, self.meter, self._amount(cost), pick, f"holder {pick % 5}", ttl)

    def _span(self, jump: Jump) -> int:
        period = self.meter.period
        to_boundary = period - self.now % period
        retry = (self.last.retry_after or 0) if self.last else 0
        reset = self.last.reset_after if self.last else 0
        unit = -(-period // self.meter.amount)
        spans = (
            *(0, 1, unit, period // 10, period // 2, period - 1, period),
            *(to_boundary, to_boundary - 1, to_boundary + 1),
            *(retry, max(0, retry - 1), reset, max(0, reset - 1)),
            *(2 * period, 7 * period + 3),
            *(-1, -unit, -(period // 2), -period, -(7 * period + 3)),
        )
        return dict(zip(Jump, spans, strict=True))[jump]

    def _amount(self, cost: Cost) -> int:
        capacity = self.meter.capacity
        left = self.last.remaining if self.last else capacity
        costs = (1, 0, 2, capacity // 3, left, left + 1, capacity, capacity + 1, MAX_AMOUNT)
        return dict(zip(Cost, costs, strict=True))[cost]


_PERIODS: Final = st.sampled_from((SECOND, MINUTE, 10, 1, 2, 3, 7, 1000, 142_857, HOUR, DAY, 366 * DAY, MAX_PERIOD))
_AMOUNTS: Final = st.sampled_from((1, 2, 3, 7, 10, 100, 5, 16, 17, 60, 1000, 300_000, 10**6, 10**9, MAX_AMOUNT))
_LOGS: Final = st.sampled_from((1, 2, 3, 7, 10, 16, 17, 40, 100, MAX_LOG))
_DELAYS: Final = st.sampled_from((None, 0, 1, SECOND // 3, SECOND, MINUTE, DAY))


@st.composite
def meters(draw: st.DrawFn, algorithm: Algorithm, period: int | None = None, *, throttle: bool = True) -> Meter:
    """A limit for an algorithm, from tiny to huge."""
    period = period or draw(_PERIODS | st.integers(1, DAY))
    if algorithm is Algorithm.CONCURRENCY:
        return Meter(Slots(draw(st.integers(1, 9)), period), algorithm)
    if algorithm is Algorithm.SLIDING_WINDOW_LOG:
        return Meter(Rate(draw(_LOGS), period), algorithm)
    amount = draw(_AMOUNTS | st.integers(1, 10**6))
    if algorithm not in (Algorithm.TOKEN_BUCKET, Algorithm.LEAKY_BUCKET):
        return Meter(Rate(amount, period), algorithm)
    burst = draw(st.none() | _AMOUNTS)
    if burst is not None:
        burst = max(1, min(burst, MAX_WAIT * amount // period))
    delay = draw(_DELAYS) if throttle else None
    if delay is not None:
        delay = min(delay, MAX_COUNTED * period // amount)
    return Meter(Rate(amount, period, burst), algorithm, delay)


@st.composite
def histories(
    draw: st.DrawFn,
    algorithm: Algorithm,
    *,
    do: tuple[Do, ...] = (Do.TAKE,),
    jumps: tuple[Jump, ...] = FORWARD,
    costs: tuple[Cost, ...] = tuple(Cost),
    throttle: bool = True,
    limit: st.SearchStrategy[Meter] | None = None,
) -> History:
    """A history of one counter. `do`, `jumps` and `costs` say what may happen; what stands twice happens more."""
    meter = draw(meters(algorithm, throttle=throttle) if limit is None else limit)
    others = st.lists(meters(algorithm, meter.period, throttle=throttle), max_size=3)
    changed = draw(others) if Do.CHANGE in do else []
    start = draw(st.sampled_from((NEW_YEAR, 1, NEW_YEAR - 1)) | st.integers(1, 2 * NEW_YEAR))
    step = st.builds(
        Step, st.sampled_from(do), st.sampled_from(jumps), st.sampled_from(costs), st.sampled_from(range(8))
    )
    return History([meter, *changed], start, draw(st.lists(step, min_size=12, max_size=60)))
