from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from headgate import Limiter, Request
from headgate.adapters.memory import MemoryStore
from headgate.dataplane.inspection import quota, reset
from headgate.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.core.decision import Decision, Hit

TIERS: dict[str, Any] = {"free": {"limits": {"search": "10/minute"}}, "pro": {"limits": {"search": "unlimited"}}}
USER = Request(user="u1")


def entries(
    rules: list[dict[str, Any]], user: Request = USER, checks: list[Request] | None = None
) -> list[dict[str, Any]]:
    """What the quota says after some checks."""

    async def run() -> list[dict[str, Any]]:
        async with Limiter.open(rules={"tiers": TIERS, "rules": rules}, clock=FakeClock()) as limiter:
            for request in checks or ():
                assert await limiter.check(request)
            before = [entry.as_dict() for entry in await quota(limiter, user)]
            assert before == [entry.as_dict() for entry in await quota(limiter, user)], "looking changes nothing"
            return before

    return asyncio.run(run())


def names(rules: list[dict[str, Any]], user: Request = USER) -> list[str]:
    return [entry["rule"] for entry in entries(rules, user)]


def test_every_limit_of_a_user_is_shown_live() -> None:
    """Each limit says what is used, what is left, when all of it is available again, and where it holds."""
    rules: list[dict[str, Any]] = [
        {"name": "search", "per": "user", "limits": "tier:search", "match": {"endpoints": "/s", "methods": "GET"}},
        {"name": "all", "limits": "100/second", "algorithm": "fixed_window"},
    ]
    search, shared = entries(rules, checks=[Request(user="u1", method="GET", path="/s")] * 3)
    assert search["reset_after"] > 0
    assert search | {"reset_after": 0} == {
        "rule": "search",
        "layer": "user@endpoint",
        "action": "reject",
        "limit": "10/minute",
        "window": 60.0,
        "per": ["user"],
        "endpoints": ["/s"],
        "methods": ["GET"],
        "ip_ranges": [],
        "attributes": {},
        "depends_on": [],
        "shared": False,
        "used": 3,
        "remaining": 7,
        "reset_after": 0,
        "source": "store",
    }
    assert (shared["shared"], shared["used"], shared["remaining"]) == (True, 3, 97)


def test_a_rule_is_listed_only_where_it_wins_its_layer() -> None:
    """Of one layer's rules, those that win somewhere for this user are listed, and no others."""
    rules: list[dict[str, Any]] = [
        {"name": "wide", "layer": "one", "limits": "5/minute", "per": "user"},
        {"name": "posts", "layer": "one", "limits": "5/minute", "per": "user", "match": {"methods": "POST"}},
        {"name": "pro", "layer": "one", "limits": "9/minute", "per": "user", "match": {"tiers": "pro"}},
        {"name": "never", "layer": "one", "limits": "5/minute", "priority": 900},
        {"name": "off", "limits": "5/minute", "layer": "two", "enabled": False},
    ]
    assert names(rules) == ["wide", "posts"]
    assert names(rules, Request(user="u1", tier="pro")) == ["posts", "pro"]


def test_templates_prefixes_and_conditions_are_all_met() -> None:
    """Rules for templates, prefixes, address ranges and attributes are found, each with its own counter."""
    each: dict[str, Any] = {"limits": "5/minute", "per": "user", "layer": "one"}
    rules = [
        {"name": "exact", "match": {"endpoints": "/users/me"}} | each,
        {"name": "template", "match": {"endpoints": "/users/{id}"}} | each,
        {"name": "prefix", "match": {"endpoints": "/users/*"}} | each,
        {"name": "office", "match": {"ip_ranges": ["10.0.0.0/8"]}} | each,
        {"name": "eu", "match": {"attributes": {"region": "eu"}}} | each,
    ]
    listed = entries(rules)
    assert [entry["rule"] for entry in listed] == ["exact", "template", "prefix", "office", "eu"]
    assert listed[3]["ip_ranges"] == ["10.0.0.0/8"]
    assert listed[4]["attributes"] == {"region": "eu"}
    assert all(entry["remaining"] == 5 for entry in listed)


def test_what_depends_on_more_than_the_user_has_no_counter() -> None:
    """A rule that counts per address, key, tenant or attribute says so and shows its limits without a counter."""
    rules: list[dict[str, Any]] = [
        {"name": "login", "per": "ip", "limits": ["5/minute", "9/hour"]},
        {"name": "more", "per": ["user", "api_key", "attribute:region"], "limits": "5/minute"},
    ]
    listed = entries(rules)
    assert [(entry["rule"], entry["limit"], entry["depends_on"]) for entry in listed] == [
        ("login", "5/minute", ["ip"]),
        ("login", "9/hour", ["ip"]),
        ("more", "5/minute", ["api_key", "attribute:region"]),
    ]
    assert all(entry["used"] is entry["remaining"] is entry["reset_after"] is None for entry in listed)


def test_counters_by_endpoint_and_method_are_listed_one_by_one() -> None:
    """A rule that counts each endpoint or method by itself has an entry for each."""
    rules: list[dict[str, Any]] = [
        {
            "name": "each",
            "per": ["user", "endpoint"],
            "limits": "5/minute",
            "match": {"endpoints": ["/a", "/b/*"]},
        },
        {"name": "anywhere", "per": ["user", "endpoint"], "limits": "5/minute"},
        {"name": "verbs", "per": ["user", "method"], "limits": "5/minute"},
    ]
    listed = entries(rules, checks=[Request(user="u1", path="/b/c", method="PUT")])
    used = [(entry["rule"], entry["endpoints"], entry["methods"], entry["used"]) for entry in listed]
    assert used[:3] == [("each", ["/a"], [], 0), ("each", ["/b/*"], [], 1), ("anywhere", [], [], 1)]
    assert sorted(used[3:]) == [
        ("verbs", [], [method], int(method == "PUT")) for method in ("DELETE", "GET", "PATCH", "POST", "PUT")
    ]


def test_methods_that_rules_tell_apart_are_all_met() -> None:
    """A rule that only one of several methods leads to is found, wherever else that method is named."""
    each: dict[str, Any] = {"limits": "5/minute", "per": "user", "layer": "one"}
    rules = [
        {"name": "both", "match": {"methods": ["GET", "POST"]}} | each,
        {"name": "posts", "match": {"methods": ["POST"]}, "priority": 1} | each,
        {"name": "puts", "match": {"methods": ["PUT", "PATCH"]}} | each,
        {"name": "rest"} | each,
    ]
    assert names(rules) == ["both", "posts", "puts", "rest"]
    counted = [{"name": "verbs", "match": {"methods": ["GET", "PUT"]}} | each | {"per": ["user", "method"]}]
    assert [entry["methods"] for entry in entries(counted)] == [["GET"], ["PUT"]]


def test_what_spares_or_refuses_the_user_is_listed_too() -> None:
    """Unlimited rules and the gates that a user meets stand in the list, and watched rules at its end."""
    rules: list[dict[str, Any]] = [
        {"name": "trial", "limits": "1/minute", "action": "log"},
        {"name": "search", "limits": "tier:search", "per": "user"},
        {"name": "health", "action": "allow", "match": {"endpoints": "/health"}},
    ]
    search, health, trial = entries(rules, Request(user="u1", tier="pro"))
    assert (search["rule"], search["limit"], search["remaining"]) == ("search", "unlimited", None)
    assert (health["action"], health["limit"], health["layer"], health["per"]) == ("allow", None, None, [])
    assert trial["action"] == "log"


def test_a_reset_of_one_rule_leaves_the_others() -> None:
    """Only the counters of the named rule are forgotten; an unknown name forgets none."""

    async def run() -> None:
        rules = [
            {"name": name, "per": "user", "limits": "5/minute", "match": {"endpoints": [f"/{name}"]}} for name in "ab"
        ]
        async with Limiter.open(rules=rules, clock=FakeClock()) as limiter:
            for name in "ab":
                await limiter.check(Request(user="u1", path=f"/{name}"))
            assert await reset(limiter, Request(user="u1"), "a") == 1
            assert await reset(limiter, Request(user="u1"), "c") == 0
            listed = await quota(limiter, Request(user="u1"))
            assert {entry.rule.name: entry.as_dict()["used"] for entry in listed} == {"a": 0, "b": 1}

    asyncio.run(run())


def test_a_reset_forgets_what_is_the_users_own() -> None:
    """After a reset the user's counters are empty; those of others and those shared with them stay."""

    async def run() -> None:
        rules: list[dict[str, Any]] = [
            {"name": "mine", "per": "user", "limits": ["5/minute", "9/hour"]},
            {"name": "ours", "limits": "100/minute"},
            {"name": "address", "per": ["user", "ip"], "limits": "5/minute"},
        ]
        async with Limiter.open(rules=rules, clock=FakeClock()) as limiter:
            for user in ("u1", "u2"):
                await limiter.check(Request(user=user))
            assert await reset(limiter, USER) == 2
            for user, used in (("u1", [0, 0, 2]), ("u2", [1, 1, 2])):
                listed = [entry.as_dict() for entry in await quota(limiter, Request(user=user))]
                assert [entry["used"] for entry in listed] == [*used, None]

    asyncio.run(run())


@pytest.mark.parametrize("methods", [None, ["GET"]])
def test_thousands_of_rules_are_looked_at_together(methods: list[str] | None) -> None:
    """However many rules there are, each is listed once, with its counter."""
    match = {"methods": methods} if methods else {}
    rules = [
        {"name": f"r{number}", "per": "user", "limits": "5/minute", "match": {"endpoints": f"/{number}"} | match}
        for number in range(1_000)
    ]
    listed = entries(rules, checks=[Request(user="u1", path="/7", method="GET")])
    assert [entry["rule"] for entry in listed] == [rule["name"] for rule in rules]
    assert [entry["rule"] for entry in listed if entry["used"]] == ["r7"]


def test_a_store_is_asked_for_a_quota_one_thing_after_another() -> None:
    """However many counters there are, decisions find the store free for them."""
    rules = [
        {"name": f"r{number}", "per": "user", "limits": "5/minute", "match": {"endpoints": f"/{number}"}}
        for number in range(500)
    ]
    at_once = most = 0

    class Watched(MemoryStore):
        async def peek(self, hits: Sequence[Hit]) -> Sequence[Decision]:
            nonlocal at_once, most
            at_once += 1
            most = max(most, at_once)
            await asyncio.sleep(0)
            at_once -= 1
            return await super().peek(hits)

    async def run() -> None:
        async with Limiter.open(rules=rules) as limiter:
            limiter.store = Watched(FakeClock())
            assert len(await quota(limiter, USER)) == 500
            assert most == 1

    asyncio.run(run())


def test_only_chosen_rules_are_looked_for() -> None:
    """With `among`, paths of other rules are not tried; what wins on the paths that are is listed."""
    rules = [
        {"name": f"r{number}", "match": {"endpoints": [f"/{number}"]}, "limits": "9/minute"} for number in range(5)
    ]
    rules.append({"name": "everywhere", "per": ["user"], "limits": "5/minute"})

    async def run() -> list[str]:
        async with Limiter.open(rules=rules) as limiter:
            chosen = [rule for rule in limiter.snapshots.current.rule_set.rules if rule.name in {"r3", "everywhere"}]
            return [entry.rule.name for entry in await quota(limiter, USER, chosen)]

    assert asyncio.run(run()) == ["r3", "everywhere"]
