"""What differs between two rule sets, for programs and for people."""

from __future__ import annotations

import json
from dataclasses import replace

from headgate.core.rule_difference import Contents, Difference, FieldChange, OwnLimitHolders, difference

SEARCH = {"name": "search", "limits": ["100/hour"], "match": {"attributes": {}}, "enabled": True}
BEFORE = Contents(
    {"search": SEARCH, "old": SEARCH, "same": SEARCH},
    {"free": {"price": 0, "limits": {"search": ["1/hour"]}}, "gone": {}, "same": {}},
    "free",
    {"search": "a.yaml", "old": "a.yaml"},
)
AFTER = Contents(
    {
        "same": SEARCH,
        "search": SEARCH | {"limits": ["200/hour", "9/second"], "match": {"methods": ["GET"]}},
        "new": SEARCH,
    },
    {"free": {"price": 5, "limits": {"search": ["2/hour"]}}, "same": {}, "more": {}},
    "more",
    {"search": "b.yaml", "new": "b.yaml"},
)


def test_nothing_differs_from_itself() -> None:
    """Equal rule sets differ in nothing, whatever the order of their rules."""
    turned = Contents(dict(reversed(list(BEFORE.rules.items()))), BEFORE.tiers, BEFORE.default_tier, BEFORE.owners)
    same = difference(BEFORE, turned)
    assert (same.is_empty, same.affects_decisions, same.lines(), same.unchanged) == (True, False, [], 3)


def test_differences_in_lines() -> None:
    """People read one line for each thing that is added, changed or taken away."""
    assert difference(BEFORE, AFTER).lines() == [
        "+ tier more",
        "~ tier free: price 0 → 5",
        "~ tier free: limits.search 1/hour → 2/hour",
        "- tier gone",
        "~ tiers: default_tier free → more",
        "+ rule new",
        "~ rule search: limits 100/hour → 200/hour, 9/second",
        "~ rule search: match.methods (none) → GET",
        "- rule old",
        "~ rule search: owner a.yaml → b.yaml",
    ]
    assert difference(BEFORE, AFTER).unchanged == 1


def test_a_new_name_is_told_under_the_old_one() -> None:
    """A renamed rule is neither added nor removed, and is not among those that stay as they are."""
    found = difference(BEFORE, BEFORE, {"former": "old"})
    assert found.lines() == ["~ rule former: name former → old, and keeps its counters, own limits and history"]
    assert (found.is_empty, found.affects_decisions, found.unchanged) == (False, True, 2)
    assert found.as_dict()["renamed"] == [{"before": "former", "after": "old"}]


def test_differences_as_data() -> None:
    """Programs get the same as JSON."""
    data = difference(BEFORE, AFTER).as_dict()
    assert json.loads(json.dumps(data)) == data
    assert (data["added"], data["removed"], data["tiers_added"]) == (["new"], ["old"], ["more"])
    assert data["tiers_changed"][0] == {"name": "free", "field": "price", "before": 0, "after": 5}
    assert data["default_tier"]["after"] == "more"
    assert data["owners"] == [{"name": "search", "field": "owner", "before": "a.yaml", "after": "b.yaml"}]
    assert Difference().as_dict()["default_tier"] is None


def test_another_owner_alone_changes_no_active_rule() -> None:
    """Who owns a rule is a difference, and no request is decided otherwise for it."""
    owned = difference(BEFORE, Contents(BEFORE.rules, BEFORE.tiers, BEFORE.default_tier, {"search": "b.yaml"}))
    assert (owned.is_empty, owned.affects_decisions) == (False, False)
    assert [str(change) for change in owned.owners] == ["search: owner a.yaml → b.yaml", "old: owner a.yaml → (none)"]


def test_values_are_shown_in_one_short_line() -> None:
    """Whatever a field holds, its change is one line that can be printed."""
    shown = {
        FieldChange("a", "enabled", before=True, after=False): "a: enabled true → false",
        FieldChange("a", "response.message", None, "x\ny"): "a: response.message (none) → 'x\\ny'",
        FieldChange("a", "priority", 1, 2): "a: priority 1 → 2",
    }
    for change, line in shown.items():
        assert str(change) == line
    assert len(str(FieldChange("a", "response.message", "x" * 1_000, "y" * 1_000))) < 200


def test_whose_limits_go_and_come_with_rules_is_told() -> None:
    """Users and keys are counted and some of them named, in the line of the rule and as data."""
    users = OwnLimitHolders("old", 7, ("u1", "u2"))
    key = OwnLimitHolders("new", keys=1, some_keys=("hg_x",))
    told = Difference(added=("new", "other"), removed=("old",), dormant=(users,), returning=(key,))
    assert told.lines() == [
        "+ rule new: limits of 1 API key (hg_x) become active again",
        "+ rule other",
        "- rule old: limits of 7 users (u1, u2 and 5 more) become dormant",
    ]
    data = told.as_dict()
    assert data["dormant"] == [{"rule": "old", "users": 7, "keys": 0, "some_users": ["u1", "u2"], "some_keys": []}]
    assert (data["returning"][0]["keys"], data["delete_at_most"], data["set_back"]) == (1, None, [])
    assert Difference(set_back=(("a", "a.yaml"),)).as_dict()["set_back"] == [{"rule": "a", "owner": "a.yaml"}]


def test_long_values_are_cut_and_those_that_fit_are_whole() -> None:
    """A line shows the first 80 characters of a value, and says with a … that there are more."""
    for length, shown in ((79, "x" * 79), (80, "x" * 80), (81, "x" * 80 + "…")):
        changed = replace(BEFORE, rules={**BEFORE.rules, "search": SEARCH | {"description": "x" * length}})
        assert difference(BEFORE, changed).lines() == [f"~ rule search: description (none) → {shown}"]
