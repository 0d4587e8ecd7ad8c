"""Rules that were accepted once are read again by later versions, though people may no longer write them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from headgate.core.parsing.rule_set import parse_part, parse_rule_set
from headgate.core.rule_data import brief_rule_set
from headgate.errors import InvalidRules

if TYPE_CHECKING:
    from headgate.core.rule import Rule

IDLE: Final[dict[str, Any]] = {
    "layer": "extra",
    "per": "user",
    "algorithm": "fixed_window",
    "cost": {"POST": 2},
    "max_delay": "1s",
    "on_store_error": "deny",
    "on_overload": "deny",
    "spread": "leased",
    "wait_replicas": 1,
    "on_shortfall": "deny",
    "sample": 1,
    "response": {"message": "No."},
}


def stored(rule: dict[str, Any]) -> Rule:
    """The rule as a process reads it that did not write it; parts of rule sets are read alike."""
    rule_set = parse_rule_set([rule], stored=True)
    assert parse_part([rule], stored=True).rules == rule_set.rules
    return rule_set.rules[0]


@pytest.mark.parametrize("field", IDLE)
@pytest.mark.parametrize("action", ["allow", "block"])
def test_a_stored_field_without_effect_is_ignored(action: str, field: str) -> None:
    """What comes of it is a rule that people may write, and the others of the rule set are read."""
    plain = {"name": "office", "action": action, "match": {"endpoints": ["/a"], "ip_ranges": ["10.0.0.0/8"]}}
    old = plain | {field: IDLE[field]}
    read = stored(old)
    if (action, field) == ("block", "response"):
        assert read.response.message == "No."
        return
    with pytest.raises(InvalidRules):
        parse_rule_set([old])
    assert read == parse_rule_set([plain]).rules[0]


def test_a_stored_max_delay_is_for_throttle() -> None:
    """Where requests are not held it is ignored, and kept where they are."""
    plain = {"name": "search", "limits": "5/minute", "algorithm": "token_bucket"}
    assert stored(plain | {"max_delay": "1s"}) == parse_rule_set([plain]).rules[0]
    assert stored(plain | {"action": "throttle", "max_delay": "1s"}).max_delay == 1_000_000


@pytest.mark.parametrize(
    ("pattern", "kept"),
    [
        ("/a\tb", "/a\tb"),
        ("/a%0Ab", "/a\nb"),
        ("/a\x85/{id}", "/a\x85/{id}"),
        ("/a%0D/*", "/a\r/*"),
    ],
)
def test_a_stored_endpoint_with_a_control_character_is_kept(pattern: str, kept: str) -> None:
    """It matches no request. Without it, the rule would match all of them."""
    old = {"name": "old", "limits": "5/minute", "match": {"endpoints": [pattern]}}
    with pytest.raises(InvalidRules, match="control character"):
        parse_rule_set([old])
    read = parse_rule_set([old], stored=True)
    assert read.rules[0].match.endpoints == (kept,)
    assert parse_rule_set(brief_rule_set(read), stored=True) == read


@pytest.mark.parametrize(
    "wrong",
    [
        {"colour": "red"},
        {"limits": "fast"},
        {"spread": "wide"},
        {"action": "allow", "per": "moon", "limits": None},
        {"match": {"endpoints": ["a\tb"]}},
        {"algorithm": "sliding_window_log", "spread": "leased"},
    ],
    ids=str,
)
def test_what_was_never_a_rule_is_refused(wrong: dict[str, Any]) -> None:
    """A stored rule is checked like any other, but for fields without effect."""
    with pytest.raises(InvalidRules):
        parse_rule_set([{"name": "search", "limits": "5/minute"} | wrong], stored=True)
