"""Giving back entries of a log: only those of the receipt's own instant."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headgate.core.algorithms import sliding_window_log
from headgate.core.limit import Rate
from headgate.core.meter import Algorithm, Meter
from headgate.core.units import MINUTE

if TYPE_CHECKING:
    from headgate.core.algorithms.sliding_window_log import Ring

METER = Meter(Rate(10, MINUTE), Algorithm.SLIDING_WINDOW_LOG)


@pytest.mark.parametrize(("amount", "left"), [(1, 4), (2, 3), (3, 3), (9, 3)])
def test_entries_of_other_instants_stay(amount: int, left: int) -> None:
    """A receipt for more than was counted at its instant takes nothing from the requests before and behind it."""
    state: Ring | None = None
    for at, cost in ((100, 2), (200, 2), (300, 1)):
        charged = sliding_window_log.charge(state, METER, at, cost)
        state = sliding_window_log.commit(state, METER, charged)
    state = sliding_window_log.give_back(state, METER, 400, 200, amount)
    assert state is not None
    kept = [at for at in state.in_order() if at > 0]
    assert len(kept) == left
    assert [at for at in kept if at != 200] == [100, 100, 300]
