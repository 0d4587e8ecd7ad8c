"""Memory does not grow with what has passed."""

from __future__ import annotations

import os
import tracemalloc

import pytest

from headgate.adapters.memory import MemoryStore, WhenFull
from headgate.core.decision import Hit, Receipt
from headgate.core.keys import hit_key
from headgate.core.limit import Rate, parse_limit
from headgate.core.meter import Algorithm, Meter
from headgate.sync import Limiter
from headgate.testing import FakeClock

KEYS = 1_000_000 if os.environ.get("HYPOTHESIS_PROFILE") == "long" else 60_000
RATES = [algorithm for algorithm in Algorithm if algorithm is not Algorithm.CONCURRENCY]


def meter(text: str, algorithm: Algorithm) -> Meter:
    limit = parse_limit(text)
    assert isinstance(limit, Rate)
    return Meter(limit, algorithm)


def store_of(gate: Limiter) -> MemoryStore:
    store = gate._limiter.store
    assert isinstance(store, MemoryStore)
    return store


def test_a_million_keys_that_come_once() -> None:
    """A million keys (in the long profile), each used once, take no more room than those whose windows are open."""
    clock = FakeClock()
    gate = Limiter.open(clock=clock)
    store = store_of(gate)
    most = 0
    for number in range(KEYS):
        if number % 1_000 == 0:
            clock.advance(seconds=1)
            most = max(most, len(store.table))
        gate.hit(f"k{number}", "5/10s", algorithm="fixed_window")
    assert most <= 12_000
    assert len(store.table._expiries) == len(store.table) <= 12_000


@pytest.mark.parametrize("algorithm", RATES)
def test_keys_that_come_once_are_forgotten_in_every_algorithm(algorithm: Algorithm) -> None:
    """Whatever measures them, keys that do not come back are forgotten when their state says nothing any more."""
    clock = FakeClock()
    gate = Limiter.open(clock=clock)
    for number in range(20_000):
        clock.advance(seconds=0.01)
        gate.hit(f"k{number}", "5/10s", algorithm=algorithm)
    # At most two periods of keys, and the second for which expired ones may wait.
    assert len(store_of(gate).table) <= 2_200


def test_keys_that_live_on_are_forgotten_in_the_end() -> None:
    """Keys used again and again stay, and go with the others once they are no longer used."""
    clock = FakeClock()
    gate = Limiter.open(clock=clock)
    for second in range(100):
        clock.advance(seconds=1)
        for key in ("a", "b", "c"):
            gate.hit(key, "500/10s")
        gate.hit(f"once{second}", "500/10s")
    table = store_of(gate).table
    assert {"a", "b", "c"} <= set(table.bare["sc10s"])
    clock.advance(seconds=60)
    for number in range(40):
        gate.hit(f"new{number}", "5/10s")
    assert not {"a", "b", "c"} & set(table.bare["sc10s"])
    assert len(table) == len(table._expiries) == 40


def test_resetting_and_using_again_leaves_nothing_behind() -> None:
    """A key that is reset and used again, over and over, takes the room of one key."""
    clock = FakeClock()
    gate = Limiter.open(clock=clock)
    for _ in range(20_000):
        clock.advance(seconds=1)
        gate.hit("login", "5/day", algorithm="token_bucket")
        gate.reset("login", "5/day", algorithm="token_bucket")
    wheel = store_of(gate).table._expiries
    assert (len(store_of(gate).table), len(wheel), len(wheel._order)) == (0, 0, len(wheel._order))
    assert len(wheel._order) <= 100


def test_periods_made_up_by_the_thousand_are_forgotten() -> None:
    """Different periods for one key are different counters, which are forgotten like any others."""
    clock = FakeClock()
    gate = Limiter.open(clock=clock)
    for number in range(10_000):
        clock.advance(seconds=1)
        gate.hit("k", f"5/{number + 1}us", algorithm="fixed_window")
    assert len(store_of(gate).table.bare) <= 5


def test_settled_reservations_are_forgotten() -> None:
    """A reservation takes no more room than a hit, and what was settled is remembered only while it matters."""
    clock = FakeClock()
    gate = Limiter.open(clock=clock)
    for _ in range(5_000):
        clock.advance(seconds=0.1)
        with gate.reserve("k", "5000/10s", 2, ttl=86_400) as reservation:
            reservation.settle(1)
    assert len(store_of(gate).table) == 1
    assert len(store_of(gate)._spent) <= 250


def test_spent_receipts_are_remembered_while_it_matters() -> None:
    """Receipts that were given back are remembered until their window has passed, and then forgotten."""
    clock = FakeClock()
    gate = Limiter.open(clock=clock)
    for _ in range(20_000):
        clock.advance(seconds=0.01)
        gate.refund(gate.hit("k", "100/10s", algorithm="fixed_window"))
    assert len(store_of(gate)._spent) <= 1_200
    assert len(store_of(gate)._spent_expiries) == len(store_of(gate)._spent)


def test_where_receipts_cannot_be_remembered_they_do_not_count() -> None:
    """Rather than credit a receipt twice, a store without room to remember it credits it not at all."""
    clock = FakeClock()
    store = MemoryStore(clock, 2, WhenFull.SHARE)
    of = meter("10/hour", Algorithm.FIXED_WINDOW)
    asked = Hit(hit_key("k", of.code), of, 5)
    (decision,) = store.take_now([asked])
    for number in range(4):
        store.give_back_now([Receipt(asked.key, of, decision.stamp, 1, f"receipt{number}")])
    assert store.peek_now([asked._replace(cost=0)])[0].remaining == 7
    clock.advance(seconds=3602)
    (decision,) = store.take_now([asked])
    store.give_back_now([Receipt(asked.key, of, decision.stamp, 1, "later")])
    assert store.peek_now([asked._replace(cost=0)])[0].remaining == 6


def test_live_counters_are_small() -> None:
    """A counter of a bare key takes less than a kilobyte, all that is kept about it included."""
    gate = Limiter.open(clock=FakeClock())
    gate.hit("first", "5/hour")
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(20_000):
            gate.hit(f"user{number:08}", "5/hour")
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (after - before) / 20_000 < 1_000
