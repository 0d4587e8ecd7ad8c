"""A rule that is said to be unreached wins no request, whatever the rules and whatever the request."""

from __future__ import annotations

from typing import Any
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from headgate.core.explanation import explain
from headgate.core.matching import Snapshot
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.core.request import Request
from headgate.core.rule_reach import reach_of

ENDPOINTS = st.lists(st.sampled_from(["/a", "/a/b", "/a/{x}", "/a/*", "/{x}", "/*", "/{x}/b"]), max_size=2, unique=True)
METHODS = st.lists(st.sampled_from(["GET", "HEAD", "POST"]), max_size=2, unique=True)
RANGES = st.lists(st.sampled_from(["10.0.0.0/8", "10.1.0.0/16", "::/0"]), max_size=2, unique=True)
ATTRIBUTES = st.dictionaries(st.sampled_from(["x", "y"]), st.sampled_from(["1", "2"]), max_size=1)
ACTIONS = st.sampled_from(["reject", "reject", "log", "allow", "block"])


@st.composite
def rule_sets(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Some rules of two layers, with conditions that often overlap."""
    rules = []
    for number in range(draw(st.integers(2, 5))):
        match = {
            "endpoints": draw(ENDPOINTS),
            "methods": draw(METHODS),
            "ip_ranges": draw(RANGES),
            "attributes": draw(ATTRIBUTES),
        }
        match = {name: wanted for name, wanted in match.items() if wanted}
        action = draw(ACTIONS)
        rule = {"name": f"r{number}", "match": match, "action": action, "priority": draw(st.sampled_from([1, 2]))}
        if action not in {"allow", "block"}:
            rule |= {"limits": "5/minute", "layer": draw(st.sampled_from(["one", "two"]))}
        rules.append(rule)
    return rules


REQUESTS = [
    Request(path=path, method=method, ip=ip, attributes=attributes)
    for path in ("/", "/a", "/a/b", "/a/c", "/b/b", "/a/b/c")
    for method in ("GET", "HEAD", "POST", "PUT")
    for ip in ("10.1.2.3", "10.2.3.4", "2001:db8::1", None)
    for attributes in ({}, {"x": "1"}, {"x": "2", "y": "1"})
]


@given(rule_sets())
def test_unreached_rules_win_nothing(rules: list[dict[str, Any]]) -> None:
    """`explain` names every winner; none of them is a rule that was said to be unreached."""
    snapshot = Snapshot(parse_rule_set(rules), 1, ZoneInfo, lambda: 0)
    unreached = {each.rule for each in reach_of(snapshot.rule_set).unreached}
    if not unreached:
        return
    for request in REQUESTS:
        explanation = explain(snapshot, request)
        won = {layer.winner.rule.name for layer in explanation.layers if layer.winner is not None}
        won |= {layer.watched.rule.name for layer in explanation.layers if layer.watched is not None}
        gate = explanation.plan.gate
        won |= set() if gate is None else {gate.name}
        assert not won & unreached
