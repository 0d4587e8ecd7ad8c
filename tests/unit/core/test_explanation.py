from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.core.test_matching_reference import REQUESTS, RULES, TIERS, named, no_zones

from headgate.core.explanation import MAX_LOST, AppliedRule, Explanation, LimitOrigin, explain
from headgate.core.matching import Snapshot
from headgate.core.own_limits import NO_LIMITS, LimitsByRule, OwnLimits
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.core.request import Request
from headgate.testing import FakeClock


def explained(rules: list[dict[str, Any]], request: Request, **around: Any) -> Explanation:  # noqa: ANN401 (parts of a rule set)
    complete = [rule if rule.get("action") in {"allow", "block"} else {"limits": "5/minute", **rule} for rule in rules]
    rule_set = parse_rule_set({"rules": complete, **around})
    return explain(Snapshot(rule_set, 7, no_zones, FakeClock()), request)


def lost(rules: list[dict[str, Any]], request: Request) -> dict[str, str]:
    explanation = explained(rules, request)
    return {each.rule.name: each.why for layer in explanation.layers for each in layer.lost}


@settings(max_examples=100, deadline=None)
@given(RULES, st.lists(REQUESTS, min_size=2, max_size=5))
def test_the_winners_explained_are_those_planned(rules: list[dict[str, Any]], requests: list[Request]) -> None:
    """For any rules and any request, an explanation names the gate, the winners and the counters of the plan."""
    tiers: dict[str, Any] = {name: {"limits": {}} for name in TIERS}
    snapshot = Snapshot(parse_rule_set({"tiers": tiers, "rules": named(rules)}), 1, no_zones, FakeClock())
    for request in requests:
        plan, explanation = snapshot.plan(request), explain(snapshot, request)
        applied = [each for layer in explanation.layers for each in (layer.winner, layer.watched) if each]
        counted = {bound.rule.name for bound in (*plan.enforced, *plan.shadows)}
        assert explanation.plan == plan
        assert sorted(each.rule.name for each in applied) == sorted({*counted, *(rule.name for rule in plan.unlimited)})
        counters = sorted(bound.hit.key for each in applied for bound in each.bounds)
        assert counters == sorted(bound.hit.key for bound in (*plan.enforced, *plan.shadows))
        told = [each.rule for layer in explanation.layers for each in layer.lost]
        told += [each.rule for each in explanation.other_gates]
        if plan.gate is None:
            assert len(told) + len(applied) == len(rules)
        else:
            assert explanation.layers == ()
        assert plan.gate is None or plan.gate not in told


@pytest.mark.parametrize(
    ("match", "request_parts", "why"),
    [
        ({"endpoints": "/a"}, {"path": "/b/"}, "the path is '/b', not /a"),
        ({"endpoints": ["/a/{x}", "/b/*"]}, {"path": "/a"}, "the path is '/a', not /a/{x} or /b/*"),
        (
            {"endpoints": ["/1", "/2", "/3", "/4", "/5", "/6"]},
            {},
            "the path is '/', not /1, /2, /3, /4 or 2 more",
        ),
        ({"methods": ["GET", "PUT"]}, {"method": "post"}, "the method is 'POST', not GET or PUT"),
        ({"methods": "GET"}, {}, "the method is not known, and should be GET"),
        ({"tiers": "pro"}, {}, "the tier is 'free', not pro"),
        ({"ip_ranges": "10.0.0.0/8"}, {"ip": "192.0.2.1"}, "the address is '192.0.2.1', not in 10.0.0.0/8"),
        ({"ip_ranges": "10.0.0.0/8"}, {"ip": "2001:db8::1"}, "the address is '2001:db8::1', not in 10.0.0.0/8"),
        ({"ip_ranges": "10.0.0.0/8"}, {}, "the address is not known, and should be in 10.0.0.0/8"),
        ({"attributes": {"region": "eu"}}, {"attributes": {"region": "us"}}, "the attribute region is 'us', not 'eu'"),
        ({"attributes": {"region": "eu"}}, {}, "the attribute region is not known, and should be 'eu'"),
        (
            {"endpoints": "/a", "methods": "GET"},
            {"path": "/b", "method": "PUT"},
            "the path is '/b', not /a; the method is 'PUT', not GET",
        ),
    ],
)
def test_a_rule_that_does_not_match_is_told_with_what_was_expected(
    match: dict[str, Any], request_parts: dict[str, Any], why: str
) -> None:
    """Each condition that does not hold is named with what the request has and what the rule wants."""
    tiers: dict[str, Any] = {"free": {"limits": {}}, "pro": {"limits": {}}}
    explanation = explained([{"name": "r", "match": match}], Request(**request_parts), tiers=tiers)
    assert [each.why for each in explanation.layers[0].lost] == [why]


def test_what_matches_needs_no_words() -> None:
    """A rule whose every condition holds applies, also when HEAD stands for GET and by one of several ranges."""
    match = {
        "endpoints": ["/x", "/a/*"],
        "methods": "GET",
        "ip_ranges": ["10.0.0.0/8", "2001:db8::/32"],
        "attributes": {"region": "eu"},
    }
    request = Request(path="/a", method="HEAD", ip="2001:db8::1", attributes={"region": "eu"})
    (layer,) = explained([{"name": "r", "match": match}], request).layers
    assert layer.winner is not None
    assert layer.winner.pattern == "/a/*"


@pytest.mark.parametrize(
    ("better", "worse", "why"),
    [
        ({"priority": 50}, {}, "its priority is 100; better comes first with 50"),
        (
            {"match": {"endpoints": "/a"}},
            {"match": {"endpoints": "/*"}},
            "better matches by the more specific path /a",
        ),
        (
            {"match": {"endpoints": "/a/*"}},
            {"match": {"endpoints": "/*"}},
            "better matches by the more specific path /a/*",
        ),
        ({"match": {"methods": "GET"}}, {}, "better has more conditions (1, not 0)"),
        ({}, {}, "better comes first by its name; in all else they are equal"),
        ({}, {"enabled": False}, "it is disabled"),
    ],
)
def test_a_rule_that_is_outranked_is_told_by_what(better: dict[str, Any], worse: dict[str, Any], why: str) -> None:
    """Of two rules that match, the loser is told what put the other before it."""
    rules = [{"name": "worse", "layer": "one", **worse}, {"name": "better", "layer": "one", **better}]
    assert lost(rules, Request(path="/a", method="GET")) == {"worse": why}
    assert lost(rules[::-1], Request(path="/a", method="GET")) == {"worse": why}


def test_gates_come_first_and_end_it() -> None:
    """Where a gate decides no layer is asked; another gate that matches is told why it does not decide."""
    rules: list[dict[str, Any]] = [
        {"name": "open", "action": "allow"},
        {"name": "shut", "action": "block"},
        {"name": "elsewhere", "action": "block", "match": {"endpoints": "/x"}},
        {"name": "counted"},
    ]
    said = explained(rules, Request(path="/a")).as_dict()
    assert said["gates"] == [
        {"rule": "shut", "action": "block", "decides": True, "why": "it matches"},
        {
            "rule": "open",
            "action": "allow",
            "decides": False,
            "why": "shut has the same priority, and a block comes before an allow",
        },
        {"rule": "elsewhere", "action": "block", "decides": False, "why": "the path is '/a', not /x"},
    ]
    assert said["layers"] == []


def origin(request: Request) -> tuple[LimitOrigin, str, list[str]]:
    tiers = {"free": {"limits": {"search": "1/hour"}}, "pro": {"limits": {"search": "unlimited"}}}
    overrides = [
        {"rule": "search", "user": "u1", "limits": ["2/hour", "3/day"]},
        {"rule": "search", "api_key": "k1", "limits": "4/hour"},
    ]
    rules = [{"name": "search", "limits": "tier:search", "per": "user"}]
    (layer,) = explained(rules, request, tiers=tiers, overrides=overrides).layers
    winner = layer.winner
    assert isinstance(winner, AppliedRule)
    return winner.origin, winner.limits_from, [str(bound.hit.meter.limit) for bound in winner.bounds]


def test_a_winner_says_where_its_limit_comes_from() -> None:
    """First found first: the user's own, the key's own, the tier's, the rule's."""
    both = Request(user="u1", api_key="k1")
    assert origin(both) == (LimitOrigin.USER, "the user's own limits for this rule", ["2/hour", "3/day"])
    assert origin(Request(user="u2", api_key="k1"))[:1] == (LimitOrigin.API_KEY,)
    own = OwnLimits(LimitsByRule({"search": "7/hour"}), LimitsByRule({"search": "8/hour"}))
    assert origin(both._replace(limits=own))[::2] == (LimitOrigin.USER, ["7/hour"])
    assert origin(Request(limits=own._replace(user=NO_LIMITS)))[::2] == (LimitOrigin.API_KEY, ["8/hour"])
    unfit = OwnLimits(LimitsByRule({"search": "8 concurrent"}), NO_LIMITS)
    assert origin(Request(user="u2", limits=unfit))[0] is LimitOrigin.TIER
    assert origin(Request(user="u2")) == (LimitOrigin.TIER, "'search' of the tier 'free'", ["1/hour"])
    assert origin(Request(tier="pro")) == (LimitOrigin.TIER, "'search' of the tier 'pro'", [])
    (layer,) = explained([{"name": "r"}], Request()).layers
    assert layer.winner is not None
    assert layer.winner.origin is LimitOrigin.RULE


def test_an_explanation_is_ready_for_json() -> None:
    """A layer says its winner with counter and cost, what is watched beside it, and who lost."""
    rules: list[dict[str, Any]] = [
        {"name": "search", "layer": "s", "per": "user", "cost": {"POST": 3}},
        {"name": "trial", "layer": "s", "action": "log"},
        {"name": "other", "layer": "s", "match": {"endpoints": "/x"}},
    ]
    said = explained(rules, Request(user="u1", method="POST", ip="2001:db8::1")).as_dict()
    counter = {"limit": "5/minute", "window": 60.0, "counter": "rl:{u=u1}:search:sc1m", "cost": 3}
    (layer,) = said["layers"]
    assert said["snapshot"] == 7
    assert said["request"] == {
        "method": "POST",
        "path": "/",
        "tier": None,
        "ip": "2001:db8::1",
        "counted_as": "2001:db8::/64",
        "attributes": {},
    }
    assert layer["winner"] == {
        "rule": "search",
        "action": "reject",
        "priority": 100,
        "endpoint": "/*",
        "per": ["user"],
        "algorithm": "sliding_window_counter",
        "spread": "exact",
        "origin": "rule",
        "limits_from": "the rule itself",
        "limits": [counter],
    }
    assert layer["watched"]["rule"] == "trial"
    assert layer["lost"] == [{"rule": "other", "why": "the path is '/', not /x"}]


def test_of_very_many_rules_the_closest_are_told() -> None:
    """However many rules there are, the explanation stays readable, and says how many it leaves out."""
    rules: list[dict[str, Any]] = [
        {"name": f"r{number}", "match": {"endpoints": f"/{number}"}} for number in range(MAX_LOST + 5)
    ]
    rules[3]["match"] |= {"methods": "PUT"}
    rules[4] |= {"enabled": False, "match": {"endpoints": "/4", "methods": "GET"}}
    explanation = explained(rules, Request(path="/a", method="GET"))
    told = [each.rule.name for layer in explanation.layers for each in layer.lost]
    assert len(told) == MAX_LOST
    assert explanation.left_out == 5
    assert "r3" not in told


def test_those_that_all_but_apply_come_first() -> None:
    """By the number of conditions that are not met, then by rank, however many more there are."""
    far = {"methods": "PUT", "tiers": "gold"}
    rules: list[dict[str, Any]] = [
        {"name": f"far{number}", "match": far | {"endpoints": f"/{number}"}, "priority": 1}
        for number in range(MAX_LOST)
    ]
    rules += [{"name": name, "match": {"endpoints": ["/x", "/y/*"]}} for name in ("near2", "near1")]
    rules.append({"name": "hidden", "match": {"endpoints": ["/a", "/*"]}, "priority": 500})
    explanation = explained([*rules, {"name": "won", "match": {"endpoints": "/a"}}], Request(path="/a", method="GET"))
    told = {each.rule.name: each.why for layer in explanation.layers for each in layer.lost}
    assert list(told)[:3] == ["hidden", "near1", "near2"]
    assert told["near1"] == "the path is '/a', not /x or /y/*"
    assert told["hidden"] == "its priority is 500; won comes first with 100"
    assert (len(told), explanation.left_out) == (MAX_LOST, 3)
