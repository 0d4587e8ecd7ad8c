"""Paths that servers read in several ways: no reading is a way around a rule, or into an exemption."""

from __future__ import annotations

import re
from itertools import product
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.unit.core.test_matching_reference import RULES, TIERS, named, no_zones

from headgate.core.explanation import explain
from headgate.core.matching import Snapshot
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.core.path import MAX_PATH, Spelling, readings
from headgate.core.request import Request
from headgate.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable

SEARCH = {"name": "search", "match": {"endpoints": ["/search/{term}"]}, "per": ["ip"], "limits": "1/day"}
FILES = {"name": "files", "match": {"endpoints": ["/files/*"]}, "per": ["ip"], "limits": "1/day"}
ADMIN = {"name": "admin", "match": {"endpoints": ["/admin/*"]}, "action": "block"}
HEALTH = {"name": "health", "match": {"endpoints": ["/health/*"]}, "action": "allow"}


def snapshot(*rules: dict[str, Any], **around: Any) -> Snapshot:  # noqa: ANN401 (parts of a rule set)
    return Snapshot(parse_rule_set({"rules": list(rules), **around}), 1, no_zones, FakeClock())


def deciding(made: Snapshot, path: str) -> list[str]:
    plan = made.plan(Request(ip="192.0.2.1", path=path))
    return [plan.gate.name] if plan.gate else sorted(bound.rule.name for bound in plan.enforced)


@pytest.mark.parametrize(
    ("path", "rules"),
    [
        ("/search/a%5Cb", ["search"]),
        ("/search/a\\b", ["search"]),
        ("/search/a%2Fb", ["search"]),
        ("/search/.", ["search"]),
        ("/search/%2E", ["search"]),
        ("/search/..%5Cq", ["search"]),
        ("/search/..%2fq", ["search"]),
        ("/search/a%5c..%2f..%2fb", ["search"]),
        ("/search/a#/b", ["search"]),
        ("/search#/a", []),
        ("/files/..%2fx", ["files"]),
        ("/files/%2e%2e/x", ["files"]),
        ("/files/a/..%2f..%2fx", ["files"]),
        ("/files/x/../../y", ["files"]),
        ("/files//../x", ["files"]),
        ("/search\\a%5Cb", ["search"]),
        ("/search\\a%5C..%5C..%5Cb", ["search"]),
        ("/search/x/../a%2F%2e%2e", ["search"]),
        ("/x/../files%2F..%2Fa", ["files"]),
        ("/files/a/%2e%2e%2F..%2F..%2Fx/../b", ["files"]),
        ("/files\\..\\x", ["files"]),
        ("/files//%2e%2e/../x", ["files"]),
        ("//host/search/a", ["search"]),
        ("/\\host/x/../search/a", ["search"]),
        ("//search/a", ["search"]),
        ("/search//a", ["search"]),
        ("/search/a/", ["search"]),
        ("/x/..%5cfiles/a", ["files"]),
        ("/x/../files/a", ["files"]),
        ("/search/..%2ffiles%2fa", ["files", "search"]),
        ("/admin/..%2fx", ["admin"]),
        ("/admin/../search/a", ["admin"]),
        ("/admin/x/..%5c..%5cpublic", ["admin"]),
        ("/health/ready", ["health"]),
        ("/health/a%2Fb", ["health"]),
        ("/health/../search/a", ["search"]),
        ("/health/..%2Fsearch%2Fa", ["search"]),
        ("/search/..%2Fhealth", ["search"]),
        ("/health/../admin/a", ["admin"]),
        ("/other/a%2Fb", []),
    ],
)
def test_the_rules_of_each_reading_apply(path: str, rules: list[str]) -> None:
    """A path that one back end takes for a search and another for something else is a search, too."""
    made = snapshot(SEARCH, FILES, ADMIN, HEALTH)
    assert deciding(made, path) == deciding(made, path) == rules


def test_of_one_layer_the_best_of_each_reading_applies() -> None:
    """A generous rule for one reading does not replace the strict rule for the other."""
    strict = {"name": "api", "match": {"endpoints": ["/api/*"]}, "limits": "10/minute"}
    generous = {"name": "reports", "match": {"endpoints": ["/api/reports/{id}"]}, "limits": "1000/minute"}
    made = snapshot(strict, generous)
    assert deciding(made, "/api/reports/7") == ["reports"]
    assert deciding(made, "/api/reports/..%2fsearch") == ["api", "reports"]


def test_conditions_hold_for_each_reading() -> None:
    """Where addresses decide, they do so for each reading by itself."""
    inside = SEARCH | {"match": {"endpoints": ["/search/{term}"], "ip_ranges": ["192.0.2.0/24"]}}
    made = snapshot(inside, FILES)
    assert deciding(made, "/search/..%2Ffiles") == ["files", "search"]
    elsewhere = made.plan(Request(ip="198.51.100.1", path="/search/..%2Ffiles"))
    assert [bound.rule.name for bound in elsewhere.enforced] == ["files"]


def test_what_is_exempt_in_all_readings_is_exempt() -> None:
    """Also where different rules exempt it."""
    made = snapshot(HEALTH, SEARCH, {"name": "up", "match": {"endpoints": ["/up"]}, "action": "allow"})
    assert deciding(made, "/health/..%2Fup") == ["up"]
    assert deciding(made, "/up/..%2Fsearch%2Fa") == ["search"]


def test_parameters_are_cut_off_in_each_reading() -> None:
    """With `strip_parameters`, a dot segment with a parameter is one."""
    made = snapshot(FILES, strip_parameters=True)
    assert deciding(made, "/x/..;v=1/files/a") == ["files"]
    assert deciding(made, "/files/..;v=1/x") == ["files"]


def test_each_pattern_of_a_rule_counts_what_a_back_end_may_take_for_it() -> None:
    """Per endpoint a rule has a counter for each pattern: where the readings lead to several, all of them count."""
    match = {"endpoints": ["/items/{id}", "/items/{id}/{sub}", "/items/*"]}
    made = snapshot({"name": "items", "match": match, "per": ["user", "endpoint"], "limits": "5/day"})
    request = Request(user="u", path="/items/a%5Cb%5Cc")
    patterns = [bound.hit.key.split("e=")[1] for bound in made.plan(request).enforced]
    assert len(patterns) == len(set(patterns)) == 2
    assert made.plan(Request(user="u", path="/items/x")).enforced[0].hit.key in {
        bound.hit.key for bound in made.plan(request).enforced
    }
    (layer,) = explain(made, request).layers
    assert layer.winner is not None
    assert layer.winner.bounds == made.plan(request).enforced
    assert len(made.plan(request._replace(route="/items/{name}")).enforced) == 1, "the route is the one counter"


def test_an_explanation_compares_the_rules_with_few_readings() -> None:
    """Of readings that the same patterns match, the first: a rule set may have 20,000 rules."""
    path = "/search/../b%2Fc//%2e%2e/d\\e"
    assert len(readings(path)) > 10
    assert [reading.path for reading in snapshot(FILES).readings(path)] == ["/search/../b/c//../d/e"]
    seen = [Spelling().of_reading(reading) for reading in snapshot(SEARCH, FILES).readings("/search/..%2Ffiles")]
    assert seen == ["/files", "/search/../files", "/search/..%2Ffiles"]


def test_an_explanation_names_the_other_readings() -> None:
    """`explain` says what else the path is, and which rules apply for that reason."""
    made = snapshot(SEARCH, FILES, HEALTH)
    explained = explain(made, Request(ip="192.0.2.1", path="/search/..%2Ffiles"))
    assert explained.as_dict()["request"]["path"] == "/files"
    assert "/search/..%2Ffiles" in explained.as_dict()["request"]["also_read_as"]
    winners = [layer.winner.rule.name for layer in explained.layers if layer.winner]
    assert winners == ["files", "search"]
    exempt = explain(made, Request(path="/files/../health"))
    assert [(lost.rule.name, "several ways" in lost.why) for lost in exempt.other_gates] == [("health", True)]
    assert "also_read_as" not in explain(made, Request(path="/files/a.b")).as_dict()["request"]


@pytest.mark.parametrize("path", ["/", "/api/search", "/a.b/c", "/a%20b", "/caf%C3%A9", "/100%", "/a;b", "/...", "*"])
def test_usual_paths_have_one_reading(path: str) -> None:
    """Nothing is looked up twice for paths on which servers agree."""
    assert len(readings(path)) == 1


def test_readings_are_few_and_long_paths_have_them_too() -> None:
    """However a path is written, there is a bound on its readings; it may be as long as any other."""
    worst = ("/a%2F\\..//./" * MAX_PATH)[: MAX_PATH - 2] + "#/"
    assert len(readings(worst)) <= 40
    made = snapshot(SEARCH)
    assert deciding(made, "/search/" + "\\" * (MAX_PATH - 8)) == ["search"]
    assert deciding(made, "/search/" + "%2F." * ((MAX_PATH - 8) // 4)) == ["search"]


def test_empty_segments_may_be_segments() -> None:
    """To a back end that keeps them, a path with a double slash is below a prefix and is no template's."""
    cheap = {"name": "one", "match": {"endpoints": ["/files/{name}"]}, "layer": "l", "limits": "1000/minute"}
    dear = {"name": "all", "match": {"endpoints": ["/files/*"]}, "layer": "l", "limits": "5/minute"}
    made = snapshot(cheap, dear)
    assert deciding(made, "/files/name") == deciding(made, "/files/name/") == ["one"]
    assert deciding(made, "/files//name") == deciding(made, "/files%2F/name") == ["all", "one"]
    assert deciding(snapshot(cheap), "/files//") == []


def _as_flask(path: str) -> str:
    return unquote(path)


def _as_express(path: str) -> str:
    return "/".join(unquote(part).replace("/", "%2F") for part in path.split("/"))


def _whatwg(path: str) -> str:
    """`new URL(path, "http://host").pathname`: the path state of the URL Standard, for an http URL.

    https://url.spec.whatwg.org/#path-state
    """
    path = re.split("[?#]", path.replace("\\", "/"))[0]
    if path.startswith("//"):
        path = "/" + path.lstrip("/").partition("/")[2]
    found: list[str] = []
    parts = path[1:].split("/")
    for place, part in enumerate(parts, 1):
        plain = part.lower().replace("%2e", ".")
        if plain == "..":
            found = found[:-1]
        elif plain != ".":
            found.append(part)
        if plain in {".", ".."} and place == len(parts):
            found.append("")
    return "/" + "/".join(found)


def _java(path: str) -> str:
    """`java.net.URI.normalize`: dots that are not encoded are resolved, and double slashes merged."""
    found: list[str] = []
    for part in path.partition("#")[0].split("/"):
        if part == "..":
            found = found[:-1]
        elif part not in {"", "."}:
            found.append(part)
    return "/" + "/".join(found)


RESOLVERS: tuple[Callable[[str], str], ...] = (str, _whatwg, _java)
BACK_ENDS = (_as_flask, _as_express)
HOSTILE = st.lists(
    st.sampled_from(["/", "//", "\\", "..", ".", "%2e", "%2F", "%5C", "a", "b", "files", "search", "%25", "#", ";"]),
    max_size=10,
).map("".join)


@settings(max_examples=400, deadline=None)
@example("files/..%2Fa")
@example("search/a%5Cb")
@example("search\\a%5Cb")
@example("/host/search/a")
@given(HOSTILE)
def test_what_a_back_end_routes_is_what_rules_see(path: str) -> None:
    """The path that a back end routes by is among the readings, whether it parses it as a URL first or not."""
    path = f"/{path}"
    seen = {Spelling().of_reading(reading) for reading in readings(path)}
    kept = {reading.rstrip("/") for reading in seen}
    for resolve, back_end in product(RESOLVERS, BACK_ENDS):
        routed = back_end(resolve(path)).rstrip("/")
        assert "/" + "/".join(filter(None, routed.split("/"))) in seen
        assert routed in kept or "//" not in routed


@settings(max_examples=100, deadline=None)
@given(RULES, st.lists(st.sampled_from(["/", "a", "b", "..", ".", "%2F", "\\", "//"]), max_size=7).map("".join))
def test_plan_and_explanation_agree(rules: list[dict[str, Any]], path: str) -> None:
    """For any rules and any such path, an explanation names the gate and the rules of the plan."""
    tiers: dict[str, Any] = {name: {"limits": {}} for name in TIERS}
    made = snapshot(*named(rules), tiers=tiers)
    request = Request(path=f"/{path}", method="GET", ip="10.1.2.3")
    plan, explanation = made.plan(request), explain(made, request)
    applied = [each for layer in explanation.layers for each in (layer.winner, layer.watched) if each]
    counted = {bound.rule.name for bound in (*plan.enforced, *plan.shadows)}
    assert sorted(each.rule.name for each in applied) == sorted({*counted, *(rule.name for rule in plan.unlimited)})
    gates = explanation.as_dict()["gates"]
    assert [gate["rule"] for gate in gates if gate["decides"]] == ([plan.gate.name] if plan.gate else [])
    lost = {each.rule.name for layer in explanation.layers for each in layer.lost}
    assert not lost & {each.rule.name for each in applied}
