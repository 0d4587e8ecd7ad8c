"""Rules that no request reaches are named, with the rule that comes before them; no other rule is."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.core.parsing.rule_set import parse_rule_set
from headgate.core.rule_reach import never_admitting, reach_of


def rule(name: str, match: dict[str, Any] | None = None, **fields: object) -> dict[str, Any]:
    """A rule of one layer."""
    usual = {} if fields.get("action") in {"allow", "block"} else {"layer": "one", "limits": "5/minute"}
    return {"name": name, "match": match or {}, **usual, **fields}


def unreached(*rules: dict[str, Any], tiers: dict[str, Any] | None = None, stored: bool = False) -> dict[str, Any]:
    """The rules that no request reaches, and by which other rule."""
    data = {"rules": list(rules), **({} if tiers is None else {"tiers": tiers})}
    reach = reach_of(parse_rule_set(data, stored=stored))
    assert reach.is_complete
    return {each.rule: each.by for each in reach.unreached}


HIDDEN = [
    (rule("a", priority=10), rule("b")),
    (rule("a", priority=10), rule("b", {"endpoints": ["/x"], "methods": ["GET"]})),
    (rule("a", {"endpoints": ["/x/*"]}, priority=10), rule("b", {"endpoints": ["/x/y", "/x/{id}/z", "/x/*"]})),
    (rule("a", {"endpoints": ["/x/*"]}, priority=10), rule("b", {"endpoints": ["/x"]})),
    (rule("a", {"endpoints": ["/x/{id}"]}, priority=10), rule("b", {"endpoints": ["/x/y"]})),
    (rule("a", {"endpoints": ["/x/{id}"]}), rule("b", {"endpoints": ["/x/{name}"]})),
    (
        rule("a", {"endpoints": ["/X"], "case_sensitive": False}),
        rule("b", {"endpoints": ["/x"], "case_sensitive": False}),
    ),
    (rule("a", {"methods": ["GET"]}, priority=10), rule("b", {"methods": ["HEAD"]})),
    (rule("a", {"methods": ["GET", "POST"]}, priority=10), rule("b", {"methods": ["POST"]})),
    (rule("a", {"tiers": ["free", "pro"]}, priority=10), rule("b", {"tiers": ["pro"]})),
    (rule("a", {"ip_ranges": ["10.0.0.0/8"]}, priority=10), rule("b", {"ip_ranges": ["10.1.0.0/16"]})),
    (rule("a", {"attributes": {"x": "1"}}, priority=10), rule("b", {"attributes": {"x": "1", "y": "2"}})),
    (rule("a", action="log"), rule("b", action="log")),
    (rule("a", action="allow"), rule("b", {"endpoints": ["/x"]})),
    (rule("a", {"endpoints": ["/x/*"]}, action="block"), rule("b", {"endpoints": ["/x/y"]})),
    (rule("a", action="block"), rule("b", action="allow")),
]
REACHED = [
    (rule("a"), rule("b", {"endpoints": ["/x"]})),
    (rule("a", {"endpoints": ["/x"]}, priority=10), rule("b")),
    (rule("a", priority=10, layer="two"), rule("b")),
    (rule("a", action="log", priority=10), rule("b")),
    (rule("a", enabled=False, priority=10), rule("b")),
    (rule("a", {"endpoints": ["/x/y/*"]}, priority=10), rule("b", {"endpoints": ["/x/*"]})),
    (rule("a", {"endpoints": ["/x/{id}"]}, priority=10), rule("b", {"endpoints": ["/x/*"]})),
    (rule("a", {"endpoints": ["/x/{id}"]}, priority=10), rule("b", {"endpoints": ["/x/y/z"]})),
    (rule("a", {"endpoints": ["/x"]}, priority=10), rule("b", {"endpoints": ["/x"], "case_sensitive": False})),
    (rule("a", {"methods": ["HEAD"]}, priority=10), rule("b", {"methods": ["GET"]})),
    (rule("a", {"methods": ["GET"]}, priority=10), rule("b")),
    (rule("a", {"tiers": ["pro"]}, priority=10), rule("b", {"tiers": ["free", "pro"]})),
    (rule("a", {"ip_ranges": ["10.1.0.0/16"]}, priority=10), rule("b", {"ip_ranges": ["10.0.0.0/8"]})),
    (rule("a", {"ip_ranges": ["::/0"]}, priority=10), rule("b", {"ip_ranges": ["10.0.0.0/8"]})),
    (rule("a", {"ip_ranges": ["10.0.0.0/8"]}, priority=10), rule("b")),
    (rule("a", {"attributes": {"x": "1"}}, priority=10), rule("b", {"attributes": {"x": "2"}})),
    (rule("a", {"endpoints": ["/x"]}, action="allow"), rule("b", {"endpoints": ["/x", "/y"]})),
]


@pytest.mark.parametrize(("first", "second"), HIDDEN)
def test_hidden_rules_are_named(first: dict[str, Any], second: dict[str, Any]) -> None:
    """A rule is hidden if another matches whatever it matches, and always comes first."""
    assert unreached(first, second) == {"b": "a"}
    assert unreached(second, first) == {"b": "a"}


@pytest.mark.parametrize(("first", "second"), REACHED)
def test_rules_that_a_request_reaches_are_not_named(first: dict[str, Any], second: dict[str, Any]) -> None:
    """One request is enough for a rule to be of use."""
    assert unreached(first, second) == {}


def test_the_reason_is_that_of_an_explanation() -> None:
    """It says what a request would be told that both rules match."""
    reach = reach_of(
        parse_rule_set([rule("a", priority=10), rule("b"), rule("c", action="allow", match={"endpoints": ["/h"]})])
    )
    assert [each.reason for each in reach.unreached] == [
        "a matches every request that it matches, and its priority is 100; a comes first with 10"
    ]
    exempt = reach_of(parse_rule_set([rule("a", action="allow"), rule("b")]))
    assert [each.reason for each in exempt.unreached] == ["a exempts every request that it matches"]
    blocked = reach_of(parse_rule_set([rule("a", action="block"), rule("b")]))
    assert [each.reason for each in blocked.unreached] == ["a blocks every request that it matches"]


def test_an_endpoint_that_no_request_can_have_is_named() -> None:
    """A stored rule of an earlier version may have a control character in its path; it hides no other rule."""
    never, other = rule("a", {"endpoints": ["/x%0a"]}, priority=1), rule("b", {"endpoints": ["/x%0a", "/x"]})
    assert unreached(never, other, stored=True) == {"a": None}


def test_very_many_rules_are_not_all_compared() -> None:
    """What was compared before is still told, and that it is not all."""
    rules = [rule("a", priority=1), *(rule(f"b{number}") for number in range(9))]
    reach = reach_of(parse_rule_set(rules), max_pairs=35)
    assert not reach.is_complete
    assert [each.rule for each in reach.unreached] == ["b0", "b1"]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"cost": {"default": 6}}, "a request costs at least 6, and 5/minute never has so much"),
        (
            {"cost": {"POST": 9, "default": 1}, "match": {"methods": ["POST"]}},
            "a request costs at least 9, and 5/minute never has so much",
        ),
        ({"cost": {"POST": 9, "default": 1}}, None),
        ({"cost": {"default": 6}, "limits": "5/minute burst 9", "algorithm": "token_bucket"}, None),
        ({"cost": {"default": 6}, "limits": "unlimited"}, None),
        ({"cost": {"default": 6}, "action": "log"}, None),
        ({"cost": {"default": 6}, "enabled": False}, None),
        ({}, None),
    ],
)
def test_a_cost_above_the_limit_admits_nothing(fields: dict[str, Any], reason: str | None) -> None:
    """A rule whose cheapest request costs more than its limit ever has refuses all of them."""
    found = dict(never_admitting(parse_rule_set([{"name": "a", "limits": "5/minute", **fields}])))
    assert found == ({} if reason is None else {"a": reason})
