"""Zipf's law: shares of ranks, and ranks of random numbers."""

from __future__ import annotations

from random import Random

import pytest

from headgate.simulate.topology.population import Zipf


@pytest.mark.parametrize("skew", [0.0, 0.5, 1.0, 1.2])
def test_shares_are_those_of_the_sum(skew: float) -> None:
    """What is integrated behind the first ranks is the sum, to a part in a million."""
    many = 20_000
    total = sum(rank**-skew for rank in range(1, many + 1))
    zipf = Zipf(many, skew)
    assert zipf.share(7) == pytest.approx(7**-skew / total, rel=1e-6)
    for first in (1, 4_096, 4_097, 12_000, many):
        summed = sum(rank**-skew for rank in range(1, first + 1)) / total
        assert zipf.share_of_first(first) == pytest.approx(summed, rel=1e-6)
    assert zipf.share_of_first(0) == 0


@pytest.mark.parametrize("skew", [0.0, 0.8, 1.0, 1.2])
@pytest.mark.parametrize("many", [10, 1_000_000])
def test_ranks_come_as_often_as_their_shares(many: int, skew: float) -> None:
    """Of many random ranks each part of them has its share, and none is outside."""
    zipf, random = Zipf(many, skew), Random(15)
    drawn = [zipf.rank(random.random()) for _ in range(20_000)]
    assert min(drawn) >= 1
    assert max(drawn) <= many
    for first in (1, many // 100, many // 2):
        seen = sum(rank <= first for rank in drawn) / len(drawn)
        assert seen == pytest.approx(zipf.share_of_first(first), abs=0.015)
    assert zipf.rank(1.0) == many
