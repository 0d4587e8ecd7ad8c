"""The long-run rate of the token bucket, from one a day to a million a second."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.counters import CoreCounter
from tests.property.histories import STEPS, At, Do
from tests.property.references import rate

from headgate.core.limit import Rate
from headgate.core.meter import Algorithm, Meter
from headgate.core.units import DAY, HOUR, MAX_WAIT, MINUTE, SECOND
from headgate.testing.clock import NEW_YEAR

RATES = [
    *((1, DAY), (3, DAY), (7, HOUR), (1, MINUTE), (11, MINUTE), (1, SECOND), (7, SECOND), (60, SECOND)),
    *((999, SECOND), (300_000, SECOND), (333_333, SECOND), (999_999, SECOND), (1_000_000, SECOND)),
]
EVERY_RATE = pytest.mark.parametrize(("amount", "period"), RATES, ids=str)
ONE_IN_A_MILLION = Fraction(1, 10**6)


@EVERY_RATE
@given(polls=st.lists(st.integers(0, 10**6), min_size=20, max_size=60), noise=st.integers(0, SECOND))
def test_the_long_run_rate_is_the_nominal_one(amount: int, period: int, polls: list[int], noise: int) -> None:
    """A client that takes all there is, at whatever instants, gets the rate to one in a million and never more."""
    burst = min(10**6, MAX_WAIT * amount // period)
    meter = Meter(Rate(amount, period, burst), Algorithm.TOKEN_BUCKET)
    almost_full = (burst - 1) * period // amount
    core, now, taken = CoreCounter(), NEW_YEAR + noise, 0
    assert core.take(At(Do.TAKE, now, meter, burst)).allowed
    # The bucket is polled often enough never to overflow, so that nothing is lost.
    for poll in (*polls, *[10**6] * (10**6 // burst + 2)):
        STEPS[Algorithm.TOKEN_BUCKET] += 1
        now += poll * almost_full // 10**6
        cost = core.look(At(Do.TAKE, now, meter, 0)).remaining
        assert core.take(At(Do.TAKE, now, meter, cost)).allowed
        taken += cost
    earned = (now - NEW_YEAR - noise) * rate(meter)
    assert earned - 1 < taken <= earned
    assert earned * (1 - ONE_IN_A_MILLION) <= taken


@EVERY_RATE
@given(noise=st.integers(0, 10 * SECOND), burst=st.integers(2, 5))
def test_a_patient_client_gets_every_token_on_time(amount: int, period: int, noise: int, burst: int) -> None:
    """A client that waits exactly `retry_after` gets the n-th token after the burst n intervals later, not 1 µs off.

    A burst of 1 leaves no room for what is earned between the token and the next whole
    microsecond: there, each wait may be up to a microsecond longer than the interval.
    """
    meter = Meter(Rate(amount, period, burst), Algorithm.TOKEN_BUCKET)
    core, start = CoreCounter(), NEW_YEAR + noise
    assert core.take(At(Do.TAKE, start, meter, burst)).allowed
    now = start
    for number in range(1, 20):
        STEPS[Algorithm.TOKEN_BUCKET] += 1
        refused = core.take(At(Do.TAKE, now, meter, 1))
        if not refused.allowed:
            assert refused.retry_after is not None
            now += refused.retry_after
            assert core.take(At(Do.TAKE, now, meter, 1)).allowed
        assert now == start + -(-number * period // amount)
