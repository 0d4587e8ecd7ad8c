"""The deny cache against the store it wraps: the same histories, the same admissions and refusals."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.histories import FORWARD, RATES, Cost, Do, Jump, Walk, histories

from headgate.adapters import zones
from headgate.adapters.memory import MemoryStore
from headgate.core.decision import Decision, Hit, Receipt, Source
from headgate.core.limit import parse_limit
from headgate.core.meter import Algorithm, Meter
from headgate.core.units import MINUTE, SECOND
from headgate.dataplane.deny_cache import DenyCache
from headgate.dataplane.limiter import run_now
from headgate.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Sequence


KEY = "rl:{u=u1}:rule:code"
EVERY_RATE = pytest.mark.parametrize("algorithm", RATES)
DENYING = (Cost.ONE, Cost.ONE, Cost.TWO, Cost.THIRD, Cost.LEFT, Cost.LEFT_AND_ONE, Cost.ALL, Cost.TOO_MUCH, Cost.ZERO)
NEAR = (Jump.STAY, Jump.STAY, Jump.STAY, Jump.TICK, Jump.UNIT, Jump.TENTH, Jump.BEFORE_RETRY, Jump.RETRY, *FORWARD)
EVERYTHING = (Do.TAKE, Do.TAKE, Do.TAKE, Do.GIVE_BACK, Do.FORCE, Do.CHANGE)


class Both:
    """Two stores with one clock that are asked the same, one of them through a deny cache."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.bare = MemoryStore(self.clock)
        self.cache = DenyCache(MemoryStore(self.clock), lambda: self.clock() * 1_000)
        self.names = count()

    def take(self, hits: Sequence[Hit]) -> list[Decision]:
        """The answers of the cache, which say the same as those of the bare store."""
        cached, bare = list(run_now(self.cache.take(hits))), self.bare.take_now(hits)
        assert [each.allowed for each in cached] == [each.allowed for each in bare]
        if all(each.source is Source.STORE for each in cached):
            assert cached == bare
        for mine, theirs in zip(cached, bare, strict=True):
            assert mine.at == theirs.at
            if mine.retry_after is None or theirs.retry_after is None:
                assert mine.retry_after is theirs.retry_after
            else:
                assert mine.retry_after >= theirs.retry_after
        return cached

    def give_back(self, hit: Hit, decision: Decision, amount: int) -> None:
        receipt = Receipt(hit.key, hit.meter, decision.stamp, amount, str(next(self.names)))
        run_now(self.cache.give_back([receipt]))
        self.bare.give_back_now([receipt])

    def reset(self, key: str) -> None:
        run_now(self.cache.reset([key]))
        self.bare.reset_now([key])


def _walked(both: Both, walk: Walk) -> None:
    taken: list[tuple[Hit, Decision]] = []
    for at in walk:
        both.clock.set(at.now)
        if at.do is Do.GIVE_BACK:
            if at.pick == 0:
                both.reset(KEY)
            elif taken:
                hit, decision = taken[at.pick % len(taken)]
                both.give_back(hit, decision, hit.cost)
        hit = Hit(KEY, at.meter, at.cost, forced=at.do is Do.FORCE)
        (walk.last,) = both.take([hit])
        if walk.last.allowed and hit.cost:
            taken.append((hit, walk.last))


@EVERY_RATE
@given(data=st.data())
def test_what_is_admitted_and_refused_stays_the_same(algorithm: Algorithm, data: st.DataObject) -> None:
    """Through the cache exactly the same hits pass, whatever is taken, forced, given back, reset or changed before."""
    history = data.draw(histories(algorithm, do=EVERYTHING, jumps=NEAR, costs=DENYING))
    _walked(Both(), Walk(history))


@given(data=st.data())
def test_calendar_windows_end_from_memory_when_they_end_in_the_store(data: st.DataObject) -> None:
    """The same holds for the windows of a calendar, around the midnight between two of them."""
    both = Both()
    unbounded = Meter(parse_limit("3/calendar day"), Algorithm.FIXED_WINDOW)  # type: ignore[arg-type] # not unlimited
    steps = st.tuples(st.sampled_from((0, 1, SECOND // 3, SECOND, 7 * MINUTE, 24 * 60 * MINUTE)), st.integers(0, 4))
    both.clock.advance(micros=-5 * SECOND)
    for span, cost in data.draw(st.lists(steps, max_size=40)):
        both.clock.advance(micros=span)
        both.take([Hit(KEY, unbounded.at(both.clock(), zones.zone), cost)])


@given(data=st.data())
def test_several_hits_of_a_request_are_answered_as_by_the_store(data: st.DataObject) -> None:
    """Of requests over several counters, in any combination, each counter is answered as the store would."""
    both = Both()
    meters = [
        Meter(parse_limit(limit), algorithm)  # type: ignore[arg-type] # not unlimited
        for limit, algorithm in (
            ("2/10s", Algorithm.FIXED_WINDOW),
            ("3/7s", Algorithm.SLIDING_WINDOW_LOG),
            ("4/5s", Algorithm.TOKEN_BUCKET),
            ("5/3s", Algorithm.SLIDING_WINDOW_COUNTER),
        )
    ]
    hits = [Hit(f"rl:{{u=u1}}:rule:{meter.code}", meter, 1) for meter in meters]
    spans = st.sampled_from((0, 0, 0, 1, SECOND // 10, SECOND // 2, SECOND, 3 * SECOND))
    one = st.tuples(spans, st.sets(st.integers(0, 3), min_size=1), st.integers(0, 3), st.integers(0, 19))
    for span, chosen, cost, back in data.draw(st.lists(one, min_size=10, max_size=60)):
        both.clock.advance(micros=span)
        request = [hits[number]._replace(cost=cost) for number in sorted(chosen)]
        decisions = both.take(request)
        if back == 0 and all(each.allowed for each in decisions) and cost:
            both.give_back(request[0], decisions[0], 1)
        if back == 1:
            both.reset(request[0].key)
