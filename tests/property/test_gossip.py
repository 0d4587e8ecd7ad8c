"""Ledgers of regions: what is heard can be heard twice, late or in any order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headgate.core.borrow import block_size
from headgate.core.gossip import NOTHING, RegionCount, RegionCounts, merged, over_bound, owed, total
from headgate.core.limit import Rate
from headgate.core.meter import Algorithm, Meter
from headgate.core.regions import equal_shares, read_share_stamp, share_meter, share_stamp
from headgate.core.units import MAX_AMOUNT, MINUTE

ENTRIES = st.builds(RegionCount, st.integers(0, 3), st.integers(0, 50))
LEDGERS: st.SearchStrategy[RegionCounts] = st.dictionaries(st.sampled_from(["ap", "eu", "us"]), ENTRIES)


@given(LEDGERS, LEDGERS, LEDGERS)
def test_merging_is_idempotent_commutative_and_associative(
    one: RegionCounts, two: RegionCounts, three: RegionCounts
) -> None:
    """In whatever order and however often ledgers are heard of, the same is known."""
    assert merged(one, one) == one
    assert merged(one, two) == merged(two, one)
    assert merged(merged(one, two), three) == merged(one, merged(two, three))
    assert merged(one, merged(one, two)) == merged(one, two)


@given(LEDGERS, LEDGERS, st.integers(0, 3))
def test_what_is_known_never_shrinks_within_a_period(one: RegionCounts, two: RegionCounts, period: int) -> None:
    """A merge knows at least as much of a period as each of two, unless a region has gone on to a later one."""
    both = merged(one, two)
    assert all(both[region] >= ledger[region] for ledger in (one, two) for region in ledger)
    if all(entry.period == period for entry in both.values()):
        assert total(both, period) >= max(total(one, period), total(two, period))


@given(st.lists(ENTRIES, max_size=8))
def test_what_is_owed_is_added_once(heard: list[RegionCount]) -> None:
    """Adding what is owed after each message adds up to the newest of each period, in whatever order they come."""
    known, added, sums = NOTHING, NOTHING, {}
    for entry in heard:
        known = max(known, entry)
        if known.period > added.period:
            added = RegionCount(known.period, 0)
        units = owed(known, added)
        assert units >= 0
        added = RegionCount(added.period, added.units + units)
        sums[added.period] = added.units
    for period, count in sums.items():
        assert count <= max((entry.units for entry in heard if entry.period == period), default=0)


@given(st.integers(1, MAX_AMOUNT), st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 1_000), min_size=1))
def test_shares_add_up_to_the_limit(amount: int, shares: dict[str, int]) -> None:
    """Whatever the rounding; a region without a share has nothing."""
    meter = Meter(Rate(amount, MINUTE), Algorithm.FIXED_WINDOW)
    parts = [share_meter(meter, shares, region) for region in shares]
    assert sum(0 if part is None else part.amount for part in parts) == amount
    assert share_meter(meter, shares, "elsewhere") is None
    for part in parts:
        if part is not None:
            again, stamp = read_share_stamp(meter, share_stamp(part, 60))
            assert (again.amount, again.capacity, stamp) == (part.amount, part.capacity, 60)
    assert equal_shares("ab") == {"a": 1, "b": 1}


@given(st.integers(0, 10_000), st.integers(0, MINUTE), st.integers(0, MAX_AMOUNT), st.integers(2, 10))
def test_a_block_is_never_more_than_a_part_of_what_is_left(spent: int, elapsed: int, left: int, regions: int) -> None:
    """And never less than a unit."""
    size = block_size(spent, elapsed, left, regions)
    assert size == 1 or size <= left // (2 * regions)


def test_the_bound_of_gossip_is_what_the_others_admit_meanwhile() -> None:
    """In an interval and a round trip; while a region is cut off, in three intervals more."""
    assert over_bound([100, 50], 1, 0.08) == 150 * 1.16
    assert over_bound([100], 1, 0, is_cut=True) == 400
