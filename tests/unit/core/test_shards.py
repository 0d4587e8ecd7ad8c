"""Names, plans and receipts of counters in parts."""

from __future__ import annotations

import pytest

from headgate.adapters.redis.topology import SLOTS, slot_of
from headgate.core.decision import Decision, Receipt
from headgate.core.keys import companion, without_subject
from headgate.core.limit import Rate
from headgate.core.matching import Snapshot
from headgate.core.meter import Algorithm, Meter
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.core.request import Request
from headgate.core.shard_view import ShardView
from headgate.core.shards import (
    Share,
    forced_plan,
    later_plan,
    part_meters,
    part_names,
    part_receipts,
    plan,
    shards_of,
    written,
)
from headgate.core.units import DAY, MINUTE
from headgate.errors import StoreError
from headgate.testing import FakeClock

NAME = "rl:{g=all}:all:fw1m|#8"
TEN = Meter(Rate(10, MINUTE), Algorithm.FIXED_WINDOW)


def test_a_name_says_how_many_parts_there_are() -> None:
    """Only those of rules that are split; the rest of the name is kept."""
    assert shards_of(NAME) == 8
    assert shards_of("rl:{u=a}:all:fw1m|#12|e=/x") == 12
    assert shards_of("rl:{u=a}:all:fw1m|e=/x") == 0
    assert without_subject(part_names(NAME)[3]) == "all:fw1m"
    assert companion(NAME, "id") == f"{NAME}|~id"


@pytest.mark.parametrize("shards", [1, 3, 8, 100, 1_024])
@pytest.mark.parametrize("tag", ["g=all", "u=a", "u=%7Bb%7D", "a.x=#8"])
def test_each_part_is_in_its_own_stretch_of_the_slots(tag: str, shards: int) -> None:
    """Whatever the subject is, so that no value chooses a slot and no server gets all parts."""
    names = part_names(f"rl:{{{tag}}}:all:fw1m|#{shards}|e=/x")
    assert [slot_of(name) * shards // SLOTS for name in names] == list(range(shards))
    assert all(name.endswith(f"}}:all:fw1m|#{shards}|e=/x") for name in names)
    assert all(name.startswith(f"rl:{{{tag}|#") for name in names)


def test_the_counters_of_a_rule_are_named_by_its_spread() -> None:
    """With an endpoint behind it, or alone."""
    rules = parse_rule_set(
        [
            {"name": "all", "limits": "5/minute", "spread": {"shards": 8}},
            {"name": "each", "per": ["user", "endpoint"], "limits": "5/minute", "spread": {"shards": 2}},
        ]
    )
    plan_of = Snapshot(rules, 1, pytest.fail, FakeClock()).plan(Request(user="a", path="/x"))
    names = [bound.hit.key for bound in plan_of.enforced]
    assert sorted(names) == ["rl:{g=all}:all:sc1m|#12", "rl:{u=a}:each:sc1m|#2|e=/*"]


def test_a_limit_of_fewer_units_has_fewer_parts() -> None:
    """No part is without units; a burst is divided like the amount."""
    assert [each.amount for each in part_meters(TEN, 4)] == [3, 3, 2, 2]
    assert [each.amount for each in part_meters(TEN, 16)] == [1] * 10
    bucket = Meter(Rate(10, MINUTE, 3), Algorithm.TOKEN_BUCKET, 5)
    assert [(each.amount, each.capacity, each.max_delay) for each in part_meters(bucket, 8)] == [
        (4, 1, 5),
        (3, 1, 5),
        (3, 1, 5),
    ]


def test_a_part_of_a_slow_bucket_can_be_filled() -> None:
    """Where a burst takes fifty years to come back, rounding gives no part a longer time."""
    bucket = Meter(Rate(9, 366 * DAY, 450), Algorithm.TOKEN_BUCKET)
    parts = part_meters(bucket, 8)
    assert [each.amount for each in parts] == [2, 1, 1, 1, 1, 1, 1, 1]
    assert [each.capacity for each in parts] == [57, *[50] * 7]


def test_a_cost_is_taken_from_as_few_parts_as_possible() -> None:
    """The first if it has enough, another that has, else several; None if all have too little."""
    assert plan(2, [2, 5, 5], 0) == [Share(0, 2)]
    assert plan(3, [2, 5, 5], 0) == [Share(1, 3)]
    assert plan(3, [2, 5, 5], 2) == [Share(2, 3)]
    assert plan(8, [2, 5, 5], 0) == [Share(1, 5), Share(2, 3)]
    assert plan(12, [2, 5, 5], 0) == [Share(1, 5), Share(2, 5), Share(0, 2)]
    assert plan(5, [0, 5, 0], 0) == [Share(1, 5)]
    assert plan(13, [2, 5, 5], 0) is None
    assert plan(0, [0, 0], 1) == [Share(1, 0)]


def test_what_is_forced_fills_all_parts_and_is_then_shared() -> None:
    """So that no part has room while another is overdrawn."""
    assert forced_plan(5, [2, 3], [3, 3]) == [Share(0, 2), Share(1, 3)]
    assert forced_plan(11, [2, 3], [3, 3]) == [Share(0, 5), Share(1, 6)]
    assert forced_plan(4, [0, 0], [3, 3]) == [Share(0, 2), Share(1, 2)]
    assert forced_plan(0, [1, 1], [3, 3]) == []


def test_what_is_missing_is_awaited_evenly() -> None:
    """Each part is to have its share of it more."""
    assert later_plan(6, [1, 1], [5, 5]) == [Share(0, 3), Share(1, 3)]
    assert later_plan(9, [4, 0], [5, 5]) == [Share(0, 5), Share(1, 4)]


def test_a_receipt_credits_the_last_parts_first_and_uses_all_up() -> None:
    """What is given back of a part of it is credited in one part, and the others are used up with nothing."""
    stamp = written([Share(0, 2), Share(1, 0), Share(3, 1)], [60, 60, 60])
    assert stamp == "0:2:60 3:1:60"
    receipt = Receipt(NAME.replace("#8", "#4"), TEN, stamp, 2, "id")
    names = part_names(receipt.key)
    assert [(each.key, each.stamp, each.amount) for each in part_receipts(receipt)] == [
        (names[3], 60, 1),
        (names[0], 60, 1),
    ]
    bucket = Meter(Rate(10, MINUTE), Algorithm.TOKEN_BUCKET)
    (one,) = part_receipts(Receipt(receipt.key, bucket, written([Share(2, 1)], [(5, 7)]), 1, "id"))
    assert one.stamp == (5, 7)
    whole = receipt._replace(stamp=60)
    assert part_receipts(whole) == [whole]


def test_a_view_knows_what_it_heard() -> None:
    """Unknown parts are full, silent ones have nothing, and what is old is asked again."""
    view = ShardView(NAME.replace("#8", "#2"), TEN)
    assert view.stale(0) == [0, 1]
    view.note({0: Decision(True, 1, 50, 0, 0, 60, 100)})  # noqa: FBT003 (the first field)
    assert view.rooms(100) == [1, 5]
    assert view.rooms(150) == [5, 5]
    assert view.stale(100) == [1]
    view.raise_outage()
    view.note_down(1, 500, StoreError("no answer", transient=True))
    assert view.rooms(100) == [1, 0]
    assert view.up(499) == [0]
    with pytest.raises(StoreError, match="1 of 2 shards of a counter unavailable: no answer"):
        view.raise_outage()
    assert view.up(500) == [0, 1]
