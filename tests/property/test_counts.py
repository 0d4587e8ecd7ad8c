"""Rows of the tables equal a recount of single requests."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from tests.support.recounts import batches, metrics_of, usage_of

from headgate.core.counts import OTHER, added_up, cut, usage_columns
from headgate.core.histogram import BUCKETS, added, bounds, bucket_of, histogram, quantile
from headgate.core.metric_rows import Known, MetricRow, RowBounds, metric_rows

if TYPE_CHECKING:
    from headgate.core.counts import CountBatch


@given(batches())
def test_rows_of_minutes_equal_a_recount(batch: CountBatch) -> None:
    """Each request is in every row that it belongs to, once; and each place has one row."""
    rows = metric_rows(batch)
    assert len({row[:5] for row in rows}) == len(rows)
    found: Counter[tuple[object, ...]] = Counter()
    for row in rows:
        place = (*row[:4], batch.region, row.user)
        for name in MetricRow._fields[5:12]:
            found[*place, name] += getattr(row, name)
        for bucket, times in enumerate(row.latency):
            found[*place, bucket] += times
    assert +found == metrics_of([batch])


@given(
    st.lists(batches(), min_size=1, max_size=5),
    st.builds(RowBounds, endpoints=st.integers(0, 3), series=st.integers(0, 8), users=st.integers(0, 3)),
)
def test_however_batches_come_minutes_are_bounded_and_exact(several: list[CountBatch], most: RowBounds) -> None:
    """No minute has more rows than it may have over all batches, and for each rule all numbers add up exactly."""
    rows: dict[int, set[tuple[str, ...]]] = {}
    found: Counter[tuple[object, ...]] = Counter()
    of_users: Counter[tuple[object, ...]] = Counter()
    for batch in several:
        known = {
            minute: Known(
                {(rule, endpoint, tier) for rule, endpoint, tier, user in series if not user},
                {place[3] for place in series} - {""},
            )
            for minute, series in rows.items()
        }
        for row in metric_rows(batch, known, most):
            rows.setdefault(row.minute, set()).add(row[1:5])
            for name in MetricRow._fields[5:12]:
                (of_users if row.user else found)[row.minute, row.rule, row.user, name] += getattr(row, name)
            for bucket, times in enumerate(row.latency):
                found[row.minute, row.rule, "", bucket] += times
    wanted: Counter[tuple[object, ...]] = Counter()
    by_user: Counter[tuple[object, ...]] = Counter()
    for (minute, rule, *_, who, what), number in metrics_of(several).items():
        (by_user if who else wanted)[minute, rule, who, what] += number
    assert +found == wanted
    assert all(number <= by_user[place] for place, number in of_users.items())
    for series in rows.values():
        assert len({place[1] for place in series if not place[3]} - {"", OTHER}) <= most.endpoints
        assert sum(1 for place in series if place[3]) <= most.users
        assert sum(1 for place in series if not place[3]) <= most.series + len({place[0] for place in series})


@given(batches())
def test_rows_of_days_equal_a_recount(batch: CountBatch) -> None:
    """A user is billed what was admitted, whatever the number of limits; requests without a user are there too."""
    columns = usage_columns(batch)
    series = [*zip(columns.days, columns.rules, columns.users, strict=True)]
    assert series == sorted(set(series))
    found: Counter[tuple[object, ...]] = Counter()
    for name, numbers in (("requests", columns.requests), ("denied", columns.denied), ("cost", columns.costs)):
        for (day, rule, user), number in zip(series, numbers, strict=True):
            found[day, user, rule, name] = number
    assert +found == usage_of([batch])


@given(batches(), st.integers(1, 5))
def test_what_is_cut_adds_up_to_the_same(batch: CountBatch, most: int) -> None:
    """However counts are cut into batches, no row has more or less."""
    parts = [batch._replace(counts=part, latencies=[]) for part in cut(batch.counts, most)]
    assert sum(part.size for part in parts) == batch.size - len(batch.latencies)
    assert metrics_of(parts) == metrics_of([batch._replace(latencies=[])])
    assert usage_of(parts) == usage_of([batch])


@given(st.lists(batches(), min_size=1, max_size=4))
def test_what_is_added_up_is_the_same(several: list[CountBatch]) -> None:
    """However many batches are stored together, no row has more or less, and what is alike is there once."""
    several = [batch._replace(region="eu") for batch in several]
    together = added_up(several)
    assert metrics_of([together]) == metrics_of(several)
    assert usage_of([together]) == usage_of(several)
    if len(several) > 1:
        assert len({(count.minute, *count[2:]) for count in together.counts}) == len(together.counts)
        assert len({each[:-1] for each in together.latencies}) == len(together.latencies)


@given(st.lists(st.integers(0, 2**28), min_size=1), st.integers(1, 100))
def test_a_quantile_lies_in_the_bucket_of_the_true_one(micros: list[int], percent: int) -> None:
    """However times are spread, the answer is right to the width of a bucket."""
    counts = histogram((bucket_of(each), 1) for each in micros)
    assert sum(counts) == len(micros)
    place, ordered = -(-percent * len(micros) // 100) - 1, sorted(micros)
    low, _ = bounds(bucket_of(ordered[place]))
    _, high = bounds(bucket_of(ordered[min(place + 1, len(micros) - 1)]))  # 0.07 of 100 is a little more than 7
    found = quantile(counts, percent / 100)
    assert found is not None
    assert low <= found <= high


@given(st.lists(st.integers(0, BUCKETS - 1)), st.lists(st.integers(0, BUCKETS - 1)))
def test_histograms_of_several_processes_are_those_of_one(one: list[int], other: list[int]) -> None:
    """Adding counts up is the same as having counted everything in one place."""
    together = histogram((bucket, 1) for bucket in one + other)
    for first, second in ((one, other), (other, one)):
        found = added(histogram((b, 1) for b in first), histogram((b, 1) for b in second))
        assert found == together
