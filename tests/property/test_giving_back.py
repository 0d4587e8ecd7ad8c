"""Receipts and reservations: what comes back, when, and that it comes back once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.counters import CoreCounter, StoreCounter, answer
from tests.property.histories import RATES, At, Do, Walk, histories

from headgate.core.decision import Decision, Hit
from headgate.core.meter import Algorithm

EVERY_ALGORITHM = pytest.mark.parametrize("algorithm", Algorithm)
EVERY_RATE = pytest.mark.parametrize("algorithm", RATES)


@EVERY_ALGORITHM
@given(data=st.data())
def test_what_is_given_back_at_once_never_was(algorithm: Algorithm, data: st.DataObject) -> None:
    """An admission given back in the same instant leaves every later answer as it would have been."""
    with_it, without_it = CoreCounter(), CoreCounter()
    walk = Walk(data.draw(histories(algorithm, do=(Do.TAKE, Do.TAKE, Do.GIVE_BACK))))
    for at in walk:
        if at.do is Do.GIVE_BACK:
            decision = with_it.take(at, holder="somebody else")
            if decision.allowed:
                with_it.give_back(at.meter, at.now, decision, at.cost)
            continue
        walk.last = with_it.take(at)
        assert answer(walk.last) == answer(without_it.take(at))


@EVERY_RATE
@given(data=st.data())
def test_a_receipt_counts_once(algorithm: Algorithm, data: st.DataObject) -> None:
    """A receipt that was given back changes nothing when it comes again, byte for byte."""
    store, walk = StoreCounter(), Walk(data.draw(histories(algorithm, do=(Do.TAKE, Do.TAKE, Do.GIVE_BACK))))
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


@EVERY_RATE
@given(data=st.data())
def test_a_reservation_that_ends_is_given_back_then(algorithm: Algorithm, data: st.DataObject) -> None:
    """A reservation nobody settles is worth what giving it back in the instant it ends would have been."""
    by_itself, by_hand = StoreCounter(), StoreCounter()
    walk = Walk(data.draw(histories(algorithm)))
    open_until: list[tuple[int, str, Decision, int]] = []
    for number, at in enumerate(walk):
        name = f"{number:04}"
        for end, ended, decision, cost in sorted(open_until):
            if end <= at.now:
                by_hand.give_back(at.meter, end, decision, cost, ended)
        open_until = [reservation for reservation in open_until if reservation[0] > at.now]
        walk.last = by_hand.take(at)
        if walk.last.allowed:
            open_until.append((at.now + at.ttl, name, walk.last, at.cost))
        assert answer(_reserved(by_itself, at, name)) == answer(walk.last)


def _reserved(store: StoreCounter, at: At, name: str) -> Decision:
    store.clock.set(at.now)
    return store.store.take_now([Hit(store.KEY, at.meter, at.cost, name, at.ttl)])[0]
