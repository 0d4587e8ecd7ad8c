"""Every algorithm, in the core and in the memory store, against its definition with the full history."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.counters import CoreCounter, ReferenceCounter, StoreCounter, answer
from tests.property.histories import CLOSE, FITTING, FORWARD, Cost, Do, Jump, Walk, histories

from headgate.core.meter import Algorithm

if TYPE_CHECKING:
    from tests.property.references import Admission

    from headgate.core.decision import Decision

EVERY_ALGORITHM = pytest.mark.parametrize("algorithm", Algorithm)


@dataclass(slots=True)
class Given:
    """An admission that may be given back."""

    admission: Admission
    by_core: Decision
    by_store: Decision
    cost: int
    name: str
    back: bool = False


@pytest.mark.untraced
@EVERY_ALGORITHM
@given(data=st.data())
def test_everything_is_answered_as_defined(algorithm: Algorithm, data: st.DataObject) -> None:
    """What is admitted, what is left, and when to come back are exactly what the definition says."""
    _compare(algorithm, data, do=(Do.TAKE,))


@EVERY_ALGORITHM
@given(data=st.data())
def test_a_changed_limit_keeps_what_was_counted(algorithm: Algorithm, data: st.DataObject) -> None:
    """Raised or lowered in mid-window, a limit goes on from what was counted under the old one."""
    _compare(algorithm, data, do=(Do.TAKE, Do.TAKE, Do.CHANGE))


@EVERY_ALGORITHM
@given(data=st.data())
def test_what_is_given_back_counts_no_more(algorithm: Algorithm, data: st.DataObject) -> None:
    """Giving back leaves exactly what the definition says of a history without it, and counts once."""
    _compare(algorithm, data, do=(Do.TAKE, Do.TAKE, Do.GIVE_BACK), jumps=CLOSE, costs=FITTING)


@pytest.mark.untraced
@EVERY_ALGORITHM
@given(data=st.data())
def test_all_of_it_at_once(algorithm: Algorithm, data: st.DataObject) -> None:
    """Limits that change, receipts that come back and a clock that steps back do not get in each other's way."""
    # A ring keeps what was in view at its last admission: see test_clock for what holds of a log.
    jumps = FORWARD if algorithm is Algorithm.SLIDING_WINDOW_LOG else tuple(Jump)
    _compare(algorithm, data, do=(Do.TAKE, Do.TAKE, Do.GIVE_BACK, Do.CHANGE), jumps=jumps)


def _compare(
    algorithm: Algorithm,
    data: st.DataObject,
    *,
    do: tuple[Do, ...],
    jumps: tuple[Jump, ...] = FORWARD,
    costs: tuple[Cost, ...] = tuple(Cost),
) -> None:
    reference, core, store = ReferenceCounter(algorithm), CoreCounter(), StoreCounter()
    receipts: list[Given] = []
    numbers = count()
    # What has expired is forgotten, and comes back neither with the clock nor with a slower limit.
    may_tidy = Jump.BACK_TICK not in jumps and Do.CHANGE not in do
    walk = Walk(data.draw(histories(algorithm, do=do, jumps=jumps, costs=costs)))
    latest = 0
    for at in walk:
        if at.now < latest:
            receipts.clear()  # which window they belong to is open once a clock has stepped back
        latest = at.now
        if at.do is Do.GIVE_BACK and receipts:
            given = receipts[at.pick % len(receipts)]
            amount = min(at.cost, given.cost)
            if not given.back or algorithm is Algorithm.CONCURRENCY:
                reference.reference.give_back(given.admission, amount, at.now)
                core.give_back(given.admission.meter, at.now, given.by_core, amount)
            store.give_back(given.admission.meter, at.now, given.by_store, amount, given.name)
            given.back = True
            continue
        if may_tidy:
            store.tidy(at.now)
        walk.last = core.take(at)
        by_store = store.take(at)
        expected, admission = reference.take(at, guess=walk.last)
        assert answer(walk.last) == expected
        assert answer(by_store) == expected
        if admission is not None:
            receipts = [*receipts[-7:], Given(admission, walk.last, by_store, at.cost, f"receipt {next(numbers)}")]
