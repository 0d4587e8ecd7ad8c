"""Rules one by one: active, as drafts, changed by two people at once, taken back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.rule_services import LOGIN, SEARCH, TIERS, RuleServices, scenario

from headgate.controlplane.changes import Kind, changes
from headgate.controlplane.rules import RuleRecord
from headgate.errors import Conflict, HeadgateError, InvalidFields, InvalidRules, NotFound, Stale

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


def fields(error: InvalidRules) -> list[str]:
    return [problem.field for problem in error.problems]


def test_a_new_rule_is_active_at_once(database_url: str) -> None:
    """Creating a rule stores it complete, publishes a snapshot, records who did it, and tells the processes."""

    async def run(services: RuleServices) -> None:
        made = await services.rules.create(SEARCH, "ann", owner="rules.yaml")
        assert made == await services.rules.get("search")
        assert made.data is not None
        assert made.data["limits"] == ["100/hour"]
        assert made.data["priority"] == 100
        assert (made.version, made.owner, made.updated_by, made.draft) == (1, "rules.yaml", "ann", None)
        assert [rule.name for rule in (await services.active()).rules] == ["search"]
        current = await services.snapshots.current()
        (change,) = await changes(services.database, Kind.RULE, "search")
        assert current is not None
        assert (current.number, current.who, current.rules) == (change["id"], "ann", 1)
        assert (change["verb"], change["before"], change["after"]["data"]) == ("created", None, made.data)
        assert services.announced == 1

    scenario(database_url, run)


def test_equal_rules_are_stored_equal(database_url: str) -> None:
    """However a rule is spelled, it is stored in one form, so that saying the same again changes nothing."""

    async def run(services: RuleServices) -> None:
        made = await services.rules.create(SEARCH, "ann")
        again = {"limits": ["100 per 60 minutes"], "per": "user", "priority": 100, "enabled": True}
        assert await services.rules.replace("search", again, "ben") == made
        assert len(await services.snapshots.list()) == 1
        assert len(await changes(services.database)) == 1

    scenario(database_url, run)


def test_a_name_is_taken_whatever_its_letter_case(database_url: str) -> None:
    """Two rules cannot differ only by letter case."""

    async def run(services: RuleServices) -> None:
        await services.rules.create(SEARCH, "ann")
        with pytest.raises(Conflict, match="'search' already"):
            await services.rules.create(SEARCH, "ann")
        with pytest.raises(Conflict, match="more than letter case"):
            await services.rules.create(SEARCH | {"name": "Search"}, "ann", draft=True)

    scenario(database_url, run)


def test_a_rule_keeps_its_name(database_url: str) -> None:
    """A body with another name than the address is refused, and says what to do."""

    async def run(services: RuleServices) -> None:
        await services.rules.create(SEARCH, "ann")
        for name in ("find", "Search", 7, None):
            with pytest.raises(InvalidRules, match="keeps its name, 'search'"):
                await services.rules.replace("search", SEARCH | {"name": name}, "ann")

    scenario(database_url, run)


def test_of_two_concurrent_edits_one_wins(database_url: str) -> None:
    """A change of a rule that another client has changed since is refused with the reason, and changes nothing."""

    async def run(services: RuleServices) -> None:
        made = await services.rules.create(SEARCH, "ann")
        edits = [
            services.rules.replace("search", SEARCH | {"limits": f"{number}/hour"}, f"user{number}", made.version)
            for number in range(1, 9)
        ]
        results = await asyncio.gather(*edits, return_exceptions=True)
        (winner,) = [each for each in results if isinstance(each, RuleRecord)]
        assert sum(isinstance(each, Stale) for each in results) == 7
        assert await services.rules.get("search") == winner
        assert winner.version == 2
        losers = [each for each in results if isinstance(each, Stale)]
        assert "it is at version 2 now; read it again" in str(losers[0]).replace(")", "")

    scenario(database_url, run)


def test_publishers_go_one_after_another(database_url: str) -> None:
    """Changes that come at once are all in the last snapshot, and each made one of its own."""

    async def run(services: RuleServices) -> None:
        others = RuleServices(database_url)
        await asyncio.gather(
            *(services.rules.create(SEARCH | {"name": f"a{number}"}, "ann") for number in range(5)),
            *(others.rules.create(SEARCH | {"name": f"b{number}"}, "ben") for number in range(5)),
        )
        await others.database.close()
        assert len((await services.active()).rules) == 10
        assert sorted(each.rules for each in await services.snapshots.list()) == list(range(1, 11))

    scenario(database_url, run)


def test_a_draft_is_checked_and_not_active(database_url: str) -> None:
    """A draft that could not be published is refused; a good one changes nothing until it is published."""

    async def run(services: RuleServices) -> None:
        await services.rules.create(LOGIN, "ann")
        before = await services.snapshots.current()
        with pytest.raises(InvalidRules) as caught:
            await services.rules.create(SEARCH | {"limits": "tier:search"}, "ann", draft=True)
        assert fields(caught.value) == ["limits"]
        assert [rule.name for rule in await services.rules.list()] == ["login"]
        draft = await services.rules.create(SEARCH, "ann", draft=True)
        assert (draft.data, draft.draft is not None) == (None, True)
        await services.rules.replace("login", LOGIN | {"limits": "9/minute"}, "ann", draft=True)
        assert await services.snapshots.current() == before
        with pytest.raises(Conflict, match="publish it first"):
            await services.rules.set_enabled("search", False, "ann")
        published = await services.rules.publish(None, "ben")
        assert [(rule.name, rule.draft) for rule in published] == [("login", None), ("search", None)]
        assert [str(rule.limits[0]) for rule in (await services.active()).rules] == ["9/minute", "100/hour"]
        assert len(await services.snapshots.list()) == 2
        assert await services.rules.publish(None, "ben") == []
        with pytest.raises(Conflict, match="has no draft"):
            await services.rules.publish(["search"], "ben")
        with pytest.raises(NotFound, match="'find'"):
            await services.rules.publish(["find"], "ben")

    scenario(database_url, run)


def test_drafts_that_do_not_go_together_are_not_published(database_url: str) -> None:
    """Drafts that were good by themselves are published all or not at all."""

    async def run(services: RuleServices) -> None:
        await services.sets.apply({"tiers": TIERS, "rules": [LOGIN]}, "ann")
        await services.rules.create(SEARCH | {"limits": "tier:search"}, "ann", draft=True)
        await services.rules.replace("login", LOGIN | {"limits": "9/minute"}, "ann", draft=True)
        await services.execute("UPDATE tiers SET limits = '{}'")
        before = await services.tables()
        with pytest.raises(InvalidRules, match=r"rules\.search\.limits: tier 'free'"):
            await services.rules.publish(None, "ben")
        assert await services.tables() == before

    scenario(database_url, run)


def test_a_draft_can_be_discarded(database_url: str) -> None:
    """Without its draft a rule is what it was, or gone if it was never active."""

    async def run(services: RuleServices) -> None:
        made = await services.rules.create(SEARCH, "ann")
        await services.rules.replace("search", SEARCH | {"limits": "9/hour"}, "ann", draft=True)
        left = await services.rules.discard("search", "ann")
        assert left is not None
        assert (left.data, left.draft) == (made.data, None)
        with pytest.raises(Conflict, match="no draft to discard"):
            await services.rules.discard("search", "ann")
        await services.rules.create(LOGIN, "ann", draft=True)
        assert await services.rules.discard("login", "ann", 1) is None
        with pytest.raises(NotFound):
            await services.rules.get("login")
        assert len(await services.snapshots.list()) == 1

    scenario(database_url, run)


def test_a_rule_is_switched_off_and_on(database_url: str) -> None:
    """Switching is a change that is published, and a draft does not undo it."""

    async def run(services: RuleServices) -> None:
        await services.rules.create(SEARCH, "ann")
        await services.rules.replace("search", SEARCH | {"limits": "9/hour"}, "ann", draft=True)
        off = await services.rules.set_enabled("search", False, "ben")
        assert off.data is not None
        assert off.data["enabled"] is False
        assert [rule.enabled for rule in (await services.active()).rules] == [False]
        assert await services.rules.set_enabled("search", False, "ben") == off
        await services.rules.publish(["search"], "ann")
        assert [rule.enabled for rule in (await services.active()).rules] == [False]
        await services.rules.set_enabled("search", True, "ben")
        verbs = [change["verb"] for change in await changes(services.database, Kind.RULE, "search")]
        assert verbs == ["enabled", "published", "disabled", "drafted", "created"]

    scenario(database_url, run)


def test_a_rule_can_be_deleted(database_url: str) -> None:
    """It is gone at once, at the version that was read; deleting it again is a `NotFound`."""

    async def run(services: RuleServices) -> None:
        await services.rules.create(SEARCH, "ann")
        with pytest.raises(Stale):
            await services.rules.delete("search", "ann", 7)
        await services.rules.delete("search", "ann", 1)
        assert (await services.tables())["rules"] == []
        assert (await services.active()).rules == ()
        with pytest.raises(NotFound):
            await services.rules.delete("search", "ann")

    scenario(database_url, run)


def test_changing_a_rule_that_a_file_owns_is_said(database_url: str) -> None:
    """Whatever is done to it other than through its file comes with a warning; a rule without an owner has none."""

    async def run(services: RuleServices) -> None:
        assert (await services.rules.create(LOGIN, "ann")).warning is None
        await services.sets.apply([SEARCH], "ann", "a.yaml")
        first = (await services.rules.history("search"))[0].change
        said = [
            (await services.rules.replace("search", SEARCH | {"limits": "7/hour"}, "ann")).warning,
            (await services.rules.set_enabled("search", False, "ann")).warning,
            (await services.rules.rollback("search", first, "ann")).warning,
            (await services.rules.delete("search", "ann")).warning,
            (await services.rules.rollback("search", first, "ann")).warning,
        ]
        assert [sentence is not None and "the file 'a.yaml' owns the rule" in sentence for sentence in said] == [
            True
        ] * 5
        done = await services.sets.apply([SEARCH | {"limits": "8/hour"}, LOGIN | {"limits": "8/hour"}], "ann")
        assert done.set_back == (("search", "a.yaml"),)
        assert (await services.sets.apply([SEARCH], "ann", "a.yaml")).set_back == ()

    scenario(database_url, run)


def test_a_rule_can_go_back_to_what_it_was(database_url: str) -> None:
    """The history has every form that was active, each of which can come back, even after the rule was deleted."""

    async def run(services: RuleServices) -> None:
        await services.rules.create(SEARCH, "ann")
        await services.rules.replace("search", SEARCH | {"limits": "200/hour"}, "ben")
        await services.rules.delete("search", "cat")
        gone, second, first = await services.rules.history("search")
        assert (gone.who, gone.data, second.who, first.who) == ("cat", None, "ben", "ann")
        back = await services.rules.rollback("search", first.change, "dan")
        assert back.data == first.data
        assert [str(rule.limits[0]) for rule in (await services.active()).rules] == ["100/hour"]
        back = await services.rules.rollback("search", second.change, "dan", back.version)
        assert back.data == second.data
        with pytest.raises(Conflict, match="delete the rule"):
            await services.rules.rollback("search", gone.change, "dan")
        with pytest.raises(NotFound, match="change 999"):
            await services.rules.rollback("search", 999, "dan")
        with pytest.raises(Stale):
            await services.rules.rollback("search", first.change, "dan", 99)
        with pytest.raises(NotFound):
            await services.rules.history("find")
        assert [each.data for each in await services.rules.history("search")][2] is None

    scenario(database_url, run)


def test_rules_are_found_by_what_they_say(database_url: str) -> None:
    """Lists go by name in pages, and by owner, tier, endpoint, and whether a rule is on."""

    async def run(services: RuleServices) -> None:
        rules = [
            LOGIN,
            SEARCH | {"match": {"tiers": ["free"]}},
            {"name": "off", "limits": "1/hour", "enabled": False},
        ]
        await services.sets.apply({"tiers": TIERS, "rules": rules}, "ann")
        await services.rules.create({"name": "own", "limits": "1/hour"}, "ann", owner="a.yaml")

        async def names(**conditions: Any) -> list[str]:  # noqa: ANN401 (whatever list takes)
            return [rule.name for rule in await services.rules.list(**conditions)]

        assert await names() == ["login", "off", "own", "search"]
        assert await names(most=2) == ["login", "off"]
        assert await names(most=2, after="off") == ["own", "search"]
        assert await names(owner="a.yaml") == ["own"]
        assert await names(tier="free") == ["search"]
        assert await names(endpoint="/login") == ["login"]
        assert await names(enabled=False) == ["off"]
        assert await names(enabled=True, tier="premium") == []

    scenario(database_url, run)


def test_limits_of_users_and_keys_must_fit_the_rule(database_url: str) -> None:
    """A rule cannot become one that the limits of users and keys do not fit; how many and who is said."""

    async def run(services: RuleServices) -> None:
        await services.rules.create(SEARCH, "ann")
        await services.execute("INSERT INTO users (id) VALUES ('u1'), ('u2')")
        await services.execute("INSERT INTO overrides SELECT id, 'search', '{5/hour}' FROM users")
        await services.execute(
            "INSERT INTO api_keys (hash, prefix, limits, created_by) VALUES (sha256('x'), 'hg_abcdefg', $1, 'ann')",
            {"search": ["1/hour"]},
        )
        before = await services.tables()
        held = SEARCH | {"algorithm": "concurrency", "limits": "3 concurrent"}
        for data, draft in ((held, False), (held, True), ({"name": "search", "action": "block"}, False)):
            with pytest.raises(InvalidRules) as caught:
                await services.rules.replace("search", data, "ann", draft=draft)
            assert "2 users have own limits for it ('u1', for example) that do not fit: " in str(caught.value)
            assert "1 API key has own limits for it ('hg_abcdefg', for example)" in str(caught.value)
            assert await services.tables() == before
        await services.execute("UPDATE overrides SET limits = '{soon}'")
        with pytest.raises(InvalidRules, match="'soon' is not a limit"):
            await services.rules.replace("search", SEARCH | {"limits": "7/hour"}, "ann")
        await services.rules.create(LOGIN, "ann")

    scenario(database_url, run)


def test_unknown_names_get_a_sentence(database_url: str) -> None:
    """Names that are none are not found, whatever is asked of them."""

    async def run(services: RuleServices) -> None:
        asked: list[Callable[[str], Awaitable[object]]] = [
            services.rules.get,
            services.rules.history,
            lambda name: services.rules.delete(name, "ann"),
            lambda name: services.rules.discard(name, "ann"),
            lambda name: services.rules.rollback(name, 1, "ann"),
            lambda name: services.rules.replace(name, {"limits": "1/hour"}, "ann"),
            lambda name: services.rules.set_enabled(name, True, "ann"),
        ]
        for name in ("search", "", "a\x00b", "\ud800", "x" * 1_000, "search'--"):
            for ask in asked:
                with pytest.raises((NotFound, InvalidRules)):
                    await ask(name)
        for owner in ("", "x" * 256, "a\x00"):
            with pytest.raises(InvalidFields, match="owner"):
                await services.rules.create(SEARCH, "ann", owner=owner)
        for who in ("", "x" * 256, "a\x00"):
            with pytest.raises(HeadgateError):
                await services.rules.create(SEARCH, who)
        assert (await services.tables())["rules"] == []

    scenario(database_url, run)


def test_rules_can_be_tried_without_storing_them(database_url: str) -> None:
    """A rule or a rule set is checked as if it were activated now, with what is there beside it."""

    async def run(services: RuleServices) -> None:
        await services.sets.apply({"tiers": TIERS, "rules": [SEARCH]}, "ann")
        before = await services.tables()
        good: list[object] = [
            LOGIN,
            SEARCH | {"limits": "tier:search"},
            [LOGIN],
            {"rules": [LOGIN | {"match": {"tiers": ["premium"]}}]},
            {"tiers": {"gold": {"limits": {"search": "1/hour"}}}, "default_tier": "gold"},
        ]
        for data in good:
            assert await services.rules.validate(data) == []
        bad: list[tuple[object, str]] = [
            (LOGIN | {"limits": "tier:uploads"}, "limits: tier 'free', which this rule can match, has no"),
            (LOGIN | {"limits": "x"}, "limits: 'x' is not a limit"),
            ([LOGIN, SEARCH | {"match": {"tiers": ["gold"]}}], "rules[1].match.tiers: there is no tier 'gold'"),
            ([LOGIN | {"name": "SEARCH"}], "rules[0].name: there is a rule 'search'; only letter case differs"),
            ({"tiers": {"FREE": {}}}, "tiers.FREE: there is a tier 'free'; only letter case differs"),
            ({"default_tier": "gold"}, "default_tier: there is no tier 'gold'"),
            ({"overrides": [{"rule": "search"}]}, "overrides: overrides are kept with users and keys"),
            ("search", "expected a mapping"),
            (None, "expected a mapping"),
        ]
        for data, line in bad:
            problems = await services.rules.validate(data)
            assert str(problems[0]).startswith(line), problems
        assert await services.tables() == before

    scenario(database_url, run)
