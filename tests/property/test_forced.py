"""What was used already is counted past the limit, and all other requests wait until it fits again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.counters import ReferenceCounter, StoreCounter, answer
from tests.property.histories import CLOSE, RATES, Do, Walk, histories
from tests.property.references import Admission

if TYPE_CHECKING:
    from headgate.core.meter import Algorithm


@pytest.mark.parametrize("algorithm", RATES)
@given(data=st.data())
def test_a_forced_cost_counts_in_full(algorithm: Algorithm, data: st.DataObject) -> None:
    """A forced hit always passes, and later ones are answered by the definition with it in the history."""
    reference, store = ReferenceCounter(algorithm), StoreCounter()
    history = histories(algorithm, do=(Do.TAKE, Do.TAKE, Do.TAKE, Do.FORCE), jumps=CLOSE)
    walk = Walk(data.draw(history))
    for step in walk:
        at = step._replace(cost=max(1, step.cost))
        if at.do is Do.FORCE:
            walk.last = store.take(at, forced=True)
            reference.reference.record(Admission(at.now, at.cost, at.meter))
            assert walk.last.allowed
            assert walk.last.remaining == reference.reference.left(at.meter, at.now)
            continue
        walk.last = store.take(at)
        assert answer(walk.last) == reference.take(at, guess=walk.last)[0]
