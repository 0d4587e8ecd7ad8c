"""Rules made in Python: as data, and checked like rules from a file."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.support.rule_sets import RULE_SETS

from headgate.core.address import parse_network
from headgate.core.failure_policy import OnShortfall, OnStoreError
from headgate.core.limit import Rate, parse_limit
from headgate.core.meter import Algorithm
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.core.rule import Action, Match, Response, Rule
from headgate.core.rule_data import brief_rule, brief_rule_set, complete_rule, complete_tier, rule_data
from headgate.core.spread import RegionMode, Spread, SpreadMode
from headgate.core.units import MINUTE, SECOND
from headgate.errors import InvalidRules

LIMITS = (Rate(5, MINUTE),)
RULES = [
    Rule("plain", limits=LIMITS, layer="global"),
    Rule("tiered", tier_limit="search", layer="global"),
    Rule("in-parts", limits=LIMITS, layer="global", spread=Spread(SpreadMode.SHARDS, shards=8)),
    Rule(
        "in-regions",
        limits=LIMITS,
        layer="global",
        spread=Spread(SpreadMode.REGIONS, regions=RegionMode.SPLIT, shares=MappingProxyType({"eu": 2, "us": 1})),
    ),
    Rule(
        "at-home",
        limits=LIMITS,
        layer="global",
        spread=Spread(SpreadMode.REGIONS, regions=RegionMode.CENTRAL, home="eu"),
    ),
    Rule("gate", action=Action.BLOCK, layer="global", response=Response(451, "Not here.")),
    Rule(
        "full",
        per=("user", "attribute:region"),
        limits=(parse_limit("5/second burst 9"), parse_limit("100/hour")),
        match=Match(
            ("/api/search", "/users/{id}", "/a?b", "/100%25", "/v1/*", "/caf\u00e9", "/\udcff"),
            ("GET", "POST"),
            ("free",),
            (parse_network("10.0.0.0/8"), parse_network("2001:db8::/32")),
            (("app", "web"), ("region", "eu")),
        ),
        layer="extra",
        algorithm=Algorithm.TOKEN_BUCKET,
        cost=MappingProxyType({"POST": 5, "default": 0}),
        action=Action.THROTTLE,
        max_delay=1_500_000,
        on_store_error=OnStoreError.LOCAL,
        wait_replicas=1,
        on_shortfall=OnShortfall.DENY,
        sample=1,
        priority=-5,
        response=Response(503, "Slow\ndown.", 3 * SECOND),
        enabled=False,
    ),
    Rule(
        "at-once",
        limits=LIMITS,
        layer="global",
        algorithm=Algorithm.TOKEN_BUCKET,
        action=Action.THROTTLE,
        max_delay=0,
    ),
]
TIERS = {"free": {"limits": {"search": "1/day"}}}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_as_data_is_read_as_the_same_rule(rule: Rule) -> None:
    """A rule survives being written as data and read."""
    assert parse_rule_set({"tiers": TIERS, "rules": [rule_data(rule)]}).rules == (rule,)
    assert parse_rule_set({"tiers": TIERS, "rules": [rule]}).rules == (rule,)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_survives_in_full_and_in_brief(rule: Rule) -> None:
    """Neither the form that is stored nor the one that people write says anything else."""
    for data in (complete_rule(rule), brief_rule(rule)):
        assert parse_rule_set({"tiers": TIERS, "rules": [data]}).rules == (rule,)
        assert "None" not in str(data)


@pytest.mark.untraced
@settings(max_examples=100, deadline=None)
@given(RULE_SETS)
def test_rule_sets_survive_in_full_and_in_brief(data: dict[str, Any]) -> None:
    """A rule set is read the same from each of its forms, and equal rules have equal forms."""
    made = parse_rule_set(data)
    brief = brief_rule_set(made)
    assert parse_rule_set(brief) == made
    assert brief_rule_set(parse_rule_set(brief)) == brief
    full = [complete_rule(rule) for rule in made.rules]
    tiers = {name: complete_tier(tier) for name, tier in made.tiers.items()}
    assert parse_rule_set({"tiers": tiers, "default_tier": made.default_tier, "rules": full}) == made


def test_what_goes_without_saying_is_left_out() -> None:
    """The brief form is what a person would write."""
    rules = [
        {"name": "search", "per": "user", "limits": ["100/hour"], "priority": 100, "match": {"methods": ["get"]}},
        {"name": "gate", "action": "block", "response": {"status": 403}, "enabled": False},
        {"name": "wait", "limits": "5/minute", "algorithm": "token_bucket", "action": "throttle", "max_delay": "2s"},
    ]
    tiers = {"free": {"price": 0.0}, "premium": {"price": 49.0, "limits": {"a": ["1/hour"]}}}
    assert brief_rule_set(parse_rule_set({"tiers": tiers, "rules": rules})) == {
        "default_tier": "free",
        "tiers": {"free": {}, "premium": {"price": 49, "limits": {"a": "1/hour"}}},
        "rules": [
            {"name": "search", "match": {"methods": ["GET"]}, "per": ["user"], "limits": "100/hour"},
            {"name": "gate", "action": "block", "enabled": False},
            {"name": "wait", "limits": "5/minute", "algorithm": "token_bucket", "action": "throttle"},
        ],
    }
    assert brief_rule_set(parse_rule_set([])) == {"rules": []}


@given(st.text() | st.lists(st.sampled_from(["/", "a", "%25", "%00", "%ff", "%3F", "%23", "%", "%c3%a9"])).map("".join))
def test_every_endpoint_survives(path: str) -> None:
    """An endpoint that was read from a file means the same when it is written and read again."""
    data: dict[str, Any] = {"name": "search", "limits": "5/minute", "match": {"endpoints": [f"/{path}"]}}
    try:
        made = parse_rule_set([data]).rules[0]
    except InvalidRules:
        assume(condition=False)
    assert parse_rule_set([made]).rules == (made,)


def test_rules_made_in_python_get_their_layer() -> None:
    """A rule made in Python that names no layer gets the default one."""
    rule = Rule("search", per=("user",), limits=LIMITS, match=Match(endpoints=("/api",)))
    assert parse_rule_set([rule]).rules[0].layer == "user@endpoint"


def test_a_default_layer_may_be_of_any_length() -> None:
    """A rule that counts per many attributes has a long default layer, and survives as well."""
    per = [f"attribute:{letter * 64}" for letter in "abcdefgh"]
    made = parse_rule_set([{"name": "search", "per": per, "limits": "5/minute"}]).rules[0]
    assert parse_rule_set([made]).rules == (made,)


def test_rules_made_in_python_are_spelled_out() -> None:
    """Patterns and methods of a rule made in Python are brought to the spelling that requests are matched by."""
    rule = Rule("search", limits=LIMITS, match=Match(endpoints=("/api/search/",), methods=("get",)))
    assert parse_rule_set([rule]).rules[0].match == Match(("/api/search",), ("GET",))


def test_a_throttling_rule_made_in_python_has_the_usual_delay() -> None:
    """Where a rule made in Python says nothing about the delay, it is the same as in a file."""
    rule = Rule("search", limits=LIMITS, algorithm=Algorithm.TOKEN_BUCKET, action=Action.THROTTLE)
    assert parse_rule_set([rule]).rules[0].max_delay == 2 * SECOND


@pytest.mark.parametrize(
    ("rule", "line"),
    [
        (Rule("a b", limits=LIMITS), "rules[0].name: 'a b' is not a name"),
        (Rule("a}:{b", limits=LIMITS), "rules[0].name: 'a}:{b' is not a name"),
        (Rule("a"), "rules[0].limits: a rule needs limits"),
        (Rule("a", limits=(Rate(0, MINUTE),)), "rules[0].limits: '0/minute' would refuse everything"),
        (Rule("a", limits=(Rate(5, 0),)), "rules[0].limits: '0w' is out of range"),
        (Rule("a", limits=(Rate(5, -MINUTE),)), "rules[0].limits: '-1m' is not a duration"),
        (Rule("a", limits=("5/minute burst 2",)), "rules[0].limits: '5/minute burst 2' has a burst"),  # type: ignore[arg-type] # wrong on purpose
        (Rule("a", limits=LIMITS, per=("usr",)), "rules[0].per[0]: 'usr' is not something to count per"),
        (Rule("a", limits=LIMITS, match=Match(("api",))), "rules[0].match.endpoints[0]: 'api' does not start with '/'"),
        (Rule("a", limits=LIMITS, sample=2), "rules[0].sample: expected a number from 0 to 1, not 2"),
        (Rule("a", limits=LIMITS, response=Response(200)), "rules[0].response.status: expected a whole number"),
        (
            Rule("a", limits=LIMITS, spread=Spread(SpreadMode.REGIONS)),
            "rules[0].spread: write either shards or regions, as in {shards: 4} or {regions: gossip}",
        ),
        (Rule("a", limits=LIMITS, algorithm=Algorithm.CONCURRENCY), "rules[0].limits: concurrency needs a limit"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_rules_made_in_python_are_checked_like_all_others(rule: Rule, line: str) -> None:
    """A rule made in Python that a file could not say is refused with the same sentence."""
    with pytest.raises(InvalidRules) as caught:
        parse_rule_set([rule])
    assert caught.value.lines[0].startswith(line)


def test_a_field_that_the_version_before_does_not_know_is_written_only_where_it_is_used() -> None:
    """During an upgrade both versions read what either has stored, and the older one refuses unknown fields.

    These are the fields of the first version. A new field does not belong here: `rule_data` leaves it out by default.
    """
    first = {"name", "match", "per", "limits", "algorithm", "cost", "action", "on_store_error", "on_overload", "spread"}
    first |= {"wait_replicas", "sample", "priority", "response", "enabled"}
    plain = complete_rule(Rule("plain", limits=LIMITS))
    assert plain.keys() == first
    assert (plain["match"].keys(), plain["response"].keys()) == ({"attributes"}, {"status", "retry_after"})
    assert complete_rule(Rule("strict", limits=LIMITS, on_shortfall=OnShortfall.DENY))["on_shortfall"] == "deny"
