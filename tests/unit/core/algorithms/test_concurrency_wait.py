"""How long a holder of slots that asks for more has to wait."""

from __future__ import annotations

from headgate.core.algorithms import concurrency
from headgate.core.limit import Slots
from headgate.core.meter import Algorithm, Meter
from headgate.core.units import SECOND

METER = Meter(Slots(3, 30 * SECOND), Algorithm.CONCURRENCY)


def test_its_own_slots_count_as_free() -> None:
    """A has two of three slots until 30 s, B one until 10 s: A gets three when B's ends."""
    state, *_ = concurrency.decide(None, METER, 0, 2, "a", 30 * SECOND)
    state, *_ = concurrency.decide(state, METER, 0, 1, "b", 10 * SECOND)
    state, allowed, _, _, retry_after, *_ = concurrency.decide(state, METER, 0, 3, "a", 30 * SECOND)
    assert (allowed, retry_after) == (False, 10 * SECOND)
    _, allowed, *_ = concurrency.decide(state, METER, 10 * SECOND, 3, "a", 30 * SECOND)
    assert allowed


def test_only_as_many_have_to_end_as_are_needed() -> None:
    """A has one of three slots, B one until 10 s, C one until 20 s: A gets two when B's ends."""
    state = None
    for name, seconds in (("a", 30), ("b", 10), ("c", 20)):
        state, *_ = concurrency.decide(state, METER, 0, 1, name, seconds * SECOND)
    _, allowed, _, _, retry_after, *_ = concurrency.decide(state, METER, 0, 2, "a", 30 * SECOND)
    assert (allowed, retry_after) == (False, 10 * SECOND)
