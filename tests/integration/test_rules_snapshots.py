"""Snapshots: listed, read, gone back to as a whole, and made of what was written by hand."""

from __future__ import annotations

from typing import Any

import pytest
from tests.integration.rule_services import LOGIN, SEARCH, TIERS, RuleServices, scenario

from headgate.controlplane.changes import Kind, changes
from headgate.errors import Conflict, InvalidFields, InvalidRules, NotFound


def test_everything_can_go_back(database_url: str) -> None:
    """Going back to a snapshot restores rules and tiers as they were, as a new snapshot with its own records."""

    async def run(services: RuleServices) -> None:
        assert await services.snapshots.current() is None
        await services.sets.apply(
            {"tiers": TIERS, "rules": [SEARCH | {"limits": "tier:search"}, LOGIN]}, "ann", "a.yaml"
        )
        first = await services.snapshots.current()
        assert first is not None
        then = await services.active()
        wanted: dict[str, Any] = {
            "tiers": {"gold": {"limits": {"search": "1/hour"}}},
            "default_tier": "gold",
            "rules": [SEARCH | {"limits": "7/hour"}, {"name": "new", "limits": "1/day"}],
        }
        await services.sets.sync(wanted, "ben", "a.yaml", delete_at_most=3)
        await services.rules.create(SEARCH | {"name": "later"}, "ben", draft=True)
        second = await services.snapshots.current()
        assert second is not None
        back = await services.snapshots.rollback(first.number, "cat")
        assert (back.added, back.removed, back.tiers_removed) == (("login",), ("new",), ("gold",))
        assert await services.active() == then
        newest, *older = await services.snapshots.list()
        assert [each.number for each in older] == [second.number, first.number]
        assert newest.who == "cat"
        assert [each.number for each in await services.snapshots.list(1, second.number)] == [first.number]
        assert (await services.rules.get("later")).draft is not None
        assert [(await services.rules.get(name)).owner for name in ("search", "login")] == ["a.yaml", "a.yaml"]
        verbs = {change["verb"] for change in await changes(services.database) if change["who"] == "cat"}
        assert verbs == {"rolled_back"}
        assert (await services.rules.history("new"))[0].data is None
        assert (await services.snapshots.rollback(first.number, "cat")).is_empty
        assert len(await services.snapshots.list()) == 3
        await services.snapshots.rollback(second.number, "cat")
        assert (await services.active()).default_tier == "gold"

    scenario(database_url, run)


def test_going_back_leaves_no_user_without_a_tier(database_url: str) -> None:
    """Users on a tier that was not there then keep it from going away, and nothing changes."""

    async def run(services: RuleServices) -> None:
        await services.rules.create(SEARCH, "ann")
        first = await services.snapshots.current()
        assert first is not None
        await services.sets.apply({"tiers": TIERS}, "ann")
        await services.execute("INSERT INTO users (id, tier) VALUES ('u1', 'premium')")
        before = await services.tables()
        with pytest.raises(Conflict, match=r"'premium' cannot be deleted: a user is on it \('u1', for example\)"):
            await services.snapshots.rollback(first.number, "ann")
        assert await services.tables() == before

    scenario(database_url, run)


def test_going_back_looks_at_the_limits_that_users_have_now(database_url: str) -> None:
    """A rule that would come back in a form that overrides do not fit is refused."""

    async def run(services: RuleServices) -> None:
        await services.rules.create(SEARCH | {"algorithm": "concurrency", "limits": "3 concurrent"}, "ann")
        first = await services.snapshots.current()
        assert first is not None
        await services.rules.replace("search", SEARCH, "ann")
        await services.execute("INSERT INTO users (id) VALUES ('u1')")
        await services.execute("INSERT INTO overrides VALUES ('u1', 'search', '{5/hour}')")
        with pytest.raises(InvalidRules, match=r"rules\.search: 1 user has own limits for it"):
            await services.snapshots.rollback(first.number, "ann")

    scenario(database_url, run)


def test_snapshots_that_are_not_there_or_were_changed(database_url: str) -> None:
    """A number without a snapshot is not found; one whose contents were changed by hand is refused."""

    async def run(services: RuleServices) -> None:
        await services.rules.create(SEARCH, "ann")
        current = await services.snapshots.current()
        assert current is not None
        for number in (0, current.number + 1, -1):
            with pytest.raises(NotFound, match="there is no snapshot"):
                await services.snapshots.get(number)
            with pytest.raises(NotFound, match="there is no snapshot"):
                await services.snapshots.rollback(number, "ann")
        await services.execute("UPDATE snapshots SET body = body || 'x'::bytea")
        with pytest.raises(InvalidFields, match="digest"):
            await services.snapshots.rollback(current.number, "ann")

    scenario(database_url, run)


def test_only_so_many_snapshots_are_kept(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest snapshots go; the history of each rule stays."""
    monkeypatch.setattr("headgate.controlplane.publisher._KEPT_SNAPSHOTS", 3)

    async def run(services: RuleServices) -> None:
        await services.rules.create(SEARCH, "ann")
        for number in range(1, 6):
            await services.rules.replace("search", SEARCH | {"limits": f"{number}/hour"}, "ann")
        assert len(await services.snapshots.list()) == 3
        assert len(await services.rules.history("search")) == 6

    scenario(database_url, run)


def test_what_was_written_by_hand_can_be_published(database_url: str) -> None:
    """Rules and tiers written into the tables by hand become active with the next publication, as any other."""

    async def run(services: RuleServices) -> None:
        await services.rules.create(SEARCH, "ann")
        await services.rules.create(LOGIN, "ann")
        await services.execute("INSERT INTO tiers (name, limits) VALUES ('gold', '{\"search\": \"7/hour\"}')")
        await services.execute(
            "INSERT INTO rules (name, data, updated_by) VALUES ('hand', $1, 'psql')",
            {"limits": "tier:search", "match": {"methods": "get"}},
        )
        await services.execute("DELETE FROM rules WHERE name = 'login'")
        done = await services.snapshots.publish("ann")
        rule_set = await services.active()
        assert ([rule.name for rule in rule_set.rules], done.rules) == (["hand", "search"], 2)
        assert (rule_set.default_tier, rule_set.rules[0].match.methods) == ("gold", ("GET",))
        hand = await services.rules.get("hand")
        assert hand.data is not None
        assert hand.data["match"]["methods"] == ["GET"]
        assert (await services.rules.history("hand"))[0].data == hand.data
        assert [each.data is None for each in await services.rules.history("login")] == [True, False]
        newest = (await changes(services.database, Kind.RULE, "*"))[0]
        assert (newest["id"], newest["verb"]) == (done.number, "published")
        assert services.announced == 3

    scenario(database_url, run)
