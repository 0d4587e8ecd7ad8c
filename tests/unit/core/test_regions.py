"""Rules that regions share: what a process cannot do of them, their counters' names, and by how much they err."""

from __future__ import annotations

import re

import pytest

from headgate.core.borrow import over_bound
from headgate.core.keys import spread_mark
from headgate.core.limit import Rate
from headgate.core.meter import Algorithm, Meter
from headgate.core.regions import region_problems
from headgate.core.rule import Rule, RuleSet
from headgate.core.spread import RegionMode, Spread, SpreadMode
from headgate.core.units import MINUTE

LIMITS = (Rate(12, MINUTE),)


def regional(mode: RegionMode, home: str | None = None, **shares: int) -> Spread:
    return Spread(SpreadMode.REGIONS, regions=mode, home=home, shares=shares)


@pytest.mark.parametrize(
    ("spread", "region", "others", "wrong"),
    [
        (regional(RegionMode.GOSSIP), None, [], "this process is of no region; set HEADGATE_REGION"),
        (regional(RegionMode.CENTRAL, "ap"), "eu", ["us"], "the home region 'ap' is not one of .* knows: eu, us"),
        (regional(RegionMode.SPLIT, us=1, ap=2), "eu", ["us"], "the region 'eu' of this process has no share"),
        (regional(RegionMode.GOSSIP), "eu", [], "gossip needs other regions"),
    ],
)
def test_what_a_process_cannot_do(spread: Spread, region: str | None, others: list[str], wrong: str) -> None:
    """Each problem names the rule it is about; rules that no regions share are never one."""
    rules = RuleSet(rules=(Rule("plain", limits=LIMITS), Rule("shared", limits=LIMITS, spread=spread)))
    (problem,) = region_problems(rules, region, others)
    assert problem.field == "rules[1].spread"
    assert re.search(wrong, problem.message)


@pytest.mark.parametrize(
    "spread",
    [
        regional(RegionMode.CENTRAL, "eu"),
        regional(RegionMode.BORROW, "us"),
        regional(RegionMode.SPLIT, eu=1, us=2),
        regional(RegionMode.GOSSIP),
    ],
)
def test_what_a_process_of_a_region_can_do(spread: Spread) -> None:
    """Where the home is known, the region has its share, and there are others, nothing is wrong."""
    assert region_problems(RuleSet(rules=(Rule("shared", limits=LIMITS, spread=spread),)), "eu", ["us"]) == []


@pytest.mark.parametrize(
    ("spread", "mark"),
    [
        (Spread(), ""),
        (Spread(SpreadMode.LEASED), ""),
        *[
            (Spread(SpreadMode.SHARDS, shards=shards), f"|#{parts}")
            for shards, parts in {1: 1, 2: 2, 3: 3, 4: 4, 5: 12, 6: 6, 8: 12, 12: 12, 13: 24, 1_024: 1_032}.items()
        ],
        (regional(RegionMode.GOSSIP), "|@gossip"),
        (regional(RegionMode.BORROW, "us"), "|@borrow.us"),
    ],
)
def test_a_counter_says_where_its_parts_are(spread: Spread, mark: str) -> None:
    """So that one whose rule has changed is another counter."""
    assert spread_mark(spread) == mark


@pytest.mark.parametrize(
    ("algorithm", "most"),
    [(Algorithm.FIXED_WINDOW, 0), (Algorithm.SLIDING_WINDOW_COUNTER, 2), (Algorithm.TOKEN_BUCKET, 2)],
)
def test_borrowing_errs_by_what_fades_while_a_block_is_held(algorithm: Algorithm, most: int) -> None:
    """A fixed window is exact; of the others it is a tenth of the limit, rounded up."""
    assert over_bound(Meter(Rate(12, MINUTE), algorithm)) == most
