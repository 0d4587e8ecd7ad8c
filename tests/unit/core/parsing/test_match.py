"""What a rule matches and what it counts per, as read from data."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.core.address import parse_network
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.core.rule import Match, Rule
from headgate.errors import InvalidRules


def rule(**fields: Any) -> Rule:  # noqa: ANN401 (fields of any shape)
    """The rule that these fields make."""
    tiers: dict[str, Any] = {"free": {}, "premium": {}}
    return parse_rule_set({"tiers": tiers, "rules": [{"name": "search", "limits": "5/minute"} | fields]}).rules[0]


def problems(**fields: Any) -> list[str]:  # noqa: ANN401 (fields of any shape)
    """What is wrong with such a rule."""
    with pytest.raises(InvalidRules) as caught:
        rule(**fields)
    return list(caught.value.lines)


@pytest.mark.parametrize("match", [None, {}, {"endpoints": None, "attributes": {}}])
def test_a_rule_without_conditions_matches_everything(match: dict[str, Any] | None) -> None:
    """A rule that gives no conditions concerns every request."""
    assert rule(match=match).match == Match()


def test_a_single_text_is_a_list_of_one() -> None:
    """Where several texts may stand, one may stand alone."""
    made = rule(match={"endpoints": "/api/*", "methods": "get", "tiers": "free", "ip_ranges": "10.0.0.0/8"})
    assert made.match == Match(("/api/*",), ("GET",), ("free",), (parse_network("10.0.0.0/8"),))


def test_what_is_written_twice_counts_once() -> None:
    """The same condition in two spellings is one condition."""
    match = {
        "endpoints": ["/api", "/api/", "//api", "/%61pi"],
        "methods": ["GET", "get"],
        "tiers": ["free", "free"],
        "ip_ranges": ["10.0.0.0/8", "::ffff:10.0.0.0/104"],
    }
    assert rule(match=match).match == Match(("/api",), ("GET",), ("free",), (parse_network("10.0.0.0/8"),))


@pytest.mark.parametrize("method", ["GET", "m-search", "X_Y", "PROPFIND", "A1", "x" * 32])
def test_any_token_is_a_method(method: str) -> None:
    """Methods are not only those of HTTP's own list."""
    assert rule(match={"methods": method}).match.methods == (method.upper(),)


REFUSED: list[tuple[object, str]] = [
    ([], "rules[0].match: expected a mapping with endpoints, methods, tiers…, not []"),
    ("", "rules[0].match: expected a mapping"),
    (False, "rules[0].match: expected a mapping"),
    (0, "rules[0].match: expected a mapping"),
    ("/api", "rules[0].match: expected a mapping with endpoints, methods, tiers…, not '/api'"),
    ({"endpoint": "/api"}, "rules[0].match.endpoint: unknown field; did you mean 'endpoints'?"),
    ({"path": "/api"}, "rules[0].match.path: unknown field; known are endpoints, methods, tiers"),
    ({"endpoints": []}, "rules[0].match.endpoints: expected a list of texts, not []"),
    ({"endpoints": {}}, "rules[0].match.endpoints: expected a list of texts, not {}"),
    ({"endpoints": 5}, "rules[0].match.endpoints: expected a list of texts, not 5"),
    ({"endpoints": [5, "api"]}, "rules[0].match.endpoints[0]: expected a text, not 5"),
    ({"endpoints": [5, "api"]}, "rules[0].match.endpoints[1]: 'api' does not start with '/'"),
    ({"endpoints": [""]}, "rules[0].match.endpoints[0]: expected a text, not ''"),
    ({"endpoints": ["/a\x00"]}, "rules[0].match.endpoints[0]: '/a\\x00' contains '\\x00', which cannot be part"),
    ({"methods": ["GET", "G T"]}, "rules[0].match.methods[1]: 'G T' is not an HTTP method"),
    ({"methods": ["\u00df"]}, "rules[0].match.methods[0]: 'ß' is not an HTTP method"),
    ({"methods": ["\u0131"]}, "is not an HTTP method"),
    ({"methods": ["1GET"]}, "is not an HTTP method"),
    ({"methods": ["x" * 33]}, "is not an HTTP method"),
    ({"tiers": [None]}, "rules[0].match.tiers[0]: expected a text, not None"),
    ({"tiers": ["free", "gold"]}, "rules[0].match.tiers: there is no tier 'gold'"),
    ({"tiers": ["Free"]}, "rules[0].match.tiers: there is no tier 'Free'"),
    (
        {"ip_ranges": ["10.0.0.1/8"]},
        "rules[0].match.ip_ranges[0]: '10.0.0.1/8' is not the start of its range; write 10.0.0.0/8",
    ),
    ({"ip_ranges": ["here"]}, "rules[0].match.ip_ranges[0]: 'here' is not a range of addresses"),
    ({"ip_ranges": [167772160]}, "rules[0].match.ip_ranges[0]: expected a text, not 167772160"),
    ({"attributes": []}, "rules[0].match.attributes: expected a mapping of names, not []"),
    ({"attributes": "region=eu"}, "rules[0].match.attributes: expected a mapping of names, not 'region=eu'"),
    ({"attributes": {"flag": True}}, "rules[0].match.attributes.flag: expected a text, not True; put it in quotes"),
    ({"attributes": {"version": 1.0}}, "rules[0].match.attributes.version: expected a text, not 1.0; put it in quotes"),
    ({"attributes": {"region": None}}, "rules[0].match.attributes.region: expected a text, not None"),
    ({"attributes": {"region": ["eu"]}}, "rules[0].match.attributes.region: expected a text, not ['eu']"),
    ({"attributes": {"region": "a\x00"}}, "rules[0].match.attributes.region: expected a text"),
    ({"attributes": {5: "x"}}, "rules[0].match.attributes[5]: the name of an attribute is a text"),
    ({"attributes": {"": "x"}}, "rules[0].match.attributes['']: the name of an attribute is a text"),
    ({"attributes": {"a\nb": 5}}, "rules[0].match.attributes['a\\nb']: expected a text, not 5"),
]


@pytest.mark.parametrize(("match", "sentence"), REFUSED, ids=lambda value: ascii(value)[:40])
def test_a_wrong_condition_is_named(match: object, sentence: str) -> None:
    """Whatever is wrong with a condition is said with its place, and never taken for no condition at all."""
    assert any(sentence in line for line in problems(match=match)), problems(match=match)


def test_a_line_break_in_a_name_cannot_fake_a_line() -> None:
    """A name with a line break in it is quoted where it appears in a message."""
    lines = problems(match={"a\nrules[0].name: fine": 1})
    assert lines[0].startswith("rules[0].match['a\\nrules[0].name: fine']: unknown field")


@pytest.mark.parametrize(
    ("per", "order"),
    [
        (None, ("global",)),
        ("user", ("user",)),
        (["ip", "user"], ("user", "ip")),
        (["method", "endpoint", "tenant"], ("tenant", "endpoint", "method")),
        (["attribute:b", "attribute:a", "api_key"], ("api_key", "attribute:a", "attribute:b")),
        (["user", "user"], ("user",)),
        (["global"], ("global",)),
    ],
)
def test_the_order_of_per_does_not_matter(per: object, order: tuple[str, ...]) -> None:
    """Counters are the same in whatever order their parts are written."""
    assert rule(per=per).per == order
    assert rule(per=per).layer == "+".join(order)


@pytest.mark.parametrize(
    ("per", "sentence"),
    [
        ("customer", "rules[0].per[0]: 'customer' is not something to count per; use global, tenant, user"),
        (["user", "User"], "rules[0].per[1]: 'User' is not something to count per"),
        ("attribute:", "rules[0].per[0]: 'attribute:' is not something to count per"),
        ("attribute:a b", "rules[0].per[0]: 'attribute:a b' is not something"),
        ("attribute:a|b", "is not something"),
        ("attribute:{a}", "is not something"),
        ("attribute", "is not something"),
        ([], "rules[0].per: expected a list of texts, not []"),
        ({"user": 1}, "rules[0].per: expected a list of texts"),
        ([None], "rules[0].per[0]: expected a text, not None"),
        (["global", "user"], "rules[0].per: 'global' counts all callers together, so it stands alone"),
    ],
)
def test_what_cannot_be_counted_per_is_refused(per: object, sentence: str) -> None:
    """A part of `per` that nothing can be counted by is refused by name."""
    assert any(sentence in line for line in problems(per=per)), problems(per=per)
