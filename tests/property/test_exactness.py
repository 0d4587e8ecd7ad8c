"""What an answer promises, tried out on the core itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.counters import CoreCounter, StoreCounter
from tests.property.histories import Do, Walk, histories

from headgate.core.meter import Algorithm

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.property.histories import At

    from headgate.core.decision import Decision

EVERY_ALGORITHM = pytest.mark.parametrize("algorithm", Algorithm)
OTHER_HOLDER = "another holder"


def _steps(algorithm: Algorithm, data: st.DataObject) -> Iterator[tuple[At, CoreCounter, Decision]]:
    """Walk a history on the core, and hand out each step right after it."""
    core = CoreCounter()
    walk = Walk(data.draw(histories(algorithm, do=(Do.TAKE, Do.TAKE, Do.CHANGE))))
    for at in walk:
        walk.last = core.take(at)
        yield at, core, walk.last


@EVERY_ALGORITHM
@given(data=st.data())
def test_retry_after_is_exact(algorithm: Algorithm, data: st.DataObject) -> None:
    """A refused cost is refused one microsecond before its `retry_after` is over, and admitted then."""
    for at, core, decision in _steps(algorithm, data):
        if decision.allowed:
            assert decision.retry_after == 0
        elif decision.retry_after is not None:
            assert decision.retry_after > 0
            early, due = at.now + decision.retry_after - 1, at.now + decision.retry_after
            assert not core.look(at, now=early).allowed
            assert core.look(at, now=due).allowed


@EVERY_ALGORITHM
@given(data=st.data())
def test_never_is_said_of_impossible_costs_only(algorithm: Algorithm, data: st.DataObject) -> None:
    """A cost has no `retry_after` exactly if it is above the capacity, and then no wait is long enough."""
    for at, core, decision in _steps(algorithm, data):
        if decision.allowed:
            assert at.cost <= at.meter.capacity
        else:
            assert (decision.retry_after is None) == (at.cost > at.meter.capacity)
            if decision.retry_after is None:
                assert not core.look(at, now=at.now + decision.reset_after).allowed


@EVERY_ALGORITHM
@given(data=st.data())
def test_remaining_is_exact(algorithm: Algorithm, data: st.DataObject) -> None:
    """What remains is admitted at once, and one more is not (a throttled bucket holds it back instead)."""
    for at, core, decision in _steps(algorithm, data):
        rest = core.look(at, cost=decision.remaining, holder=OTHER_HOLDER)
        more = core.look(at, cost=decision.remaining + 1, holder=OTHER_HOLDER)
        if algorithm is Algorithm.TOKEN_BUCKET:
            assert not decision.remaining or (rest.allowed and not rest.delay)
            assert not more.allowed or more.delay
        else:
            assert not decision.remaining or rest.allowed
            assert not more.allowed


@EVERY_ALGORITHM
@given(data=st.data())
def test_reset_after_is_exact(algorithm: Algorithm, data: st.DataObject) -> None:
    """The whole limit is there when `reset_after` is over, and something is missing one microsecond earlier."""
    for at, core, decision in _steps(algorithm, data):
        due = core.look(at, now=at.now + decision.reset_after, cost=0)
        assert (due.remaining, due.reset_after) == (at.meter.capacity, 0)
        if decision.reset_after:
            early = core.look(at, now=at.now + decision.reset_after - 1, cost=0)
            assert early.reset_after == 1
            assert early.remaining < at.meter.capacity


@EVERY_ALGORITHM
@given(data=st.data())
def test_a_denial_changes_nothing(algorithm: Algorithm, data: st.DataObject) -> None:
    """A refused request leaves the state as it was, byte for byte, as does a cost of nothing."""
    core = CoreCounter()
    walk = Walk(data.draw(histories(algorithm, do=(Do.TAKE, Do.TAKE, Do.CHANGE))))
    for at in walk:
        before = core.image()
        walk.last = core.take(at)
        if not walk.last.allowed or not at.cost:
            assert core.image() == before


@EVERY_ALGORITHM
@given(data=st.data())
def test_looking_changes_nothing_and_says_what_taking_then_says(algorithm: Algorithm, data: st.DataObject) -> None:
    """A peek gives the answer that the same request then gets, and leaves the store as it was, byte for byte."""
    store = StoreCounter()
    walk = Walk(data.draw(histories(algorithm, do=(Do.TAKE, Do.TAKE, Do.CHANGE))))
    for at in walk:
        before = store.image()
        seen = store.peek(at)
        assert store.image() == before
        walk.last = store.take(at)
        assert walk.last == seen
        if not seen.allowed or not at.cost:
            assert store.image() == before
