"""Receipts: what comes back, when, and that it comes back once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.counters import CoreCounter, StoreCounter, answer
from tests.property.histories import CLOSE, FITTING, RATES, Do, History, Walk, histories

from headgate.core.meter import Algorithm

if TYPE_CHECKING:
    from headgate.core.decision import Decision

EVERY_ALGORITHM = pytest.mark.parametrize("algorithm", Algorithm)
EVERY_RATE = pytest.mark.parametrize("algorithm", RATES)


def _histories(algorithm: Algorithm) -> st.SearchStrategy[History]:
    return histories(algorithm, do=(Do.TAKE, Do.TAKE, Do.GIVE_BACK), jumps=CLOSE, costs=FITTING)


@EVERY_ALGORITHM
@given(data=st.data())
def test_what_is_given_back_at_once_never_was(algorithm: Algorithm, data: st.DataObject) -> None:
    """An admission given back in the same instant leaves every later answer as it would have been."""
    with_it, without_it = CoreCounter(), CoreCounter()
    walk = Walk(data.draw(_histories(algorithm)))
    for at in walk:
        if at.do is Do.GIVE_BACK:
            decision = with_it.take(at, holder="another holder")
            if decision.allowed:
                with_it.give_back(at.meter, at.now, decision, at.cost)
            continue
        walk.last = with_it.take(at)
        assert answer(walk.last) == answer(without_it.take(at))


@EVERY_RATE
@given(data=st.data())
def test_a_receipt_counts_once(algorithm: Algorithm, data: st.DataObject) -> None:
    """A receipt that was given back changes nothing when it comes again, byte for byte."""
    store, walk = StoreCounter(), Walk(data.draw(_histories(algorithm)))
    receipts: list[tuple[Decision, int]] = []
    given_back: set[int] = set()
    for at in walk:
        if at.do is Do.GIVE_BACK and receipts:
            number = at.pick % len(receipts)
            decision, cost = receipts[number]
            before = store.image()
            store.give_back(at.meter, at.now, decision, min(cost, at.cost), f"receipt {number}")
            assert number not in given_back or store.image() == before
            given_back.add(number)
            continue
        walk.last = store.take(at)
        if walk.last.allowed:
            receipts.append((walk.last, at.cost))


@EVERY_RATE
@given(data=st.data())
def test_nothing_comes_back_after_its_time(algorithm: Algorithm, data: st.DataObject) -> None:
    """A receipt whose window has passed, or whose tokens are there again, changes nothing, byte for byte."""
    store, walk = StoreCounter(), Walk(data.draw(histories(algorithm)))
    receipts: list[tuple[int, Decision]] = []
    for number, at in enumerate(walk):
        creditable_until = at.meter.creditable_until
        assert creditable_until is not None
        for cost, decision in receipts:
            if creditable_until(decision.stamp, at.meter) <= at.now:
                before = store.image()
                store.give_back(at.meter, at.now, decision, cost, f"receipt {decision.at}")
                assert store.image() == before
        walk.last = store.take(at)
        if walk.last.allowed and at.cost:
            receipts = [*receipts[-4:], (at.cost, walk.last._replace(at=number))]
