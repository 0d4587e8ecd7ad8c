from __future__ import annotations

from typing import Any

import pytest

from headgate.adapters.zones import zone
from headgate.core.matching import Snapshot
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.core.request import Request
from headgate.errors import InvalidLimit
from headgate.testing import FakeClock

TIERS = {
    "free": {"limits": {"search": "10/hour", "api": ["1/second", "100/day"]}},
    "pro": {"limits": {"search": "1000/hour", "api": "unlimited"}},
}


def snapshot(*, overrides: object = None, **fields: Any) -> Snapshot:  # noqa: ANN401 (fields of a rule)
    rule = {"name": "r", "per": "user", **fields}
    return Snapshot(parse_rule_set({"tiers": TIERS, "rules": [rule], "overrides": overrides}), 1, zone, FakeClock())


def limits(rules: Snapshot, request: Request) -> list[str]:
    return [str(bound.hit.meter.limit) for bound in rules.plan(request).enforced]


def test_a_tier_chooses_its_named_limit() -> None:
    """A rule that says `tier:NAME` takes the limit of that name from the request's tier."""
    rules = snapshot(limits="tier:search")
    assert limits(rules, Request(tier="free")) == ["10/hour"]
    assert limits(rules, Request(tier="pro")) == ["1000/hour"]


def test_an_unknown_tier_is_the_default_one() -> None:
    """A request with no tier, an empty or an unknown one is on the default tier, which is the first."""
    rules = snapshot(limits="tier:search")
    for tier in (None, "", "unheard-of", "FREE"):
        assert limits(rules, Request(tier=tier)) == ["10/hour"], tier


def test_an_unknown_tier_matches_rules_of_the_default_one() -> None:
    """Rules for the default tier concern those whose tier is not known."""
    rules = snapshot(limits="5/hour", match={"tiers": "free"})
    assert limits(rules, Request(tier="unheard-of")) == ["5/hour"]
    assert limits(rules, Request(tier="pro")) == []


def test_a_tier_that_a_rule_cannot_match_needs_no_limit_for_it() -> None:
    """A rule for some tiers takes its limit from those, and does not apply to users on the others."""
    tiers = {"free": {"limits": {}}, "pro": {"limits": {"export": "5/day"}}}
    rule = {"name": "r", "match": {"tiers": ["pro"]}, "limits": "tier:export"}
    rules = Snapshot(parse_rule_set({"tiers": tiers, "rules": [rule]}), 1, zone, FakeClock())
    assert limits(rules, Request(tier="pro")) == ["5/day"]
    assert rules.plan(Request(tier="free")).unlimited == ()


def test_one_tier_may_have_several_limits_where_another_has_none() -> None:
    """A tier's limit may be a list, and `unlimited` counts nothing."""
    rules = snapshot(limits="tier:api")
    assert limits(rules, Request(tier="free")) == ["1/second", "100/day"]
    plan = rules.plan(Request(tier="pro"))
    assert plan.enforced == ()
    assert [rule.name for rule in plan.unlimited] == ["r"]


def test_overrides_come_first() -> None:
    """A user's override comes before the API key's, that before the tier's limit, and that before the rule's own."""
    overrides = [
        {"rule": "r", "user": "vip", "limits": "7/minute"},
        {"rule": "r", "api_key": "k", "limits": "8/minute"},
    ]
    rules = snapshot(limits="tier:search", overrides=overrides)
    assert limits(rules, Request(user="vip", api_key="k", tier="pro")) == ["7/minute"]
    assert limits(rules, Request(user="other", api_key="k", tier="pro")) == ["8/minute"]
    assert limits(rules, Request(user="k", api_key="vip", tier="pro")) == ["1000/hour"]
    own = snapshot(limits="5/hour", overrides=overrides)
    assert limits(own, Request(user="vip")) == ["7/minute"]
    assert limits(own, Request()) == ["5/hour"]


def test_an_override_replaces_the_whole_list() -> None:
    """An override stands in place of all limits of its rule, and may also lift them."""
    overrides = [
        {"rule": "r", "user": "vip", "limits": "7/minute"},
        {"rule": "r", "user": "boss", "limits": "unlimited"},
        {"rule": "r", "user": "many", "limits": ["2/minute", "3/hour"]},
    ]
    rules = snapshot(limits=["5/minute", "50/hour"], overrides=overrides)
    assert limits(rules, Request(user="vip")) == ["7/minute"]
    assert limits(rules, Request(user="boss")) == []
    assert limits(rules, Request(user="many")) == ["2/minute", "3/hour"]
    assert limits(rules, Request(user="u")) == ["5/minute", "50/hour"]


def test_an_override_concerns_its_own_rule_only() -> None:
    """An override for one rule leaves a user's limits under other rules as they are."""
    data = {
        "rules": [{"name": "a", "per": "user", "layer": "a", "limits": "1/hour"}, {"name": "b", "limits": "2/hour"}],
        "overrides": [{"rule": "b", "user": "u", "limits": "9/hour"}],
    }
    rules = Snapshot(parse_rule_set(data), 1, zone, FakeClock())
    assert sorted(limits(rules, Request(user="u"))) == ["1/hour", "9/hour"]


def test_several_limits_are_several_policies() -> None:
    """A rule with one limit is a policy of its own name; with several, each bears its period."""
    rules = snapshot(limits=["5/minute", "50/hour", "500/calendar month"], algorithm="fixed_window")
    policies = [bound.policy for bound in rules.plan(Request()).enforced]
    assert policies == ["r:1m", "r:1h", "r:calendar-month"]
    assert [bound.policy for bound in snapshot(limits="5/minute").plan(Request()).enforced] == ["r"]


def test_a_calendar_limit_knows_its_window() -> None:
    """A plan binds a calendar limit to the window of the present month, and to the next one when that has come."""
    clock = FakeClock()
    rule_set = parse_rule_set([{"name": "r", "limits": "5/calendar month", "algorithm": "fixed_window"}])
    rules = Snapshot(rule_set, 1, zone, clock)
    january, again = (rules.plan(Request()).enforced[0].hit.meter for _ in range(2))
    assert january is again
    assert january.bounds is not None
    assert january.bounds.start == clock()
    clock.set(january.bounds.end)
    february = rules.plan(Request()).enforced[0].hit.meter
    assert february.bounds is not None
    assert february.bounds.start == january.bounds.end


def test_an_unknown_time_zone_fails_when_rules_are_compiled() -> None:
    """A snapshot whose calendar cannot be found is refused as a whole, not on the first request."""
    rule_set = parse_rule_set([{"name": "r", "limits": "5/calendar day tz Mars/Olympus", "algorithm": "fixed_window"}])
    with pytest.raises(InvalidLimit, match="Mars/Olympus"):
        Snapshot(rule_set, 1, zone, FakeClock())


def test_the_price_list_goes_by_method() -> None:
    """Without a cost given, a request costs what the rule's price list says for its method; a given cost wins."""
    rules = snapshot(limits="100/hour", cost={"POST": 5, "default": 2})
    costs = [rules.plan(Request(method=method)).enforced[0].hit.cost for method in ("POST", "post", "GET", None)]
    assert costs == [5, 5, 2, 2]
    assert rules.plan(Request(method="POST"), 0).enforced[0].hit.cost == 0
    assert rules.plan(Request(method="POST"), 9).enforced[0].hit.cost == 9
    assert snapshot(limits="100/hour", cost={"POST": 5}).plan(Request()).enforced[0].hit.cost == 1
