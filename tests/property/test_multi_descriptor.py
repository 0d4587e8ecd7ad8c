"""Several counters in one request, on the memory store."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.property.counters import Answer, CoreCounter, ReferenceCounter, StoreCounter, answer
from tests.property.histories import RATES, STEPS, At, Cost, Do, Walk, histories

from headgate.adapters.memory import MemoryStore
from headgate.core.decision import Hit
from headgate.core.meter import Algorithm
from headgate.core.units import MAX_AMOUNT
from headgate.sync import Limiter
from headgate.testing import FakeClock

END_OF_TIME = 2**62
"""Some 146,000 years from now; a large burst may take longer, and a ring has 64 bits for an instant."""
COSTS = (Cost.ONE, Cost.TWO, Cost.THIRD, Cost.LEFT, Cost.ZERO, Cost.LEFT_AND_ONE)


@given(data=st.data())
def test_all_hits_count_or_none(data: st.DataObject) -> None:
    """A request over every algorithm at once counts in all its counters or changes none, byte for byte."""
    clock = FakeClock()
    store = MemoryStore(clock)
    walks = {algorithm: Walk(data.draw(histories(algorithm, costs=COSTS))) for algorithm in Algorithm}
    references = {algorithm: ReferenceCounter(algorithm) for algorithm in Algorithm}
    for steps in zip(*walks.values(), strict=False):
        clock.set(min(END_OF_TIME, max(clock(), *(at.now for at in steps))))
        asked = dict(zip(Algorithm, (at._replace(now=clock()) for at in steps), strict=True))
        before = {algorithm: _image(store, algorithm) for algorithm in Algorithm}
        decisions = store.take_now([_hit(at) for at in asked.values()])
        definition = {
            algorithm: references[algorithm].reference.admits(at.meter, at.now, at.cost, at.holder)
            for algorithm, at in asked.items()
        }
        if all(definition.values()):
            standing = list(asked.values())
        else:
            # Those that would have passed answer as they stand; those that would not, as ever.
            standing = [at._replace(cost=0) if definition[a] else at for a, at in asked.items()]
            assert {algorithm: _image(store, algorithm) for algorithm in Algorithm} == before
        for at, walk, decision in zip(standing, walks.values(), decisions, strict=True):
            assert answer(decision) == references[at.meter.algorithm].take(at, guess=decision)[0]
            walk.last = decision


def _hit(at: At) -> Hit:
    slots = at.meter.algorithm is Algorithm.CONCURRENCY
    return Hit(at.meter.algorithm, at.meter, at.cost, at.holder if slots else None, at.ttl if slots else None)


def _image(store: MemoryStore, algorithm: Algorithm) -> object:
    record = store.table.find(algorithm)
    core = CoreCounter()
    core.state = None if record is None else record[0]
    return core.image()


@given(data=st.data(), algorithm=st.sampled_from(RATES))
def test_the_fast_path_means_the_same_as_the_slow_path(data: st.DataObject, algorithm: Algorithm) -> None:
    """`Limiter.hit`, which has a fast path through the memory store, answers what the store answers."""
    store = StoreCounter()
    limiter = Limiter.open("memory://", clock=store.clock)
    walk = Walk(data.draw(histories(algorithm, do=(Do.TAKE, Do.TAKE, Do.CHANGE), throttle=False)))
    for step in walk:
        at = step._replace(cost=min(step.cost, MAX_AMOUNT))
        STEPS[algorithm] += 1
        walk.last = store.take(at)
        (finding,) = limiter.hit("key", at.meter.limit, at.cost, algorithm=algorithm).findings
        assert Answer(*finding.decision[:5]) == answer(walk.last)
