"""The requests that rules are tried with."""

from __future__ import annotations

from headgate.core.parsing.rule_set import parse_rule_set
from headgate.core.probing import _addresses


def test_a_range_is_tried_with_its_first_address() -> None:
    """Also a range of one address has one; without ranges any address will do."""
    rules = parse_rule_set(
        [{"name": "a", "limits": "5/minute", "per": "user", "match": {"ip_ranges": ["10.0.0.0/8", "192.0.2.7/32"]}}]
    ).rules
    assert list(_addresses(rules[0].match)) == ["10.0.0.0", "192.0.2.7"]
