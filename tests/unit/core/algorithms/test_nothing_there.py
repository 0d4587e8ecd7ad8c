from __future__ import annotations

import pytest

from headgate.core.limit import Rate
from headgate.core.meter import Algorithm, Meter
from headgate.core.units import MINUTE

NOW = 1_800_000_000_000_000
RATES = [algorithm for algorithm in Algorithm if algorithm is not Algorithm.CONCURRENCY]


@pytest.mark.parametrize("algorithm", RATES)
def test_a_receipt_for_a_counter_that_is_gone_brings_nothing_back(algorithm: Algorithm) -> None:
    """Giving back to a counter that was reset or has expired makes no counter."""
    meter = Meter(Rate(10, MINUTE), algorithm)
    stamp = (NOW, MINUTE) if algorithm in {Algorithm.TOKEN_BUCKET, Algorithm.LEAKY_BUCKET} else NOW
    assert meter.give_back(None, meter, NOW, stamp, 1) is None


@pytest.mark.parametrize("algorithm", RATES)
def test_a_first_charge_counts(algorithm: Algorithm) -> None:
    """What is charged to a counter that was never used is counted, also past the limit."""
    meter = Meter(Rate(10, MINUTE), algorithm)
    assert meter.charge is not None
    state = meter.charge(None, meter, NOW, 25)
    if meter.commit is not None:
        state = meter.commit(None, meter, state)
    _, allowed, remaining, *_ = meter.decide(state, meter, NOW, 1)
    assert (allowed, remaining) == (False, 0)
