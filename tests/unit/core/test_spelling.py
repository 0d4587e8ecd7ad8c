"""Paths that some back ends take for one: by letter case, and by what follows a semicolon."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.adapters.zones import zone
from headgate.core.explanation import explain
from headgate.core.matching import Snapshot
from headgate.core.parsing.rule_set import parse_part, parse_rule_set
from headgate.core.request import Request
from headgate.core.rule_data import brief_rule_set, rule_set_data
from headgate.errors import InvalidRequest, InvalidRules
from headgate.testing import FakeClock

BOTH = {"case_sensitive": False, "strip_parameters": True}


def snapshot(data: object) -> Snapshot:
    return Snapshot(parse_rule_set(data), 1, zone, FakeClock())


def search(**match: object) -> dict[str, Any]:
    return {"name": "search", "limits": "5/minute", "match": {"endpoints": ["/api/Search"], **match}}


def applied(made: Snapshot, path: str, method: str | None = None) -> list[str]:
    return sorted(bound.rule.name for bound in made.plan(Request(path=path, method=method)).enforced)


@pytest.mark.parametrize(
    ("path", "plain", "folded", "stripped", "both"),
    [
        ("/api/Search", True, True, True, True),
        ("/API/search", False, True, False, True),
        ("/api/Search;v=1", False, False, True, True),
        ("/api;x/SEARCH;v=1", False, False, False, True),
        ("/api/%53earch", True, True, True, True),
        ("/api/Search%20", False, False, False, False),
        ("/api/x/..;/Search", False, False, True, True),
    ],
)
def test_a_rule_set_says_what_its_back_end_ignores(
    path: str, *, plain: bool, folded: bool, stripped: bool, both: bool
) -> None:
    """Without a word, letter case counts and a parameter is a part of the path; a blank always is."""
    found = [
        bool(applied(snapshot({"rules": [search()], **options}), path))
        for options in ({}, {"case_sensitive": False}, {"strip_parameters": True}, BOTH)
    ]
    assert found == [plain, folded, stripped, both]


def test_a_rule_may_say_otherwise_than_its_rule_set() -> None:
    """The fields at the top are what rules have that say nothing; rules of both kinds work side by side."""
    rules = [
        search(),
        search(case_sensitive=True) | {"name": "strict", "layer": "strict"},
        {"name": "all", "limits": "9/minute"},
    ]
    made = snapshot({"rules": rules, "case_sensitive": False})
    assert applied(made, "/API/SEARCH") == ["all", "search"]
    assert applied(made, "/api/Search") == ["all", "search", "strict"]


def test_letters_of_all_languages_are_folded() -> None:
    """Case is folded as Unicode does it, which takes the most spellings for one."""
    rule = {"name": "r", "limits": "5/minute", "match": {"endpoints": ["/Straße/{Id}", "/ÄRGER/*"]}}
    made = snapshot({"rules": [rule], "case_sensitive": False})
    for path in ("/STRASSE/1", "/straße/X", "/ärger", "/%C3%A4rger/x/y", "/Ärger/X"):
        assert applied(made, path) == ["r"], path


PATHS = st.sampled_from(["/a", "/A", "/a;x", "/A;x/B", "/a/b", "/a/B;y", "/x/..;/a", "/b", "/"])
PATTERNS = st.lists(
    st.sampled_from(["/a", "/A", "/a/b", "/A/{x}", "/{X}", "/a/*", "/*"]), min_size=1, max_size=3, unique=True
)
RULES = st.lists(st.tuples(PATTERNS, st.booleans(), st.booleans()), min_size=1, max_size=5)


@given(RULES, PATHS)
def test_the_index_finds_what_an_explanation_finds(rules: list[tuple[list[str], bool, bool]], path: str) -> None:
    """With rules of every spelling side by side, `plan` and `explain` agree."""
    made = snapshot(
        [
            {
                "name": f"rule{index}",
                "limits": "5/minute",
                "match": {"endpoints": patterns, "case_sensitive": sensitive, "strip_parameters": strip},
            }
            for index, (patterns, sensitive, strip) in enumerate(rules)
        ]
    )
    explained = explain(made, Request(path=path))
    winners = [layer.winner.rule.name for layer in explained.layers if layer.winner is not None]
    assert winners == applied(made, path)


def test_written_down_and_read_again_it_is_the_same() -> None:
    """A rule carries its spelling, so that it means the same in a database, a dump and another file."""
    rules = [search(), search(case_sensitive=True) | {"name": "strict"}, {"name": "all", "limits": "9/minute"}]
    read = parse_rule_set({"rules": rules, **BOTH})
    assert parse_rule_set(rule_set_data(read)) == read
    assert parse_rule_set(brief_rule_set(read)) == read
    assert parse_part({"rules": rules, **BOTH}).rules == read.rules
    brief = [rule.get("match") for rule in brief_rule_set(read)["rules"]]
    assert brief == [
        {"endpoints": ["/api/Search"], **BOTH},
        {"endpoints": ["/api/Search"], "strip_parameters": True},
        None,
    ]


@pytest.mark.parametrize(
    ("data", "line"),
    [
        ({"rules": [search()], "case_sensitive": "no"}, "case_sensitive: expected true or false, not 'no'"),
        (
            {"rules": [{"name": "r", "limits": "5/minute"}], "case_sensitive": False},
            "case_sensitive: has no effect, since no rule here has endpoints; leave it out",
        ),
        (
            {"rules": [{"name": "r", "limits": "5/minute", "match": {"strip_parameters": True}}]},
            "rules[0].match.strip_parameters: has no effect without endpoints; leave it out",
        ),
        (
            {"rules": [search(endpoints=["/a;v=1"], strip_parameters=True)]},
            "rules[0].match.endpoints: '/a;v=1' has a parameter, which strip_parameters removes from all paths",
        ),
        (
            {"rules": [search(endpoints=["/a%0a"])]},
            "rules[0].match.endpoints[0]: '/a%0a' has a control character, and requests with one are refused",
        ),
    ],
)
def test_what_has_no_effect_is_refused(data: object, line: str) -> None:
    """A field that changes nothing, and an endpoint that no path can match, are problems."""
    with pytest.raises(InvalidRules) as caught:
        parse_rule_set(data)
    assert list(caught.value.lines) == [line]


@pytest.mark.parametrize(
    "method", [" GET", "GET ", "GET\n", "G ET", "GET\x00", "PO\u017fT", "\N{KELVIN SIGN}", "a/b", "\t"]
)
def test_a_method_is_a_token(method: str) -> None:
    """A method that no server would take for one does not pass by the rules for a method."""
    made = snapshot([search(methods=["GET", "POST"])])
    with pytest.raises(InvalidRequest, match="is not a token"):
        made.plan(Request(path="/api/Search", method=method))


@pytest.mark.parametrize("method", ["GET", "get", "Head", "POST", "", None])
def test_methods_are_compared_whatever_their_case(method: str | None) -> None:
    """Tokens are compared in upper case, and an empty one is none."""
    made = snapshot([search(methods=["GET", "POST"])])
    assert applied(made, "/api/Search", method) == (["search"] if method else [])
