"""What was admitted, counted afterwards over all windows and intervals by brute force."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.counters import StoreCounter
from tests.property.histories import CLOSE, FITTING, FORWARD, Cost, Do, History, Jump, Walk, histories
from tests.property.references import rate

from headgate.core.decision import Decision
from headgate.core.limit import Rate
from headgate.core.meter import Algorithm, Meter
from headgate.core.units import SECOND


@dataclass(slots=True)
class Passed:
    """A request that passed; `cost` is without what was given back."""

    at: int
    cost: int
    decision: Decision


def _admitted(data: st.DataObject, algorithm: Algorithm, do: tuple[Do, ...]) -> tuple[Meter, list[Passed]]:
    """Walk a history of one limit; what passed, as it stands in the end."""
    jumps, costs = (CLOSE, FITTING) if Do.GIVE_BACK in do else (FORWARD, tuple(Cost))
    return _walked(data.draw(histories(algorithm, do=do, jumps=jumps, costs=costs)))


def _walked(history: History) -> tuple[Meter, list[Passed]]:
    algorithm = history.meters[0].algorithm
    store, walk, passed, given_back = StoreCounter(), Walk(history), list[Passed](), set[int]()
    for at in walk:
        if at.do is Do.GIVE_BACK and passed:
            number = len(passed) - 1 - at.pick % len(passed)
            amount = min(at.cost, passed[number].cost)
            before = store.peek(at._replace(cost=0)).remaining
            store.give_back(at.meter, at.now, passed[number].decision, amount, f"receipt {number}")
            credit = store.peek(at._replace(cost=0)).remaining - before
            assert credit >= 0, "giving back never takes"
            # A queue that no request may join, because the wait is too long, shows no room at all.
            assert credit <= amount or algorithm is Algorithm.LEAKY_BUCKET, "a receipt is worth its amount at most"
            if number not in given_back:
                passed[number].cost -= amount
                given_back.add(number)
            continue
        walk.last = decision = store.take(at)
        if decision.allowed:
            passed.append(Passed(at.now, at.cost, decision))
    return history.meters[0], passed


GIVING_BACK_TOO = pytest.mark.parametrize(
    "do", [(Do.TAKE,), (Do.TAKE, Do.TAKE, Do.GIVE_BACK)], ids=["taking", "taking and giving back"]
)


@GIVING_BACK_TOO
@given(data=st.data())
def test_no_fixed_window_admits_more_than_the_limit(do: tuple[Do, ...], data: st.DataObject) -> None:
    """In no window, cut at multiples of the period, is more admitted than the limit."""
    meter, passed = _admitted(data, Algorithm.FIXED_WINDOW, do)
    for start in {entry.at // meter.period for entry in passed}:
        assert sum(entry.cost for entry in passed if entry.at // meter.period == start) <= meter.amount


@GIVING_BACK_TOO
@given(data=st.data())
def test_no_interval_of_a_log_admits_more_than_the_limit(do: tuple[Do, ...], data: st.DataObject) -> None:
    """In no interval of one period, wherever it begins, is more admitted than the limit."""
    meter, passed = _admitted(data, Algorithm.SLIDING_WINDOW_LOG, do)
    for last in passed:
        in_view = sum(entry.cost for entry in passed if last.at - meter.period < entry.at <= last.at)
        assert in_view <= meter.amount


@GIVING_BACK_TOO
@given(data=st.data())
def test_no_interval_of_a_sliding_counter_admits_more_than_two_limits(do: tuple[Do, ...], data: st.DataObject) -> None:
    """The estimate errs by a whole limit at most: no interval admits more than two, and no window more than one."""
    meter, passed = _admitted(data, Algorithm.SLIDING_WINDOW_COUNTER, do)
    for last in passed:
        assert sum(e.cost for e in passed if last.at - meter.period < e.at <= last.at) <= 2 * meter.amount
        window = last.at // meter.period
        assert sum(entry.cost for entry in passed if entry.at // meter.period == window) <= meter.amount


@GIVING_BACK_TOO
@given(data=st.data())
def test_no_interval_of_a_token_bucket_admits_more_than_burst_and_rate(do: tuple[Do, ...], data: st.DataObject) -> None:
    """From any admission to any later one, at most the burst passes and what the rate earns in between.

    A throttled request passes when its delay is over, and is told so in whole microseconds.
    """
    _within_burst_and_rate(*_admitted(data, Algorithm.TOKEN_BUCKET, do))


@given(
    history=histories(
        Algorithm.TOKEN_BUCKET,
        do=(Do.TAKE, Do.TAKE, Do.GIVE_BACK),
        jumps=(Jump.STAY, Jump.STAY, Jump.UNIT, Jump.RETRY, Jump.HALF, Jump.RESET),
        costs=(Cost.ONE, Cost.THIRD, Cost.LEFT),
        limit=st.builds(
            lambda amount, burst: Meter(Rate(amount, SECOND, burst), Algorithm.TOKEN_BUCKET),
            st.integers(1, 3),
            st.integers(2, 12),
        ),
    )
)
def test_refunds_to_a_small_bucket_do_not_add_up(history: History) -> None:
    """However many receipts of one bucket come back, and in whatever order, the others keep to burst and rate."""
    _within_burst_and_rate(*_walked(history))


def _within_burst_and_rate(meter: Meter, passed: list[Passed]) -> None:
    for number, begin in enumerate(passed):
        taken = 0
        for end in passed[number:]:
            taken += end.cost
            span = end.at + end.decision.delay - begin.at
            assert taken <= meter.capacity + span * rate(meter)


@GIVING_BACK_TOO
@given(data=st.data())
def test_a_leaky_bucket_sends_out_at_a_constant_rate(do: tuple[Do, ...], data: st.DataObject) -> None:
    """A request that waits as told leaves when all before have gone out at the rate; no wait exceeds `max_delay`.

    Delays are told in whole microseconds, so two departures may be one microsecond closer.
    """
    meter, passed = _admitted(data, Algorithm.LEAKY_BUCKET, do)
    passed = [entry for entry in passed if entry.cost]
    for before, after in pairwise(passed):
        gap = after.at + after.decision.delay - before.at - before.decision.delay
        assert gap + 1 > before.cost / rate(meter)
        assert after.decision.delay <= meter.max_delay


@GIVING_BACK_TOO
@given(data=st.data())
def test_no_more_slots_are_held_than_there_are(do: tuple[Do, ...], data: st.DataObject) -> None:
    """Counted holder by holder, at no time are more slots held than the limit says."""
    history = data.draw(histories(Algorithm.CONCURRENCY, do=do))
    store, walk, held = StoreCounter(), Walk(history), dict[str, tuple[int, Decision, int]]()
    for at in walk:
        held = {holder: hold for holder, hold in held.items() if hold[0] > at.now}
        if at.do is Do.GIVE_BACK:
            if at.holder in held:
                _, decision, slots = held.pop(at.holder)
                store.give_back(at.meter, at.now, decision, slots, at.holder)
            continue
        walk.last = decision = store.take(at)
        if decision.allowed and at.cost:
            held[at.holder] = (at.now + at.ttl, decision, at.cost)
        assert sum(slots for _, _, slots in held.values()) <= at.meter.amount
        assert decision.remaining == at.meter.amount - sum(slots for _, _, slots in held.values())
