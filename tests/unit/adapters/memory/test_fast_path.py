"""The fast path against the slow one: the same histories, the same verdicts, the same counters."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.adapters.clock import wall_clock
from headgate.adapters.memory import MemoryStore, WhenFull
from headgate.adapters.zones import zone
from headgate.core.algorithms.sliding_window_log import Ring
from headgate.core.limit import parse_limit
from headgate.core.meter import Algorithm, Calendars
from headgate.dataplane.bare_keys import BareKeys
from headgate.dataplane.limiter import Limiter
from headgate.dataplane.snapshots import Snapshots
from headgate.errors import HeadgateError
from headgate.testing import FakeClock

KEYS: list[Any] = [
    *("a", "b", "login:203.0.113.9", "a%b", "{a}", "a|b", "ü", "\ud800", "x" * 200, "", "\0"),
    *(None, 5, b"a", ["a"], ("a",)),
]
LIMITS: list[Any] = [
    *("3/minute", "5/minute", "3/second", "100/minute", "unlimited", "2 concurrent", "9/calendar day", "nonsense"),
    *(parse_limit("3/minute"), parse_limit("4/minute"), None, ["3/minute"], 3),
]
COSTS: list[Any] = [1, 1, 1, 0, 2, 5, 10**12, 10**13, -1, True, False, 1.0, "1", None]
ALGORITHMS: list[Any] = [*(algorithm.value for algorithm in Algorithm), Algorithm.TOKEN_BUCKET, "none", None, ["x"]]

OTHERS = st.one_of(
    st.tuples(st.just("advance"), st.sampled_from((-5_000_000, 1, 500_000, 1_000_000, 20_000_000, 70_000_000))),
    st.tuples(st.just("reset")),
    st.tuples(st.just("reserve")),
    st.tuples(st.just("refund")),
    st.tuples(st.just("settle")),
)


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    """Steps on a few counters each, so that most hits find a counter that is there."""

    def few(usual: list[Any], unusual: list[Any], most: int) -> st.SearchStrategy[Any]:
        chosen = draw(st.lists(st.sampled_from(usual), min_size=1, max_size=most))
        odd = draw(st.lists(st.sampled_from(unusual), max_size=1))
        return st.sampled_from(chosen * 4 + odd)

    hits = st.tuples(
        st.just("hit"),
        few(KEYS[:3], KEYS, 2),
        few(LIMITS[:3], LIMITS, 2),
        few(COSTS[:6], COSTS, 3),
        few(ALGORITHMS[:5], ALGORITHMS, 1),
    )
    return draw(st.lists(st.one_of(hits, hits, hits, hits, OTHERS), min_size=8, max_size=40))


class Side:
    """One limiter of the two, and what it has open."""

    def __init__(self, counters: int, *, short: bool) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(self.clock, counters, WhenFull.SHARE)
        bare_keys = BareKeys(Calendars(zone, self.clock))
        self.limiter = Limiter(self.store, Snapshots(zone, self.clock), bare_keys)
        if not short:
            self.limiter.hit_now = None
        self.asked: tuple[Any, ...] = ("a", "3/minute", 1, "fixed_window")
        self.verdict: Any = None
        self.reservation: Any = None

    async def step(self, step: tuple[Any, ...]) -> object:
        """Take a step and say in plain words what came of it."""
        try:
            return await self._step(*step)
        except HeadgateError as error:
            return repr(error)

    async def _step(self, word: str, *given: Any) -> object:  # noqa: ANN401 (every kind of step)
        if word == "hit":
            self.asked = key, limit, cost, algorithm = given
            self.verdict = await self.limiter.hit(key, limit, cost, algorithm=algorithm)
            return in_words(self.verdict)
        if word == "advance":
            return self.clock.advance(micros=given[0])
        if word == "reset":
            await self.limiter.reset(*self.asked[:2], algorithm=self.asked[3])
        if word == "reserve":
            key, limit, _, algorithm = self.asked
            self.reservation = await self.limiter.reserve(key, limit, 2, ttl=30, algorithm=algorithm)
            return in_words(self.reservation.verdict)
        if word == "refund" and self.verdict is not None:
            await self.limiter.refund(self.verdict)
        if word == "settle" and self.reservation is not None:
            await self.reservation.close(1)
        return None

    def counters(self) -> dict[str, list[Any]]:
        table = self.store.table
        records = {name: table.find(name) or [] for name in table.names()}
        return {name: [plain(record[0]), str(record[1])] for name, record in records.items()}


def plain(state: Any) -> object:  # noqa: ANN401 (each algorithm has its own state)
    return (list(state.times), state.next, state.held) if isinstance(state, Ring) else state


def in_words(verdict: Any) -> object:  # noqa: ANN401 (a verdict)
    told = {name: value for name, value in verdict.as_dict().items() if name != "id"}
    hits = [(finding.hit.key, finding.hit.cost, finding.decision) for finding in verdict.findings]
    return bool(verdict), told, hits, verdict.headers(), len(verdict.receipts)


@settings(max_examples=400, deadline=None)
@given(histories(), st.sampled_from((1, 100, 100)))
def test_the_fast_path_means_the_same(steps: list[tuple[Any, ...]], counters: int) -> None:
    """Whatever is hit, with whatever keys, limits, costs and clocks, both paths answer and count the same."""
    short, long = Side(counters, short=True), Side(counters, short=False)

    async def main() -> None:
        for step in steps:
            assert await short.step(step) == await long.step(step), step
            assert short.counters() == long.counters(), step

    run_to_end(main())


def run_to_end(main: Any) -> None:  # noqa: ANN401 (a coroutine)
    with pytest.raises(StopIteration):
        main.send(None)


def test_the_fast_path_goes_by_the_wall_clock() -> None:
    """On the wall clock, which it reads by itself, the fast path tells the same time as the slow one."""
    store = MemoryStore(wall_clock)
    limiter = Limiter(store, Snapshots(zone, wall_clock), BareKeys(Calendars(zone, wall_clock)))
    assert limiter.hit_now is not None
    limiter.hit_now("k", "5/hour")
    before = wall_clock()
    at = limiter.hit_now("k", "5/hour").decisions[0].at
    assert before <= at <= wall_clock()


def test_the_fast_path_releases_the_lock() -> None:
    """An error on the fast path leaves the store usable."""
    store = MemoryStore(FakeClock())
    limiter = Limiter(store, Snapshots(zone, FakeClock()), BareKeys(Calendars(zone, FakeClock())))
    assert limiter.hit_now is not None
    limiter.hit_now("k", "5/hour")

    def broken() -> int:
        msg = "the clock stands still"
        raise OSError(msg)

    store.clock = broken
    hit = store.fast_path(limiter.bare_keys.meters, limiter.hit_now)
    with pytest.raises(OSError, match="stands still"):
        hit("k", "5/hour")
    assert not store.lock.locked()
