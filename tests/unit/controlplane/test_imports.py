"""Rules from other formats: what becomes of them, what is noted, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.adapters.zones import zone
from headgate.controlplane.envoy_import import from_envoy_ratelimit
from headgate.controlplane.imported_rules import ImportedRules
from headgate.controlplane.tier_map_import import from_tier_map
from headgate.core.matching import Snapshot
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.edge.rls.decisions import prepare
from headgate.edge.rls.messages import Descriptor, RateLimitRequest
from headgate.errors import InvalidFields

DOMAIN = {"domain": "d"}


def limited(unit: str = "minute", requests: int = 5, **more: Any) -> dict[str, Any]:  # noqa: ANN401 (fields of a limit)
    return {"rate_limit": {"unit": unit, "requests_per_unit": requests, **more}}


def envoy(*descriptors: dict[str, Any]) -> tuple[list[dict[str, Any]], list[str]]:
    made, notes = from_envoy_ratelimit({"domain": "d", "descriptors": list(descriptors)})
    return made["rules"], notes


def winners(made: dict[str, Any], **entries: str) -> list[str]:
    """The rules that apply to a descriptor with these entries, of the domain that the first one is."""
    domain = entries.pop("domain", "")
    (check,) = prepare(RateLimitRequest(domain or "none", (Descriptor(tuple(entries.items())),)))
    snapshot = Snapshot(parse_rule_set(made), 1, zone, lambda: 0)
    plan = snapshot.plan(check.request)
    return sorted([bound.rule.name for bound in plan.enforced] + [rule.name for rule in plan.unlimited])


def test_the_example_of_messages() -> None:
    """Nested descriptors become a rule that needs all their values, and counts per key without a value."""
    made, notes = from_envoy_ratelimit(
        {
            "domain": "messaging",
            "descriptors": [
                {
                    "key": "message_type",
                    "value": "marketing",
                    "descriptors": [{"key": "to_number", **limited("day", 5)}],
                },
                {"key": "to_number", **limited("day", 100)},
            ],
        }
    )
    assert made["rules"] == [
        {
            "name": "messaging.message_type_marketing.to_number",
            "layer": "messaging:message_type.to_number",
            "match": {
                "attributes": {
                    "domain": "messaging",
                    "descriptor_keys": "message_type,to_number",
                    "message_type": "marketing",
                }
            },
            "per": ["attribute:to_number"],
            "limits": "5/day",
            "algorithm": "fixed_window",
        },
        {
            "name": "messaging.to_number",
            "layer": "messaging:to_number",
            "match": {"attributes": {"domain": "messaging", "descriptor_keys": "to_number"}},
            "per": ["attribute:to_number"],
            "limits": "100/day",
            "algorithm": "fixed_window",
        },
    ]
    assert [note.partition(" (the")[0].partition(";")[0] for note in notes] == [
        "rules match the attributes 'domain' ('messaging') and 'descriptor_keys'",
        "a request that is refused uses nothing up here",
    ]
    sent = {"domain": "messaging", "to_number": "1"}
    assert winners(made, **sent) == ["messaging.to_number"]
    assert winners(made, domain="messaging", message_type="marketing", to_number="1") == [
        "messaging.message_type_marketing.to_number"
    ]
    assert winners(made, **sent, message_type="marketing") == []  # the order counts
    assert winners(made, domain="messaging", message_type="marketing") == []
    assert winners(made, to_number="1") == []


def test_a_value_comes_before_all_values() -> None:
    """Of a key with a value and the key alone, the one with the value applies to it."""
    made, _ = from_envoy_ratelimit(
        {"domain": "d", "descriptors": [{"key": "ip", **limited()}, {"key": "ip", "value": "10.0.0.1", **limited()}]}
    )
    assert winners(made, domain="d", ip="10.0.0.1") == ["d.ip_10.0.0.1"]
    assert winners(made, domain="d", ip="10.0.0.2") == ["d.ip"]


@pytest.mark.parametrize(
    ("unit", "limit"),
    [("SECOND", "5/second"), ("hour", "5/hour"), ("week", "5/week"), ("month", "5/30 days"), ("year", "5/365 days")],
)
def test_units(unit: str, limit: str) -> None:
    """Units in any letter case; months and years are as long as they are there."""
    (rule,), _ = envoy({"key": "k", "value": "v", **limited(unit)})
    assert parse_rule_set([rule]).rules == parse_rule_set([rule | {"limits": limit}]).rules


def test_what_is_not_limited() -> None:
    """An unlimited descriptor, and one without a limit, let everything pass that would meet a wider one."""
    rules, _ = envoy(
        {"key": "k", "value": "a", "rate_limit": {"unlimited": True}},
        {"key": "k", "value": "b"},
        {"key": "k", **limited()},
    )
    assert [rule["limits"] for rule in rules] == ["unlimited", "unlimited", "5/minute"]
    assert winners({"rules": rules}, domain="d", k="a") == ["d.k_a"]


def test_shadows_and_zero() -> None:
    """A shadow becomes a rule that logs, and a limit of nothing one that blocks, unless it would block more."""
    rules, notes = envoy(
        {"key": "k", "value": "a", "shadow_mode": True, **limited()},
        {"key": "k", "value": "b", **limited(requests=0)},
        {"key": "k", "value": "c", "shadow_mode": True, **limited(requests=0)},
        {"key": "k", **limited(requests=0)},
    )
    by_name = {rule["name"]: rule for rule in rules}
    assert [by_name[f"d.k{name}"].get("action") for name in ("_a", "_b", "_c", "")] == [
        "log",
        "block",
        "block",
        "block",
    ]
    assert [by_name[f"d.k{name}"].get("enabled", True) for name in ("_a", "_b", "_c", "")] == [True, True, False, False]
    assert [by_name[f"d.k_{name}.unlimited"]["limits"] for name in "ac"] == ["unlimited", "unlimited"]
    assert by_name["d.k_b"]["response"] == {"status": 429}
    (alone,), _ = envoy({"key": "k", **limited(requests=0)})
    assert (alone["action"], alone.get("enabled", True)) == ("block", True)
    assert "descriptors[2]: a limit of 0 in shadow mode becomes a rule that is switched off" in notes
    assert any("a limit of 0 for all values but some" in note for note in notes)


def test_values_with_a_star() -> None:
    """Any value is no condition, shared by all if they share the threshold; the beginning of a value cannot be said."""
    rules, notes = envoy(
        {"key": "a", "value": "*", **limited()},
        {"key": "b", "value": "*", "share_threshold": True, **limited()},
        {"key": "c", "value": "files/*", "descriptors": [{"key": "x", **limited()}], **limited()},
        {"key": "d e", **limited()},
        {"key": "d e", "value": 404, **limited()},
    )
    assert [rule["name"] for rule in rules] == ["d.a", "d.b", "d.d-e_404"]
    assert [rule.get("per") for rule in rules] == [["attribute:a"], None, None]
    assert rules[2]["match"]["attributes"] == {"domain": "d", "descriptor_keys": "d e", "d e": "404"}
    assert any("'files/*' is a prefix" in note for note in notes)
    assert any("'d e', which is no name" in note for note in notes)


def test_what_is_only_noted() -> None:
    """Replacement and metrics have no counterpart; the notes say what to do."""
    rules, notes = envoy(
        {"key": "k", "value": "a", "detailed_metric": True, "value_to_metric": True, "quota_mode": True}
        | limited(name="n", replaces=[{"name": "other"}, {"name": "third"}])
    )
    assert len(rules) == 1
    assert [note.split(": ", 1)[0] for note in notes[:4]] == ["descriptors[0]"] * 3 + [
        "descriptors[0].rate_limit.replaces"
    ]
    assert "it replaces 'other', 'third' there; here both apply" in notes[3]


def test_names_are_made_that_can_be_ones() -> None:
    """Whatever a key or value is, its rule gets a name of its own."""
    rules, _ = envoy(
        *({"key": "k", "value": value, **limited()} for value in ("a b", "a/b", "ä", "x" * 100, "x" * 101)),
        {"key": "K", "value": "a b", **limited()},
    )
    assert [rule["name"] for rule in rules] == ["d.k_a-b", "d.k_a-b-2", "d.k", *(rule["name"] for rule in rules[3:])]
    assert rules[4]["name"].endswith("x-2")
    assert len({rule["name"].lower() for rule in rules}) == 6
    made, _ = from_envoy_ratelimit({"domain": "ä", "descriptors": [{"key": "ö", "value": "ü", **limited()}]})
    assert made["rules"][0]["name"] == "rule"


WRONG_FOR_ENVOY: list[tuple[object, str]] = [
    (None, ""),
    ([], ""),
    ({}, "domain"),
    ({"domain": ""}, "domain"),
    ({"domain": 7}, "domain"),
    (DOMAIN | {"descriptor": []}, "descriptor"),
    (DOMAIN | {"descriptors": {}}, "descriptors"),
    (DOMAIN | {"descriptors": [7]}, "descriptors[0]"),
    (DOMAIN | {"descriptors": [{}]}, "descriptors[0].key"),
    (DOMAIN | {"descriptors": [{"key": 7}]}, "descriptors[0].key"),
    (DOMAIN | {"descriptors": [{"key": "k", "value": True}]}, "descriptors[0].value"),
    (DOMAIN | {"descriptors": [{"key": "k", "values": "v"}]}, "descriptors[0].values"),
    (DOMAIN | {"descriptors": [{"key": "k"}, {"key": "k", "value": ""}]}, "descriptors[1].key"),
    (DOMAIN | {"descriptors": [{"key": "k", "rate_limit": 7}]}, "descriptors[0].rate_limit"),
    (DOMAIN | {"descriptors": [{"key": "k", "rate_limit": {}}]}, "descriptors[0].rate_limit.unit"),
    (DOMAIN | {"descriptors": [{"key": "k", **limited("decade")}]}, "descriptors[0].rate_limit.unit"),
    (DOMAIN | {"descriptors": [{"key": "k", **limited(requests=-1)}]}, "descriptors[0].rate_limit.requests_per_unit"),
    (DOMAIN | {"descriptors": [{"key": "k", **limited(unlimited=True)}]}, "descriptors[0].rate_limit.unit"),
    (DOMAIN | {"descriptors": [{"key": "k", **limited(replaces="n")}]}, "descriptors[0].rate_limit.replaces"),
    (
        DOMAIN | {"descriptors": [{"key": "k", **limited(replaces=[{"name": ""}])}]},
        "descriptors[0].rate_limit.replaces",
    ),
    (DOMAIN | {"descriptors": [{"key": "k", "shadow_mode": "yes"}]}, "descriptors[0].shadow_mode"),
]


@pytest.mark.parametrize(("data", "field"), WRONG_FOR_ENVOY)
def test_what_is_no_such_configuration_is_refused(data: object, field: str) -> None:
    """Every problem is named by its place in the file."""
    with pytest.raises(InvalidFields) as caught:
        from_envoy_ratelimit(data)
    assert field in [problem.field for problem in caught.value.problems]


def test_descriptors_without_end_are_refused() -> None:
    """Descriptors in descriptors in descriptors are refused in words, however deep."""
    nested: dict[str, Any] = {"key": "k"}
    for _ in range(100_000):
        nested = {"key": "k", "value": "v", "descriptors": [nested]}
    with pytest.raises(InvalidFields, match="deeper than 50 levels"):
        from_envoy_ratelimit({"domain": "d", "descriptors": [nested]})


SEED: dict[str, Any] = {
    "rules": [
        {
            "endpoint": "/api/v1/search",
            "method": "GET",
            "limits": {
                "free": {"requests": 100, "window_seconds": 60, "algorithm": "token_bucket", "burst": 20},
                "paid": {"requests": 1000, "window_seconds": 60, "algorithm": "token_bucket", "burst": 100},
                "enterprise": {"requests": 10000, "window_seconds": 60, "algorithm": "sliding_window"},
            },
        },
        {
            "endpoint": "/api/v1/data",
            "method": "POST",
            "limits": {
                "free": {"requests": 10, "window_seconds": 60},
                "global": {"requests": 100000, "window_seconds": 1, "note": "global rate limit across all users"},
            },
        },
    ]
}


def test_each_entry_of_a_tier_map_becomes_a_rule() -> None:
    """Limits by tier are rules per user of that tier, and the global one is for all users together."""
    made, notes = from_tier_map(SEED)
    assert {rule["name"]: rule["limits"] for rule in made["rules"]} == {
        "api-v1-search-get-free": "100/minute burst 20",
        "api-v1-search-get-paid": "1000/minute burst 100",
        "api-v1-search-get-enterprise": "10000/minute",
        "api-v1-data-post-free": "10/minute",
        "api-v1-data-post-global": "100000/second",
    }
    assert made["rules"][0] == {
        "name": "api-v1-search-get-free",
        "match": {"endpoints": ["/api/v1/search"], "methods": ["GET"], "tiers": ["free"]},
        "per": ["user"],
        "limits": "100/minute burst 20",
        "algorithm": "token_bucket",
    }
    assert made["rules"][-1]["match"] == {"endpoints": ["/api/v1/data"], "methods": ["POST"]}
    assert (list(made["tiers"]), made["default_tier"]) == (["free", "paid", "enterprise"], "free")
    assert len(notes) == 2
    assert "rules[1].limits.global: the note 'global rate limit across all users' has no place" in notes[0]


def test_what_a_tier_map_cannot_carry_over_is_noted() -> None:
    """A burst where there is none, a leaky bucket, a limit of nothing."""
    entries = {
        "a": {"requests": 5, "window_seconds": 90, "algorithm": "fixed_window", "burst": 9},
        "b": {"requests": 5, "window_seconds": 3600, "algorithm": "leaky_bucket", "burst": 9},
        "c": {"requests": 0, "window_seconds": 60},
    }
    made, notes = from_tier_map({"rules": [{"method": "any", "limits": entries}]})
    assert [rule.get("limits") for rule in made["rules"]] == ["5/90s", "5/hour burst 9", None]
    assert [rule.get("action") for rule in made["rules"]] == [None, "throttle", "block"]
    assert [rule["name"] for rule in made["rules"]] == ["any-a", "any-b", "any-c"]
    assert len(notes) == 4


ENTRY = {"requests": 5, "window_seconds": 60}
WRONG_FOR_TIERS: list[tuple[object, str]] = [
    (None, ""),
    ([], ""),
    ({}, "rules"),
    ({"rules": 7}, "rules"),
    ({"rules": [7]}, "rules[0]"),
    ({"rules": [{}]}, "rules[0].limits"),
    ({"rules": [{"limits": []}]}, "rules[0].limits"),
    ({"rules": [{"limits": {"a b": ENTRY}}]}, "rules[0].limits.a b"),
    ({"rules": [{"limits": {"free": 7}}]}, "rules[0].limits.free"),
    ({"rules": [{"limits": {"free": {}}}]}, "rules[0].limits.free.requests"),
    ({"rules": [{"limits": {"free": ENTRY | {"requests": -1}}}]}, "rules[0].limits.free.requests"),
    ({"rules": [{"limits": {"free": ENTRY | {"window_seconds": 0}}}]}, "rules[0].limits.free.window_seconds"),
    ({"rules": [{"limits": {"free": ENTRY | {"algorithm": "magic"}}}]}, "rules[0].limits.free.algorithm"),
    ({"rules": [{"limits": {"free": ENTRY | {"burst": 0}}}]}, "rules[0].limits.free.burst"),
    ({"rules": [{"limits": {"free": ENTRY | {"unit": "s"}}}]}, "rules[0].limits.free.unit"),
    ({"rules": [{"endpoint": "api", "limits": {"free": ENTRY}}]}, "rules[0].limits.free"),
    ({"rules": [{"method": "G T", "limits": {"free": ENTRY}}]}, "rules[0].limits.free"),
    (
        {
            "rules": [
                {"limits": {"free": ENTRY, "FREE": ENTRY | {"algorithm": "sliding_window_log", "requests": 10**6}}}
            ]
        },
        "rules[0].limits.FREE",
    ),
]


@pytest.mark.parametrize(("data", "field"), WRONG_FOR_TIERS)
def test_what_is_no_tier_map_is_refused(data: object, field: str) -> None:
    """Every problem is named by its place in the file."""
    with pytest.raises(InvalidFields) as caught:
        from_tier_map(data)
    assert field in [problem.field for problem in caught.value.problems]


words = st.sampled_from(
    ["domain", "descriptors", "key", "value", "rate_limit", "unit", "requests_per_unit", "minute", "k", "v*", "rules"]
) | st.sampled_from(["endpoint", "limits", "free", "requests", "window_seconds", "/x", "token_bucket", "burst"])
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=5),
    max_leaves=20,
)


@settings(max_examples=150, deadline=None)
@given(anything)
def test_any_data_is_imported_or_refused(data: object) -> None:
    """Whatever the file says, the answer is a rule set that headgate takes, or a list of problems."""
    for read in (from_envoy_ratelimit, from_tier_map):
        try:
            made, notes = read(data)
        except InvalidFields:
            continue
        parse_rule_set(made)
        assert all(note.isprintable() for note in notes)


def test_many_rules_of_the_same_words_are_imported_in_the_time_they_take() -> None:
    """Each has a name of its own, and finding it does not take longer with every one before it."""
    made = ImportedRules()
    for number in range(20_000):
        made.add(("descriptors", number), "user", {"limits": "5/minute"})
        made.note(("descriptors", number), "something is lost")
    rule_set, notes = made.finish()
    assert [rule["name"] for rule in rule_set["rules"][:3]] == ["user", "user-2", "user-3"]
    assert len({rule["name"] for rule in rule_set["rules"]}) == len(notes) == 20_000
