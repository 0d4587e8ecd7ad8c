"""A rule's own id: counters, own limits, versions, events and counts stay when the rule gets another name."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.integration.rule_services import LOGIN, SEARCH, RuleServices, scenario

from headgate.controlplane.activity import Activity
from headgate.controlplane.analytics import Analytics, Dimension, Granularity, MetricsQuery
from headgate.controlplane.changes import Kind, changes
from headgate.controlplane.users import Users
from headgate.core.matching import Snapshot
from headgate.core.request import Request
from headgate.errors import Conflict, InvalidFields, InvalidRules, NotFound, Stale

FIND: dict[str, Any] = SEARCH | {"name": "find", "id": "search"}
_SLOTS = SEARCH | {"name": "find", "algorithm": "concurrency", "limits": "3 concurrent"}
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


async def _counters(services: RuleServices) -> list[str]:
    """The names of the counters that a request of one user meets."""
    snapshot = Snapshot(await services.active(), 1, lambda _: UTC, lambda: 0)
    plan = snapshot.plan(Request(user="u1", ip="203.0.113.9", path="/login"), None)
    return sorted(bound.hit.key for bound in plan.enforced)


def test_a_renamed_rule_keeps_its_counters_and_its_history(database_url: str) -> None:
    """After a rename the same counters are used, the history has all versions, and the change says what was done."""

    async def run(services: RuleServices) -> None:
        await services.rules.create(SEARCH, "ann")
        before = await _counters(services)
        renamed = await services.rules.rename("search", "find", "ben")
        assert (renamed.name, renamed.id, renamed.version) == ("find", "search", 2)
        assert [rule.name for rule in (await services.active()).rules] == ["find"]
        assert await _counters(services) == before != []
        await services.rules.replace("find", SEARCH | {"name": "find", "limits": "7/hour"}, "ben")
        for name in ("find", "search"):  # the old name still leads there, until another rule has it
            names = [version.data and version.data["name"] for version in await services.rules.history(name)]
            assert names == ["find", "find", "search"]
        assert (await services.rules.get("find")).id == "search"
        with pytest.raises(NotFound):
            await services.rules.get("search")
        (change,) = [
            each for each in await changes(services.database, kind=Kind.RULE, most=9) if each["verb"] == "renamed"
        ]
        assert (change["name"], change["before"]["data"]["name"]) == ("find", "search")
        again = await services.rules.rename("find", "search", "ben")
        assert again.data is not None
        assert "id" not in again.data

    scenario(database_url, run)


def test_a_rollback_keeps_the_name(database_url: str) -> None:
    """A rule goes back to what it was before it was renamed, under the name that it has now; one that is gone too."""

    async def run(services: RuleServices) -> None:
        await services.rules.create(SEARCH, "ann")
        (first,) = await services.rules.history("search")
        await services.rules.rename("search", "find", "ann")
        await services.rules.replace("find", SEARCH | {"name": "find", "limits": "7/hour"}, "ann")
        back = await services.rules.rollback("find", first.change, "ben")
        assert (back.name, back.id, back.data and back.data["limits"]) == ("find", "search", ["100/hour"])
        await services.rules.delete("find", "ben")
        back = await services.rules.rollback("find", first.change, "ben")
        assert (back.name, back.id) == ("find", "search")
        await services.rules.delete("find", "ben")
        await services.rules.create(LOGIN | {"id": "search"}, "ben")
        with pytest.raises(Conflict, match="the id 'search' is that of the rule 'login'"):
            await services.rules.rollback("find", first.change, "ben")

    scenario(database_url, run)


def test_a_rollback_of_all_rules_finds_them_by_their_ids(database_url: str) -> None:
    """Rules that took each other's names, or whose name another rule has now, are again what they were."""

    async def run(services: RuleServices) -> None:
        users = Users(services.database, lambda _: UTC)
        await services.sets.apply([SEARCH, LOGIN], "ann", "a.yaml")
        first = await services.snapshots.current()
        before = await _counters(services)
        assert first is not None
        swapped = [SEARCH | {"name": "login", "id": "search"}, LOGIN | {"name": "find", "id": "login"}]
        await services.sets.apply(swapped, "ann", "a.yaml")
        done = await services.snapshots.rollback(first.number, "ben")
        assert sorted(change.after for change in done.renamed) == ["login", "search"]
        assert await _counters(services) == before
        await users.create({"id": "u1", "overrides": {"search": "5/hour"}}, "ann")
        await services.rules.rename("search", "find", "ann")
        second = await services.snapshots.current()
        await services.rules.create(SEARCH | {"id": "search-2"}, "ann")
        await users.set_override("u1", "search", "7/hour", "ann")
        done = await services.snapshots.rollback(first.number, "ben")
        assert (done.removed, done.added, [change.after for change in done.renamed]) == (("search",), (), ["search"])
        assert [str(each) for each in done.dormant] == ["limits of 1 user (u1)"]
        assert {rule.name: rule.id for rule in (await services.active()).rules} == {
            "search": "search",
            "login": "login",
        }
        assert (await users.get("u1")).overrides == {"search": ("5/hour",)}
        assert (await services.rules.get("search")).owner == "a.yaml"
        await services.rules.create(LOGIN | {"name": "find"}, "ann")
        assert second is not None
        await services.snapshots.rollback(second.number, "ben")
        assert {rule.name: rule.id for rule in (await services.active()).rules} == {"find": "search", "login": "login"}
        await services.rules.delete("find", "ann")
        await services.rules.create(SEARCH | {"name": "find", "id": "find"}, "ann")
        done = await services.snapshots.rollback(second.number, "ben")
        assert {rule.name: rule.id for rule in (await services.active()).rules} == {"find": "search", "login": "login"}
        assert (await services.rules.get("find")).owner == "a.yaml"
        assert (await users.get("u1")).overrides == {"find": ("5/hour",)}

    scenario(database_url, run)


def test_own_limits_stay_with_a_renamed_rule(database_url: str) -> None:
    """Users and keys have their limits under the new name, can change them there, and processes find them by id."""

    async def run(services: RuleServices) -> None:
        users = Users(services.database, lambda _: UTC)
        await services.rules.create(SEARCH, "ann")
        await users.create({"id": "u1", "overrides": {"search": "5/hour"}}, "ann")
        await services.execute(
            "INSERT INTO api_keys (hash, prefix, limits, created_by) VALUES (sha256('x'), 'hg_x', $1, 'ann')",
            {"search": ["1/hour"]},
        )
        await services.rules.rename("search", "find", "ann")
        record = await users.get("u1")
        assert (record.overrides, record.dormant_overrides) == ({"find": ("5/hour",)}, {})
        (key,) = await services.database.rows("keys.list", None, "00000000-0000-0000-0000-000000000000", 9)
        assert (key["limits"], key["dormant_limits"]) == ({"find": ["1/hour"]}, {})
        await users.set_override("u1", "find", "6/hour", "ann")
        (row,) = await services.database.rows("identity.users", ["u1"])
        assert row["overrides"] == {"search": ["6/hour"]}
        assert (await users.replace("u1", {"overrides": {"find": "8/hour"}}, "ann")).overrides == {"find": ("8/hour",)}
        assert await users.load([{"id": "u1", "overrides": {"find": "9/hour"}}], "ann") == 1
        assert (await users.get("u1")).overrides == {"find": ("9/hour",)}
        with pytest.raises(InvalidRules, match=r"own limits for it .'u1', for example. that do not fit"):
            await services.rules.replace("find", _SLOTS, "ann")
        assert (await users.remove_override("u1", "find", "ann")).overrides == {}

    scenario(database_url, run)


def test_counts_and_events_are_shown_under_the_new_name(database_url: str) -> None:
    """What was recorded before and after a rename is one series, found by the new name."""

    async def run(services: RuleServices) -> None:
        await services.rules.create(SEARCH, "ann")
        database = services.database
        await services.execute("SELECT make_event_partition($1)", NOON)
        await services.execute(
            "INSERT INTO events (at, id, user_id, rule, decision, count, \"limit\") VALUES ($1, 'e1', 'u1', 'search', "
            "'denied', 9, 10)",
            NOON,
        )
        await services.execute(
            "INSERT INTO metrics (at, granularity, rule, total) VALUES ($1, 'hour', 'search', 5), ($1, 'hour', '', 5)",
            NOON,
        )
        await services.execute(
            "INSERT INTO usage_daily (day, user_id, rule, requests, cost) VALUES ('2026-03-01', 'u1', 'search', 5, 5)"
        )
        await services.rules.rename("search", "find", "ann")
        clock = lambda: int(NOON.timestamp() * 1_000_000) + 1  # noqa: E731 (a clock)
        activity, analytics = Activity(database, clock), Analytics(database, clock)
        assert [row["rule"] for row in await activity.events(rule="find")] == ["find"]
        assert (await activity.event("e1"))["rule"] == "find"
        assert [row["user"] for row in await activity.violators(rule="find")] == ["u1"]
        ((usage,), (day,)) = await activity.usage(), await activity.days_of("u1", 1)
        assert (usage["rule"], usage["rule_id"], day["costs"]) == ("find", "search", {"find": 5})
        assert [row["rule"] for row in await analytics.near_limits(rule="find")] == ["find"]
        assert [row["rule"] for row in await analytics.utilisation()] == ["find"]
        span = analytics.span(Granularity.HOUR, None, None)
        for query in (
            MetricsQuery(by=frozenset({Dimension.RULE})),
            MetricsQuery(by=frozenset({Dimension.RULE}), of={Dimension.RULE: "find"}),
        ):
            assert [(row["rule"], row["total"]) for row in await analytics.metrics(query, span)] == [("find", 5)]

    scenario(database_url, run)


def test_what_a_rename_refuses(database_url: str) -> None:
    """A taken name, a name that is none, another's version and an id that would change are refused with a sentence."""

    async def run(services: RuleServices) -> None:
        await services.rules.create(SEARCH, "ann")
        await services.rules.create(LOGIN, "ann")
        with pytest.raises(Conflict, match="there is a rule 'login' already"):
            await services.rules.rename("search", "LOGIN", "ann")
        with pytest.raises(InvalidFields, match="name"):
            await services.rules.rename("search", "no name", "ann")
        with pytest.raises(Stale):
            await services.rules.rename("search", "find", "ann", 7)
        with pytest.raises(NotFound):
            await services.rules.rename("nothing", "find", "ann")
        same = await services.rules.rename("search", "search", "ann")
        assert same.version == 1
        assert (await services.rules.rename("search", "Search", "ann")).id == "search"
        await services.rules.rename("Search", "find", "ann")
        with pytest.raises(
            Conflict, match="the id 'search' is that of the rule 'find'; give this rule an id of its own"
        ):
            await services.rules.create(SEARCH, "ann")
        await services.rules.create(SEARCH | {"id": "search-2"}, "ann")
        with pytest.raises(InvalidRules, match="has the id 'search', and a rule keeps its id"):
            await services.rules.replace("find", SEARCH | {"name": "find", "id": "find"}, "ann")

    scenario(database_url, run)


def test_a_draft_is_renamed_with_its_rule(database_url: str) -> None:
    """A rule and its draft have one name; a rule that is only a draft can be renamed too."""

    async def run(services: RuleServices) -> None:
        await services.rules.create(SEARCH, "ann")
        await services.rules.replace("search", SEARCH | {"limits": "7/hour"}, "ann", draft=True)
        renamed = await services.rules.rename("search", "find", "ann")
        assert renamed.draft is not None
        assert (renamed.draft["name"], renamed.draft["id"]) == ("find", "search")
        (published,) = await services.rules.publish(None, "ann")
        assert (published.name, published.id) == ("find", "search")
        await services.rules.create(LOGIN, "ann", draft=True)
        await services.rules.rename("login", "sign-in", "ann")
        assert (await services.rules.publish(["sign-in"], "ann"))[0].id == "login"

    scenario(database_url, run)


def test_a_file_renames_by_stating_the_id(database_url: str) -> None:
    """A plan shows the new name as one, a sync deletes nothing, and two rules can take each other's names."""

    async def run(services: RuleServices) -> None:
        await services.sets.apply([SEARCH, LOGIN], "ann", "a.yaml")
        before = await _counters(services)
        planned = await services.sets.plan([FIND, LOGIN], delete=True, owner="a.yaml")
        assert planned.lines() == ["~ rule search: name search → find, and keeps its counters, own limits and history"]
        assert (planned.as_dict()["renamed"], planned.unchanged) == ([{"before": "search", "after": "find"}], 1)
        assert planned.delete_at_most is None
        assert await services.sets.sync([FIND, LOGIN], "ann", "a.yaml") == planned
        assert await _counters(services) == before
        assert (await services.rules.get("find")).owner == "a.yaml"
        assert [each["name"] for each in (await services.sets.dump())["rules"]] == ["find", "login"]
        assert (await services.sets.dump())["rules"][0]["id"] == "search"
        swapped = [SEARCH | {"name": "login", "id": "search"}, LOGIN | {"name": "find", "id": "login"}]
        done = await services.sets.sync(swapped, "ann", "a.yaml")
        assert (len(done.renamed), done.added, done.removed, done.changed) == (2, (), (), ())
        assert await _counters(services) == before
        assert (await services.sets.plan(swapped, delete=True, owner="a.yaml")).is_empty

    scenario(database_url, run)


def test_a_file_that_states_no_id_leaves_it(database_url: str) -> None:
    """After a rename elsewhere a file with the new name changes nothing, and one with the old name sets it back."""

    async def run(services: RuleServices) -> None:
        await services.sets.apply([SEARCH, LOGIN], "ann", "a.yaml")
        snapshot = await services.snapshots.current()
        assert snapshot is not None
        renamed = await services.rules.rename("search", "find", "ann")
        assert renamed.warning is not None
        new_name = SEARCH | {"name": "find"}
        assert (await services.sets.plan([new_name, LOGIN], delete=True, owner="a.yaml")).is_empty
        planned = await services.sets.plan([SEARCH, LOGIN], delete=True, owner="a.yaml")
        assert [change.after for change in planned.renamed] == ["search"]
        assert (await services.sets.plan([SEARCH, LOGIN], delete=False)).set_back == (("search", "a.yaml"),)
        with pytest.raises(Conflict, match="other files own these rules: search"):
            await services.sets.apply([SEARCH], "ann", "b.yaml")
        assert len((await services.snapshots.rollback(snapshot.number, "ann")).renamed) == 1
        assert (await services.rules.get("search")).id == "search"

    scenario(database_url, run)


def test_what_a_file_cannot_state(database_url: str) -> None:
    """A rule never gets another id, and no two rules have one; the sentences name the rule in the file."""

    async def run(services: RuleServices) -> None:
        await services.sets.apply([SEARCH, LOGIN], "ann")
        await services.rules.rename("search", "find", "ann")
        for rules, expected in (
            ([LOGIN | {"id": "other"}], r"rules\[0\].id: the rule 'login' has the id 'login', and a rule keeps its id"),
            ([SEARCH | {"name": "find"}, SEARCH], r"rules\[1\].id: the id 'search' is that of 'find'"),
            ([FIND, SEARCH | {"id": "SEARCH"}], r"rules\[1\].id: the id 'SEARCH' is that of 'find'"),
            ([LOGIN, {"name": "upload", "id": "LOGIN", "limits": "1/s"}], r"rules\[1\].id: the id 'LOGIN' is that of"),
        ):
            with pytest.raises(InvalidRules, match=expected):
                await services.sets.apply(rules, "ann")

    scenario(database_url, run)
