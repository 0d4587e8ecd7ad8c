"""A clock that steps back: nothing is refilled by it, and no request waits longer than a period for it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.counters import CoreCounter
from tests.property.histories import Jump, Walk, histories, longest_ttl

from headgate.core.meter import Algorithm, Meter

EVERY_ALGORITHM = pytest.mark.parametrize("algorithm", Algorithm)
BACK_AND_FORTH = (*Jump, *(jump for jump in Jump if jump.name.startswith("BACK")))


@EVERY_ALGORITHM
@given(data=st.data())
def test_a_step_back_refills_nothing(algorithm: Algorithm, data: st.DataObject) -> None:
    """When the clock steps back, no more is left than there was before."""
    core, walk, before = CoreCounter(), Walk(data.draw(histories(algorithm, jumps=BACK_AND_FORTH))), 0
    for at in walk:
        if at.now < before:
            left = core.look(at, now=before, cost=0).remaining
            assert core.look(at, cost=0).remaining <= left
        walk.last, before = core.take(at), at.now


@EVERY_ALGORITHM
@given(data=st.data())
def test_a_step_back_blocks_no_request_for_longer(algorithm: Algorithm, data: st.DataObject) -> None:
    """However the clock steps, a refused request waits no longer than without that, and passes when it was told."""
    core, walk = CoreCounter(), Walk(data.draw(histories(algorithm, jumps=BACK_AND_FORTH)))
    for at in walk:
        walk.last = decision = core.take(at)
        if decision.retry_after:
            assert decision.retry_after <= longest_wait(at.meter, at.now, at.cost)
            assert not core.look(at, now=at.now + decision.retry_after - 1).allowed
            assert core.look(at, now=at.now + decision.retry_after).allowed


def longest_wait(meter: Meter, now: int, cost: int) -> int:
    """The longest possible wait for a cost, if the whole limit was taken at this instant."""
    period, amount = meter.period, meter.amount
    match meter.algorithm:
        case Algorithm.FIXED_WINDOW:
            return period - now % period
        case Algorithm.SLIDING_WINDOW_LOG:
            return period
        case Algorithm.SLIDING_WINDOW_COUNTER:
            # To the end of the window, then one unit of it after the other leaves the view: for a
            # cost of 1 that is a microsecond after the boundary, for the whole limit a period after.
            return period - now % period + 1 + (cost - 1) * period // amount
        case Algorithm.TOKEN_BUCKET:
            return -(-cost * period // amount)
        case Algorithm.LEAKY_BUCKET:
            return -(-meter.capacity * period // amount)
        case Algorithm.CONCURRENCY:
            return longest_ttl(meter)


@EVERY_ALGORITHM
@given(data=st.data())
def test_one_request_waits_a_period_at_most(algorithm: Algorithm, data: st.DataObject) -> None:
    """Whatever the clock did, a request of cost 1 passes within one period (sliding counter: and a microsecond)."""
    core, walk = CoreCounter(), Walk(data.draw(histories(algorithm, jumps=BACK_AND_FORTH, throttle=False)))
    for at in walk:
        walk.last = core.take(at)
        if at.meter.capacity * at.meter.period > at.meter.max_delay * at.meter.amount > 0:
            return  # a queue of more than a thousand years is shortened to that
        decision = core.look(at, cost=1)
        period = longest_ttl(at.meter) if algorithm is Algorithm.CONCURRENCY else at.meter.period
        assert decision.retry_after is not None
        assert decision.retry_after <= period + (algorithm is Algorithm.SLIDING_WINDOW_COUNTER)
