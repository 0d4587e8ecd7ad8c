"""Rule sets: tiers, defaults, overrides, and that one is taken as a whole or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.adapters.zones import zone
from headgate.core.limit import Rate, Unlimited, parse_limit
from headgate.core.parsing.rule_set import parse_part, parse_rule_set
from headgate.core.rule import Override, RuleSet
from headgate.core.rule_data import rule_data
from headgate.core.units import HOUR, MINUTE
from headgate.errors import InvalidRules

TIERS: dict[str, Any] = {
    "free": {"price": 0, "limits": {"search": "100/hour", "api": "1000/hour"}},
    "premium": {"price": 49, "display_name": "Premium", "limits": {"search": "10000/hour", "api": "unlimited"}},
}
SEARCH: dict[str, Any] = {"name": "search", "per": "user", "limits": "tier:search"}
LOGIN: dict[str, Any] = {"name": "login", "per": "ip", "limits": "5/minute"}


def problems(data: Any, **more: Any) -> list[str]:  # noqa: ANN401 (data of any shape)
    """What is wrong with a rule set."""
    with pytest.raises(InvalidRules) as caught:
        parse_rule_set(data, **more)
    assert str(caught.value) == "\n".join(caught.value.lines)
    assert [str(problem) for problem in caught.value.problems] == list(caught.value.lines)
    return list(caught.value.lines)


@pytest.mark.parametrize("data", [None, {}, [], (), {"rules": None}, {"rules": [], "tiers": {}, "overrides": []}])
def test_no_rules_are_a_rule_set(data: object) -> None:
    """Nothing to enforce is a valid thing to say."""
    assert parse_rule_set(data) == RuleSet()


def test_a_list_is_a_list_of_rules() -> None:
    """Without tiers and overrides the rules may stand alone."""
    assert parse_rule_set([LOGIN]) == parse_rule_set({"rules": [LOGIN]}) == parse_rule_set((LOGIN,))


def test_tiers_name_their_limits() -> None:
    """A rule takes its limit from the caller's tier by name; prices and names are kept."""
    made = parse_rule_set({"tiers": TIERS, "rules": [SEARCH]})
    assert made.rules[0].tier_limit == "search"
    assert made.rules[0].limits == ()
    assert made.tiers["free"].limits == {"search": (Rate(100, HOUR),), "api": (Rate(1000, HOUR),)}
    assert made.tiers["premium"].limits["api"] == (Unlimited(),)
    assert (made.tiers["premium"].price, made.tiers["premium"].display_name) == (49, "Premium")
    assert made.default_tier == "free"


def test_the_first_tier_is_the_default_unless_another_is_named() -> None:
    """Callers whose tier is not known are on the first tier, or on the one that the set names."""
    assert parse_rule_set({"tiers": TIERS}).default_tier == "free"
    assert parse_rule_set({"tiers": TIERS, "default_tier": "premium"}).default_tier == "premium"
    assert parse_rule_set({}).default_tier is None


@pytest.mark.parametrize(
    ("data", "line"),
    [
        ("rules", "expected a mapping with tiers, default_tier, rules…, not 'rules'"),
        (5, "expected a mapping with tiers, default_tier, rules…, not 5"),
        ({"rule": []}, "rule: unknown field; did you mean 'rules'?"),
        ({"version": 1}, "version: unknown field; known are tiers, default_tier, rules, overrides"),
        ({None: 1}, "[None]: unknown field; known are tiers, default_tier, rules, overrides"),
        ({5: 1}, "[5]: unknown field; known are tiers, default_tier, rules, overrides"),
        ({("a", "b"): 1}, "[('a', 'b')]: unknown field; known are tiers, default_tier, rules, overrides"),
        ({"rules": {}}, "rules: expected a list, not {}"),
        ({"rules": "search"}, "rules: expected a list, not 'search'"),
        ({"rules": [None]}, "rules[0]: expected a mapping with name, layer, match…, not None"),
        ({"rules": ["search"]}, "rules[0]: expected a mapping with name, layer, match…, not 'search'"),
        ({"rules": [[]]}, "rules[0]: expected a mapping with name, layer, match…, not []"),
        ({"tiers": []}, "tiers: expected a mapping of names, not []"),
        (
            {"tiers": {"fr ee": {}}},
            "tiers.fr ee: 'fr ee' is not a name: use up to 64 letters, digits, '_', '.' and '-'",
        ),
        ({"tiers": {5: {}}}, "tiers[5]: 5 is not a name"),
        ({"tiers": {"free": []}}, "tiers.free: expected a mapping with price, limits, display_name…, not []"),
        ({"tiers": {"free": {"cost": 5}}}, "tiers.free.cost: unknown field"),
        ({"tiers": {"free": {"price": -1}}}, "tiers.free.price: expected a number from 0 to"),
        ({"tiers": {"free": {"price": "5"}}}, "tiers.free.price: expected a number from 0 to"),
        ({"tiers": {"free": {"price": float("inf")}}}, "tiers.free.price: expected a number from 0 to"),
        ({"tiers": {"free": {"display_name": "a\x07"}}}, "tiers.free.display_name: 'a\\x07' contains '\\x07'"),
        ({"tiers": {"free": {"limits": "5/minute"}}}, "tiers.free.limits: expected a mapping of names, not '5/minute'"),
        ({"tiers": {"free": {"limits": {"a": "soon"}}}}, "tiers.free.limits.a: 'soon' is not a limit"),
        ({"tiers": {"free": {"limits": {"a": None}}}}, "tiers.free.limits.a: a limit is written as text"),
        ({"tiers": {"free": {"limits": {"a b": "5/minute"}}}}, "tiers.free.limits.a b: 'a b' is not a name"),
        ({"tiers": {"free": {"limits": {5: "5/minute"}}}}, "tiers.free.limits[5]: 5 is not a name"),
        ({"default_tier": "free"}, "default_tier: there is no tier 'free'"),
        ({"tiers": {"free": {}}, "default_tier": "Free"}, "default_tier: there is no tier 'Free'"),
        ({"tiers": {"free": {}}, "default_tier": 5}, "default_tier: expected a text, not 5"),
        ({"overrides": {}}, "overrides: expected a list, not {}"),
        ({"overrides": ["u_42"]}, "overrides[0]: expected a mapping with rule, user, api_key…, not 'u_42'"),
    ],
    ids=lambda value: ascii(value)[:50],
)
def test_a_wrong_shape_is_named(data: object, line: str) -> None:
    """What has the wrong shape is said once, with its place."""
    found = problems(data)
    assert len(found) == 1
    assert found[0].startswith(line)


def test_names_are_taken_once_whatever_their_case() -> None:
    """Two rules whose names differ only by letter case would be one in people's heads."""
    rules = [LOGIN, LOGIN, LOGIN | {"name": "LOGIN"}, LOGIN | {"name": "logout"}]
    assert problems(rules) == [
        "rules[1].name: the name 'login' is taken by rules[0]",
        "rules[2].name: the name 'LOGIN' is taken by rules[0]",
    ]


def test_an_id_is_the_name_unless_it_is_stated() -> None:
    """A rule's id is its name or what it says, is in its data where the two differ, and is given once."""
    plain = parse_rule_set([{"name": "a", "id": "a", "limits": "1/s"}, {"name": "b", "id": "c", "limits": "1/s"}])
    assert [(rule.name, rule.id) for rule in plain.rules] == [("a", "a"), ("b", "c")]
    assert [rule_data(rule)["id"] for rule in plain.rules] == [None, "c"]
    assert parse_rule_set(plain.rules) == plain
    with pytest.raises(InvalidRules) as caught:
        parse_rule_set([{"name": "a", "limits": "1/s"}, {"name": "b", "id": "A", "limits": "1/s"}])
    assert [str(problem) for problem in caught.value.problems] == [
        "rules[1].id: the id 'A' is that of 'a' (rules[0]); give this rule an id of its own"
    ]
    with pytest.raises(InvalidRules, match=r"rules\[0\].id: 'no id' is not a name"):
        parse_rule_set([{"name": "a", "id": "no id", "limits": "1/s"}])


def test_a_tier_that_a_rule_can_match_has_the_limit_it_names() -> None:
    """A rule by tiers is refused while a tier that it can match lacks the limit, or has one that does not fit."""
    tiers = TIERS | {"trial": {"limits": {"search": "3 concurrent"}}, "guest": {}}
    assert problems({"tiers": tiers, "rules": [SEARCH]}) == [
        "rules[0].limits: with tier 'trial': '3 concurrent ttl 1m' counts holders and needs 'algorithm: concurrency'",
        "rules[0].limits: tier 'guest', which this rule can match, has no limit named 'search'",
    ]
    chosen = SEARCH | {"match": {"tiers": ["free", "premium"]}}
    assert parse_rule_set({"tiers": tiers, "rules": [chosen]}).rules[0].match.tiers == ("free", "premium")


def test_a_tier_that_is_not_there_is_named_once() -> None:
    """A rule for an unknown tier is refused; its limits are judged by the tiers that are there."""
    rule = SEARCH | {"match": {"tiers": ["free", "gold"]}}
    assert problems({"tiers": TIERS, "rules": [rule]}) == ["rules[0].match.tiers: there is no tier 'gold'"]


OVERRIDE: dict[str, Any] = {"rule": "login", "user": "u_42", "limits": "50/minute"}


def test_overrides_are_for_one_user_or_key() -> None:
    """One user or API key may have limits of its own for a rule, one or several, also none at all."""
    overrides = [
        OVERRIDE,
        {"rule": "login", "api_key": "k_1", "limits": ["50/minute", "500/hour"]},
        {"rule": "login", "user": "u_43", "limits": "unlimited"},
    ]
    assert parse_rule_set({"rules": [LOGIN], "overrides": overrides}).overrides == (
        Override("login", (Rate(50, MINUTE),), user="u_42"),
        Override("login", (Rate(50, MINUTE), Rate(500, HOUR)), api_key="k_1"),
        Override("login", (Unlimited(),), user="u_43"),
    )


@pytest.mark.parametrize(
    ("override", "line"),
    [
        (OVERRIDE | {"rule": "logout"}, "overrides[0].rule: there is no rule 'logout'"),
        (OVERRIDE | {"rule": "Login"}, "overrides[0].rule: there is no rule 'Login'"),
        (OVERRIDE | {"rule": None}, "overrides[0].rule: there is no rule None"),
        (OVERRIDE | {"rule": ["login"]}, "overrides[0].rule: there is no rule ['login']"),
        (OVERRIDE | {"rule": "friends"}, "overrides[0].rule: 'friends' has 'action: allow' and takes no limits"),
        (OVERRIDE | {"user": None}, "overrides[0]: an override is for one user or one api_key"),
        (OVERRIDE | {"api_key": "k"}, "overrides[0]: an override is for one user or one api_key"),
        (
            {"rule": "login", "limits": "5/hour", "api_key": " hg_secret"},
            "overrides[0].api_key: this is a key, which is secret; write its id, as 'headgate keys list' shows it",
        ),
        (OVERRIDE | {"user": ""}, "overrides[0].user: expected a text, not ''"),
        (OVERRIDE | {"user": 42}, "overrides[0].user: expected a text, not 42"),
        (OVERRIDE | {"limits": None}, "overrides[0].limits: a limit is written as text"),
        (OVERRIDE | {"limits": "soon"}, "overrides[0].limits: 'soon' is not a limit"),
        (OVERRIDE | {"limits": "3 concurrent"}, "overrides[0].limits: '3 concurrent ttl 1m' counts holders"),
        (OVERRIDE | {"limits": ["5/hour", "6/60m"]}, "overrides[0].limits: two limits with the period of '6/hour'"),
        (OVERRIDE | {"tier": "free"}, "overrides[0].tier: unknown field"),
    ],
    ids=lambda value: ascii(value)[:60],
)
def test_a_wrong_override_is_named(override: dict[str, Any], line: str) -> None:
    """What is wrong with an override is said once, with its place."""
    friends = {"name": "friends", "action": "allow"}
    found = problems({"rules": [LOGIN, friends], "overrides": [override]})
    assert len(found) == 1
    assert found[0].startswith(line)


def test_an_override_is_given_once() -> None:
    """Two overrides for the same caller and rule contradict each other."""
    other = OVERRIDE | {"limits": "60/minute"}
    found = problems({"rules": [LOGIN], "overrides": [OVERRIDE, OVERRIDE | {"user": "u_43"}, other]})
    assert found == ["overrides[2]: overrides[0] is for the same caller and rule"]


def test_everything_that_is_wrong_is_told_at_once() -> None:
    """A set with mistakes everywhere is refused as a whole, with all of them."""
    found = problems(
        {
            "tiers": {"free": {"price": "much"}},
            "default_tier": "gold",
            "rules": [LOGIN, LOGIN, {"name": "a b", "limits": "soon", "per": "you"}, SEARCH, 5],
            "overrides": [OVERRIDE | {"rule": "x"}],
            "extra": 1,
        }
    )
    assert [line.partition(": ")[0] for line in found] == [
        "extra",
        "tiers.free.price",
        "rules[1].name",
        "rules[2].name",
        "rules[2].per[0]",
        "rules[2].limits",
        "rules[4]",
        "default_tier",
        "rules[3].limits",
        "overrides[0].rule",
    ]


def test_time_zones_are_looked_up_where_they_can_be() -> None:
    """An unknown time zone is told with the place of every limit that names it."""
    lost = "5/calendar day tz Atlantis/Capital"
    fixed = {"name": "daily", "algorithm": "fixed_window", "limits": lost}
    data = {
        "tiers": {"free": {"limits": {"a": lost, "b": "5/calendar day tz Europe/Berlin"}}},
        "rules": [fixed],
        "overrides": [{"rule": "x"}, {"rule": "daily", "user": "u", "limits": ["5/hour", lost]}],
    }
    assert [line.partition(": ")[0] for line in problems(data, zones=zone)] == [
        "overrides[0]",
        "overrides[0].limits",
        "overrides[0].rule",
        "rules[0].limits",
        "tiers.free.limits.a",
        "overrides[1].limits",
    ]
    assert "there is no time zone 'Atlantis/Capital' on this machine" in problems([fixed], zones=zone)[0]
    assert parse_rule_set([fixed]).rules[0].limits == (parse_limit(lost),)


def test_a_part_is_read_by_itself() -> None:
    """What a part of a rule set refers to elsewhere is not looked for, and what is wrong with it by itself is said."""
    part = parse_part({"rules": [SEARCH | {"match": {"tiers": ["gold"]}}], "default_tier": "gold"})
    assert ([rule.tier_limit for rule in part.rules], part.default_tier, part.tiers) == (["search"], "gold", {})
    assert [rule.name for rule in parse_part([LOGIN]).rules] == ["login"]
    assert parse_part({"tiers": TIERS}).tiers == parse_rule_set({"tiers": TIERS}).tiers
    for data, field in (
        (None, ""),
        ({"rules": [LOGIN, LOGIN]}, "rules[1].name"),
        ({"tiers": {"a b": {}}}, "tiers.a b"),
        ({"default_tier": "a b"}, "default_tier"),
    ):
        with pytest.raises(InvalidRules) as caught:
            parse_part(data)
        assert caught.value.problems[0].field == field
