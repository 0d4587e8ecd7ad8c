"""How long things took, in buckets."""

from __future__ import annotations

import pytest

from headgate.core.histogram import BUCKETS, added, bounds, bucket_of, histogram, quantile


def test_buckets_follow_each_other_without_a_gap() -> None:
    """Each begins where the one before ends, and what is at its edges is in it."""
    end = 0
    for bucket in range(BUCKETS):
        low, high = bounds(bucket)
        assert low == end
        assert bucket_of(low) == bucket_of(high - 1) == bucket
        end = high
    assert end == 2**27


@pytest.mark.parametrize(("micros", "bucket"), [(-5, 0), (0, 0), (2**27, BUCKETS - 1), (10**15, BUCKETS - 1)])
def test_what_is_out_of_range_is_in_the_first_or_last_bucket(micros: int, bucket: int) -> None:
    """A clock that went back and a decision that took minutes are counted too."""
    assert bucket_of(micros) == bucket


def test_buckets_are_narrow() -> None:
    """From four microseconds on, none is wider than a quarter of where it begins."""
    assert all(high - low <= low / 4 for low, high in map(bounds, range(4, BUCKETS)))


def test_a_histogram_is_as_short_as_it_can_be() -> None:
    """What comes after the last bucket with something in it is left out, also when histograms are added."""
    assert histogram([]) == []
    assert histogram([(2, 3), (0, 1), (2, 1)]) == [1, 0, 4]
    assert added([1], [0, 0, 2]) == added([0, 0, 2], [1]) == [1, 0, 2]


def test_quantiles() -> None:
    """They lie evenly within a bucket, and there are none of nothing."""
    assert quantile([], 0.5) is None
    assert quantile([0, 0], 0.5) is None
    assert quantile([0, 4], 0.5) == 1.5
    assert quantile([1, 0, 1], 1.0) == 3.0
    assert quantile([1, 0, 1], 0.0) == 0.0
