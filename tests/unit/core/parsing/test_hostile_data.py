"""Rule sets from hostile data: refused with sentences, never with any other exception."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.adapters.zones import zone
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.errors import InvalidRules

if TYPE_CHECKING:
    from headgate.core.rule import RuleSet

NAMES = [
    "tiers",
    "default_tier",
    "rules",
    "overrides",
    "price",
    "limits",
    "display_name",
    "rule",
    "user",
    "api_key",
    "name",
    "layer",
    "match",
    "per",
    "algorithm",
    "cost",
    "action",
    "max_delay",
    "on_store_error",
    "spread",
    "wait_replicas",
    "on_shortfall",
    "sample",
    "priority",
    "response",
    "enabled",
    "endpoints",
    "methods",
    "ip_ranges",
    "attributes",
    "status",
    "message",
    "retry_after",
    "shards",
    "regions",
    "home",
    "shares",
]
FIELDS = st.sampled_from(NAMES)
WORDS = st.sampled_from(
    [
        *(
            "5/minute",
            "3 concurrent",
            "unlimited",
            "tier:search",
            "5/calendar month anchor 31 tz Europe/Berlin",
            "1/us",
        ),
        *("throttle", "block", "allow", "log", "token_bucket", "leaky_bucket", "concurrency", "fixed_window"),
        *(
            "leased",
            "central",
            "split",
            "user",
            "global",
            "attribute:x",
            "/api/*",
            "/users/{id}",
            "GET",
            "10.0.0.0/8",
            "2s",
        ),
    ]
)
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(st.characters(), max_size=20), WORDS, FIELDS
)
anything = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(FIELDS | st.text(max_size=5), inner, max_size=5), st.tuples(inner)
    ),
    max_leaves=25,
)


def checked(data: object) -> RuleSet | None:
    """The rule set, or None where it was refused with sentences that can be printed."""
    lines: tuple[str, ...] = ()
    made = None
    try:
        made = parse_rule_set(data, zone)
    except InvalidRules as error:
        lines = error.lines
    assert (made is None) == bool(lines)
    assert all(line.isprintable() and 10 < len(line) < 1_000 for line in lines), lines
    return made


@pytest.mark.untraced
@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(anything)
def test_any_data_is_a_rule_set_or_refused(data: object) -> None:
    """Whatever data is given, the answer is a rule set or a list of problems."""
    checked(data)


@pytest.mark.untraced
@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(FIELDS, anything, max_size=8), st.dictionaries(FIELDS, anything, max_size=4))
def test_any_rule_is_a_rule_or_refused(fields: dict[str, Any], tier: dict[str, Any]) -> None:
    """A rule of which half the fields are right and half are anything is read or refused, never half of it."""
    rule = {"name": "search", "limits": "5/minute"} | fields
    made = checked({"tiers": {"free": tier}, "rules": [rule, {"name": "other", "limits": "1/hour"}]})
    assert made is None or len(made.rules) == 2


@pytest.mark.untraced
@settings(max_examples=200)
@given(
    st.dictionaries(st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary()), scalars)
)
def test_names_of_any_kind_are_refused_in_words(data: dict[object, object]) -> None:
    """Python mappings may have names that are no texts; they are refused by name as well."""
    checked(data)
    checked({"tiers": data})
    checked({"tiers": {"free": {"limits": data}}})
    for field in ("match", "cost", "response", "spread"):
        checked([{"name": "search", "limits": "5/minute", field: data}])
    checked([{"name": "search", "limits": "5/minute", "match": {"attributes": data}}])
    checked([{"name": "search", "limits": "5/minute", "spread": {"regions": "split", "shares": data}}])


@pytest.mark.parametrize("depth", [100, 100_000])
def test_data_nested_too_deep_is_refused(depth: int) -> None:
    """Lists in lists in lists are refused in words, however deep."""
    nested: Any = "x"
    for _ in range(depth):
        nested = [nested]
    for data in (
        {"rules": nested},
        {"tiers": {"free": {"limits": {"a": nested}}}},
        [{"name": nested, "limits": nested, "cost": nested, "spread": nested, "match": {"endpoints": nested}}],
    ):
        assert checked(data) is None


def test_huge_numbers_are_refused() -> None:
    """Numbers of thousands of digits are refused in words."""
    huge = 10**5_000
    for field in ("priority", "cost", "sample", "max_delay", "wait_replicas", "limits", "name", "spread", "per"):
        assert checked([{"name": "search", "limits": "5/minute"} | {field: huge}]) is None
    assert checked({huge: huge}) is None
    assert checked([{"name": "search", "limits": "5/minute", "cost": {huge: 1}}]) is None


def test_huge_texts_are_refused_in_short_lines() -> None:
    """A megabyte of text in any field is refused without being repeated."""
    text = "x" * 1_000_000
    for field in ("name", "layer", "algorithm", "action", "max_delay", "limits", "spread", "per"):
        assert checked([{"name": "search", "limits": "5/minute"} | {field: text}]) is None
    assert checked({text: 1}) is None
    assert checked({"default_tier": text}) is None
    assert checked([{"name": "search", "limits": "tier:" + text}]) is None
    assert (
        checked([{"name": "search", "limits": "5/minute", "match": {"endpoints": "/" + text, "tiers": text}}]) is None
    )


def test_what_json_can_say_is_read_the_same() -> None:
    """A rule set survives the way through JSON."""
    data = {
        "tiers": {"free": {"price": 0.5, "limits": {"search": ["1/second", "100/hour"]}}},
        "rules": [{"name": "search", "limits": "tier:search", "cost": {"POST": 5}, "spread": "exact"}],
        "overrides": [{"rule": "search", "user": "u", "limits": "unlimited"}],
    }
    assert parse_rule_set(json.loads(json.dumps(data))) == parse_rule_set(data)
