"""Where the parts of a limit are held, as read from data."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.core.parsing.rule_set import parse_rule_set
from headgate.core.spread import RegionMode, Spread, SpreadMode
from headgate.errors import InvalidRules


def spread(value: Any) -> Spread:  # noqa: ANN401 (data of any shape)
    """The spread of a rule that says this."""
    return parse_rule_set([{"name": "search", "limits": "5/minute", "spread": value}]).rules[0].spread


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, Spread()),
        ("exact", Spread()),
        ("leased", Spread(SpreadMode.LEASED)),
        ("auto", Spread(SpreadMode.AUTO)),
        ({"shards": 8}, Spread(SpreadMode.SHARDS, shards=8)),
        ({"shards": 1024, "regions": None}, Spread(SpreadMode.SHARDS, shards=1024)),
        ({"regions": "central", "home": "eu"}, Spread(SpreadMode.REGIONS, regions=RegionMode.CENTRAL, home="eu")),
        ({"regions": "borrow", "home": "eu-1"}, Spread(SpreadMode.REGIONS, regions=RegionMode.BORROW, home="eu-1")),
        ({"regions": "gossip"}, Spread(SpreadMode.REGIONS, regions=RegionMode.GOSSIP)),
        (
            {"regions": "split", "shares": {"eu": 2, "us": 1}},
            Spread(SpreadMode.REGIONS, regions=RegionMode.SPLIT, shares={"eu": 2, "us": 1}),
        ),
        (
            {"regions": "gossip", "shares": {"eu": 0.5, "us": 0.3, "ap": 0.2}},
            Spread(SpreadMode.REGIONS, regions=RegionMode.GOSSIP, shares={"eu": 5, "us": 3, "ap": 2}),
        ),
    ],
    ids=str,
)
def test_a_spread_is_read(value: object, expected: Spread) -> None:
    """In one place, or in parts, or in regions."""
    assert spread(value) == expected


@pytest.mark.parametrize(
    ("value", "lines"),
    [
        ("wide", ["rules[0].spread: 'wide' is not one of exact, leased, auto, {shards: N}, {regions: …}"]),
        ("shards", ["rules[0].spread: 'shards' is not one of exact, leased, auto, {shards: N}, {regions: …}"]),
        ("", ["rules[0].spread: '' is not one of exact, leased, auto, {shards: N}, {regions: …}"]),
        (8, ["rules[0].spread: expected a mapping with shards, regions, home…, not 8"]),
        ([], ["rules[0].spread: expected a mapping with shards, regions, home…, not []"]),
        (False, ["rules[0].spread: expected a mapping with shards, regions, home…, not False"]),
        ({}, ["rules[0].spread: write either shards or regions, as in {shards: 4} or {regions: gossip}"]),
        ({"home": "eu"}, ["rules[0].spread: write either shards or regions, as in {shards: 4} or {regions: gossip}"]),
        (
            {"shards": 2, "regions": "gossip"},
            ["rules[0].spread: write either shards or regions, as in {shards: 4} or {regions: gossip}"],
        ),
        (
            {"shard": 2},
            [
                "rules[0].spread.shard: unknown field; did you mean 'shards'?",
                "rules[0].spread: write either shards or regions, as in {shards: 4} or {regions: gossip}",
            ],
        ),
        ({"shards": 0}, ["rules[0].spread.shards: expected a whole number from 1 to 1024, not 0"]),
        ({"shards": 1025}, ["rules[0].spread.shards: expected a whole number from 1 to 1024, not 1025"]),
        ({"shards": "8"}, ["rules[0].spread.shards: expected a whole number from 1 to 1024, not '8'"]),
        ({"shards": True}, ["rules[0].spread.shards: expected a whole number from 1 to 1024, not True"]),
        ({"shards": 8, "home": "eu"}, ["rules[0].spread.home: has no effect with shards; leave it out"]),
        ({"shards": 8, "shares": {"eu": 1}}, ["rules[0].spread.shares: has no effect with shards; leave it out"]),
        ({"regions": "moon"}, ["rules[0].spread.regions: 'moon' is not one of central, split, gossip, borrow"]),
        ({"regions": ["eu"]}, ["rules[0].spread.regions: ['eu'] is not one of central, split, gossip, borrow"]),
        ({"regions": "central"}, ["rules[0].spread.home: 'central' needs the home region, as in home: eu"]),
        ({"regions": "borrow"}, ["rules[0].spread.home: 'borrow' needs the home region, as in home: eu"]),
        ({"regions": "central", "home": 5}, ["rules[0].spread.home: expected a text, not 5"]),
        (
            {"regions": "split"},
            ["rules[0].spread.shares: 'split' needs the shares of the regions, as in {eu: 2, us: 1}"],
        ),
        (
            {"regions": "split", "shares": {}},
            ["rules[0].spread.shares: 'split' needs the shares of the regions, as in {eu: 2, us: 1}"],
        ),
        ({"regions": "split", "shares": ["eu"]}, ["rules[0].spread.shares: expected a mapping of names, not ['eu']"]),
        (
            {"regions": "split", "shares": {"eu": 0, "us": True}},
            [
                "rules[0].spread.shares.eu: a share is a whole number from 1 to 1000000000000, or a fraction, not 0",
                "rules[0].spread.shares.us: a share is a whole number from 1 to 1000000000000, or a fraction, not True",
            ],
        ),
        (
            {"regions": "split", "shares": {"eu": 0.5}},
            ["rules[0].spread.shares: write all shares as fractions that add up to 1, or all as whole numbers"],
        ),
        (
            {"regions": "split", "shares": {"eu": 0.5, "us": 1}},
            ["rules[0].spread.shares: write all shares as fractions that add up to 1, or all as whole numbers"],
        ),
        (
            {"regions": "split", "shares": {"eu": 1}, "home": "eu"},
            ["rules[0].spread.home: has no effect with 'split'; leave it out"],
        ),
        (
            {"regions": "central", "shares": {"eu": 1}, "home": "eu"},
            ["rules[0].spread.shares: has no effect with 'central'; leave it out"],
        ),
    ],
    ids=str,
)
def test_a_wrong_spread_is_named(value: object, lines: list[str]) -> None:
    """Whatever is wrong with a spread is said once, with its place."""
    with pytest.raises(InvalidRules) as caught:
        spread(value)
    assert list(caught.value.lines) == lines


@pytest.mark.parametrize("region", ["", "e u", "{eu}", 5, None])
def test_a_region_has_a_plain_name(region: object) -> None:
    """The name of a region follows the same rules as all names."""
    with pytest.raises(InvalidRules, match="is not a name"):
        spread({"regions": "split", "shares": {region: 1}})
    with pytest.raises(InvalidRules, match="rules"):
        spread({"regions": "central", "home": region})
