from __future__ import annotations

from typing import Any

from headgate.adapters.zones import zone
from headgate.core.matching import Plan, Snapshot
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.core.request import Request
from headgate.testing import FakeClock


def snapshot(*rules: dict[str, Any]) -> Snapshot:
    return Snapshot(parse_rule_set([{"limits": "5/minute", **rule} for rule in rules]), 1, zone, FakeClock())


def gate(name: str, action: str, **fields: object) -> dict[str, Any]:
    return {"name": name, "action": action, "limits": None, **fields}


def names(plan: Plan) -> list[str]:
    return sorted(bound.rule.name for bound in plan.enforced)


def test_each_layer_has_one_winner_and_all_layers_apply() -> None:
    """A user-wide rule and a rule for the user's searches are two layers, and both apply."""
    plan = snapshot(
        {"name": "wide", "per": "user"},
        {"name": "search", "per": "user", "match": {"endpoints": "/search"}},
        {"name": "search-post", "per": "user", "match": {"endpoints": "/search", "methods": "POST"}},
        {"name": "all"},
    ).plan(Request(user="u", path="/search", method="POST"))
    assert names(plan) == ["all", "search-post", "wide"]


def test_a_lower_number_wins_whatever_is_more_specific() -> None:
    """Priority is looked at before anything else, and lower wins."""
    rules = snapshot(
        {"name": "exact", "layer": "one", "match": {"endpoints": "/a"}},
        {"name": "any", "layer": "one", "priority": 99},
    )
    assert names(rules.plan(Request(path="/a"))) == ["any"]


def test_the_more_specific_endpoint_wins() -> None:
    """Of one priority, an exact path comes before a template, that before prefixes, the longer first, then the rest."""
    rules = snapshot(
        {"name": "any", "layer": "one", "match": {"endpoints": "*", "methods": "GET", "attributes": {"x": "1"}}},
        {"name": "short", "layer": "one", "match": {"endpoints": "/a/*"}},
        {"name": "long", "layer": "one", "match": {"endpoints": "/a/b/*"}},
        {"name": "template", "layer": "one", "match": {"endpoints": "/a/{x}/c"}},
        {"name": "exact", "layer": "one", "match": {"endpoints": "/a/b/c"}},
    )
    expected = {"/a/b/c": "exact", "/a/x/c": "template", "/a/b/x": "long", "/a/b": "long", "/a/x": "short", "/x": "any"}
    for path, name in expected.items():
        request = Request(path=path, method="GET", attributes={"x": "1"})
        assert names(rules.plan(request)) == [name], path


def test_the_names_of_parameters_do_not_matter() -> None:
    """A prefix is longer by its segments, not by how its parameters are called; of equals the name decides."""
    rules = snapshot(
        {"name": "a-tenant", "layer": "one", "match": {"endpoints": "/{a_long_name_for_it}/*"}},
        {"name": "api", "layer": "one", "match": {"endpoints": "/v/*"}},
        {"name": "deep", "layer": "one", "match": {"endpoints": "/v/x/*"}},
    )
    assert names(rules.plan(Request(path="/v/y"))) == ["a-tenant"]
    assert names(rules.plan(Request(path="/v/x"))) == ["deep"]
    assert names(rules.plan(Request(path="/w/x"))) == ["a-tenant"]


def test_a_tie_goes_to_more_conditions_and_then_to_the_name() -> None:
    """Between equally specific endpoints the number of conditions decides, each attribute by itself; then the name."""
    rules = snapshot(
        {"name": "b", "layer": "one", "match": {"methods": "GET"}},
        {"name": "a", "layer": "one", "match": {"methods": "GET"}},
        {"name": "c", "layer": "one", "match": {"attributes": {"x": "1", "y": "2"}}},
    )
    assert names(rules.plan(Request(method="GET"))) == ["a"]
    assert names(rules.plan(Request(method="GET", attributes={"x": "1", "y": "2"}))) == ["c"]
    assert names(rules.plan(Request(method="GET", attributes={"x": "1", "y": "3"}))) == ["a"]
    assert names(rules.plan(Request(attributes={"y": "2"}))) == []


def test_a_layer_has_a_watched_winner_beside_the_enforced_one() -> None:
    """A `log` rule competes only with other `log` rules of its layer."""
    plan = snapshot(
        {"name": "enforced", "priority": 900},
        {"name": "trial", "action": "log", "priority": 1},
        {"name": "other-trial", "action": "log", "priority": 2},
    ).plan(Request())
    assert names(plan) == ["enforced"]
    assert [bound.rule.name for bound in plan.shadows] == ["trial"]


def test_allow_exempts_from_everything() -> None:
    """A request that an `allow` rule concerns is not asked about in any layer, watched ones included."""
    plan = snapshot(
        {"name": "limit"},
        {"name": "trial", "action": "log"},
        gate("office", "allow", match={"ip_ranges": ["192.0.2.0/24"]}),
    ).plan(Request(ip="192.0.2.7"))
    assert plan.gate is not None
    assert plan.gate.name == "office"
    assert (plan.enforced, plan.shadows, plan.unlimited) == ((), (), ())


def test_gates_go_by_priority_and_block_wins_a_tie() -> None:
    """Between `allow` and `block` the lower priority decides, and `block` where they are equal, however specific."""
    tie = snapshot(gate("a", "allow", match={"endpoints": "/x", "methods": "GET"}), gate("b", "block"))
    assert winner(tie) == "b"
    first = snapshot(gate("a", "allow", priority=1), gate("b", "block", match={"endpoints": "/x"}))
    assert winner(first) == "a"


def winner(rules: Snapshot) -> str:
    chosen = rules.plan(Request(path="/x", method="GET")).gate
    assert chosen is not None
    return chosen.name


def test_a_rule_that_is_not_enabled_does_not_exist() -> None:
    """A disabled rule neither applies nor keeps others from applying."""
    plan = snapshot(
        {"name": "off", "enabled": False, "priority": 1},
        {"name": "on"},
        gate("off-gate", "block", enabled=False),
    ).plan(Request())
    assert (names(plan), plan.gate) == (["on"], None)


def test_head_is_counted_as_get() -> None:
    """A rule for GET also concerns HEAD, and both count on one counter and cost the same."""
    rules = snapshot({"name": "reads", "match": {"methods": ["GET"]}, "per": ["ip", "method"], "cost": {"GET": 3}})
    get, head = (rules.plan(Request(method=method, ip="192.0.2.1")).enforced[0].hit for method in ("get", "HEAD"))
    assert get == head
    assert head.cost == 3
    only = snapshot({"name": "heads", "match": {"methods": ["HEAD"]}})
    assert names(only.plan(Request(method="GET"))) == []
    assert names(only.plan(Request(method="HEAD"))) == ["heads"]


def test_a_template_may_be_written_under_two_names() -> None:
    """Templates that differ only in the names of their parameters match the same paths."""
    rules = snapshot(
        {"name": "first", "layer": "one", "match": {"endpoints": "/u/{id}"}},
        {"name": "second", "layer": "two", "match": {"endpoints": "/u/{name}"}},
    )
    assert names(rules.plan(Request(path="/u/7"))) == ["first", "second"]
    assert names(rules.plan(Request(path="/u"))) == []
    assert names(rules.plan(Request(path="/u/7/8"))) == []


def test_two_patterns_of_one_rule_are_one_rule() -> None:
    """A rule with several endpoints applies once, with the most specific pattern that matched."""
    rules = snapshot({"name": "r", "per": "endpoint", "match": {"endpoints": ["/a/*", "/a/{x}", "/a/b"]}})
    keys = [rules.plan(Request(path=path)).enforced[0].hit.key for path in ("/a/b", "/a/c", "/a/b/c")]
    assert keys == ["rl:{e=/a/b}:r:sc1m", "rl:{e=/a/%7Bx%7D}:r:sc1m", "rl:{e=/a/*}:r:sc1m"]


def test_a_path_of_a_thousand_segments_is_looked_up() -> None:
    """However deep patterns and paths are, looking them up needs no deep stack."""
    deep = "/a" * 480 + "/{x}"
    rules = snapshot({"name": "deep", "match": {"endpoints": deep}})
    assert names(rules.plan(Request(path="/a" * 481))) == ["deep"]
    assert names(rules.plan(Request(path="/a" * 4_000))) == []


def test_a_verdict_can_name_its_snapshot() -> None:
    """A plan carries the number of the snapshot that made it."""
    assert snapshot({"name": "r"}).plan(Request()).snapshot == 1
