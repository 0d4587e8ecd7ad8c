"""Rules as code: planned, applied and synced from files that own their rules, and dumped into one."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from tests.integration.rule_services import LOGIN, SEARCH, TIERS, RuleServices, scenario
from tests.support.rule_sets import RULE_SETS

from headgate.adapters import yaml_text
from headgate.adapters.rules_file import RulesFile
from headgate.controlplane.changes import Kind, changes
from headgate.controlplane.leader import Preparation
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.errors import Conflict, InvalidFields, InvalidRules

if TYPE_CHECKING:
    from tests.support.postgres import Postgres

    from headgate.controlplane.notifier import Notifier

EXAMPLE = yaml_text.parse((Path(__file__).parents[2] / "examples" / "rules.yaml").read_text(encoding="utf-8")).data


def test_a_file_is_applied_once(database_url: str) -> None:
    """Applying the example makes one snapshot; applying it again changes nothing at all."""

    async def run(services: RuleServices) -> None:
        planned = await services.sets.plan(EXAMPLE, delete=False)
        assert planned.added[:2] == ("health", "banned-network")
        done = await services.sets.apply(EXAMPLE, "ann", "rules.yaml")
        assert (done.added, done.tiers_added) == (planned.added, ("free", "premium", "enterprise"))
        assert await services.active() == parse_rule_set(EXAMPLE)
        verbs = [(change["kind"], change["verb"]) for change in await changes(services.database)]
        assert set(verbs) == {("rule", "created"), ("tier", "created")}
        assert len(verbs) == 11
        before = await services.tables()
        for again in (services.sets.apply, services.sets.sync):
            assert (await again(EXAMPLE, "ann", "rules.yaml")).is_empty
        assert (await services.sets.plan(EXAMPLE, delete=True, owner="rules.yaml")).unchanged == 8
        assert await services.tables() == before
        assert [record.owner for record in await services.rules.list()] == ["rules.yaml"] * 8

    scenario(database_url, run)


def test_a_file_says_how_its_rules_compare_paths(database_url: str) -> None:
    """The fields at the top of a file hold for its rules, not for those of other files, and are dumped with them."""
    search = {"name": "search", "limits": "5/minute", "match": {"endpoints": ["/api/search"]}}

    async def run(services: RuleServices) -> None:
        await services.sets.apply([search | {"name": "other"}], "ann", "other.yaml")
        given = {"rules": [search], "case_sensitive": False, "strip_parameters": True}
        await services.sets.apply(given, "ann", "rules.yaml")
        active = {rule.name: tuple(rule.match.spelling) for rule in (await services.active()).rules}
        assert active == {"other": (True, False), "search": (False, True)}
        assert parse_rule_set(await services.sets.dump()).rules == (await services.active()).rules
        assert (await services.sets.plan(given, delete=True, owner="rules.yaml")).is_empty
        difference = await services.sets.plan([search], delete=False, owner="rules.yaml")
        assert difference.lines() == [
            "~ rule search: match.case_sensitive false → (none)",
            "~ rule search: match.strip_parameters true → (none)",
        ]

    scenario(database_url, run)


def test_differences_are_told_field_by_field(database_url: str) -> None:
    """A plan says what would change, in the words of the file, and apply does just that."""

    async def run(services: RuleServices) -> None:
        await services.sets.apply({"tiers": TIERS, "rules": [SEARCH, LOGIN]}, "ann")
        wanted: dict[str, Any] = {
            "tiers": {"premium": TIERS["premium"] | {"price": 59}, "gold": {"limits": {"search": "unlimited"}}},
            "default_tier": "premium",
            "rules": [
                SEARCH | {"limits": "200/hour", "match": {"methods": ["GET"]}},
                {"name": "new", "limits": "1/day"},
            ],
        }
        planned = await services.sets.plan(wanted, delete=False)
        assert planned.lines() == [
            "+ tier gold",
            "~ tier premium: price 49 → 59",
            "~ tiers: default_tier free → premium",
            "+ rule new",
            "~ rule search: match.methods (none) → GET",
            "~ rule search: limits 100/hour → 200/hour",
        ]
        assert (await services.sets.apply(wanted, "ann")) == planned
        assert [rule.name for rule in (await services.active()).rules] == ["search", "login", "new"]
        assert (await services.active()).default_tier == "premium"
        assert (await services.sets.plan(wanted, delete=True)).lines() == ["- tier free", "- rule login"]
        gone = await services.sets.sync(wanted, "ben")
        assert (gone.removed, gone.tiers_removed, gone.unchanged) == (("login",), ("free",), 2)
        assert [rule.name for rule in (await services.active()).rules] == ["search", "new"]
        (change,) = [each for each in await changes(services.database, Kind.TIER) if each["verb"] == "deleted"]
        assert (change["name"], change["after"]) == ("free", None)

    scenario(database_url, run)


def test_files_own_their_rules(database_url: str) -> None:
    """A file takes rules without an owner, leaves another file's unless told otherwise, and deletes only its own."""

    async def run(services: RuleServices) -> None:
        await services.rules.create(SEARCH, "ann")
        done = await services.sets.apply([SEARCH], "ann", "a.yaml")
        assert (done.is_empty, done.lines()) == (False, ["~ rule search: owner (none) → a.yaml"])
        assert len(await services.snapshots.list()) == 1
        await services.sets.apply([LOGIN], "ben", "b.yaml")
        sentence = r"search \('a.yaml'\); change them there, name that owner \(--owner\), or take them over"
        with pytest.raises(Conflict, match=sentence):
            await services.sets.apply([SEARCH], "ben", "b.yaml")
        with pytest.raises(Conflict, match=sentence):
            await services.sets.plan([SEARCH], delete=False, owner="b.yaml")
        synced = await services.sets.sync({"rules": []}, "ben", "b.yaml", delete_at_most=1)
        assert synced.removed == ("login",)
        changed = await services.rules.replace("search", SEARCH | {"limits": "7/hour"}, "api")
        assert changed.owner == "a.yaml"
        await services.sets.apply([SEARCH], "ben", "b.yaml", take_over=True)
        assert (await services.rules.get("search")).owner == "b.yaml"
        await services.sets.apply([SEARCH | {"limits": "8/hour"}], "cat")
        assert (await services.rules.get("search")).owner == "b.yaml"
        many = [SEARCH | {"name": f"r{number}"} for number in range(9)]
        await services.sets.apply(many, "ben", "b.yaml")
        with pytest.raises(Conflict, match="and 4 more"):
            await services.sets.apply(many, "ann", "a.yaml")
        with pytest.raises(InvalidFields, match="owner"):
            await services.sets.apply(many, "ann", "")
        gone = await services.sets.sync({"rules": []}, "ann", delete_at_most=10)
        assert gone.removed == ("search", *(rule["name"] for rule in many))

    scenario(database_url, run)


def test_a_file_may_have_had_another_name_as_an_owner(database_url: str) -> None:
    """A service takes the rules that its file owned by its bare name, and those of no other file."""

    async def run(services: RuleServices) -> None:
        await services.sets.apply([SEARCH], "ann", "a.yaml")
        await services.sets.apply([LOGIN], "ann", "b.yaml")
        await services.sets.apply([SEARCH], "ann", "limits/a.yaml", formerly=frozenset({"a.yaml"}))
        assert (await services.rules.get("search")).owner == "limits/a.yaml"
        with pytest.raises(Conflict, match="login"):
            await services.sets.apply([LOGIN], "ann", "limits/a.yaml", formerly=frozenset({"a.yaml"}))

    scenario(database_url, run)


def test_what_a_file_does_not_speak_of_stays(database_url: str) -> None:
    """Syncing a file with rules only leaves the tiers, and one with tiers only the rules; drafts stay anyway."""

    async def run(services: RuleServices) -> None:
        await services.sets.apply({"tiers": TIERS, "rules": [SEARCH]}, "ann")
        await services.rules.create(LOGIN, "ann", draft=True)
        assert (await services.sets.sync([SEARCH], "ann")).is_empty
        assert (await services.sets.sync({"tiers": TIERS}, "ann")).is_empty
        assert (await services.sets.sync({}, "ann")).is_empty
        assert (await services.rules.get("login")).draft is not None
        await services.sets.apply([LOGIN | {"limits": "9/minute"}], "ann")
        login = await services.rules.get("login")
        assert login.data is not None
        assert login.draft is not None
        assert (login.data["limits"], login.draft["limits"]) == (["9/minute"], ["5/minute"])

    scenario(database_url, run)


def test_names_can_change_their_letter_case_with_a_file(database_url: str) -> None:
    """Syncing a file in which a rule or tier is spelled in other letters takes one away and makes the other."""

    async def run(services: RuleServices) -> None:
        await services.sets.apply({"tiers": TIERS, "rules": [SEARCH]}, "ann")
        done = await services.sets.sync(
            {"tiers": {"FREE": TIERS["free"]}, "rules": [SEARCH | {"name": "Search"}]}, "ann", delete_at_most=3
        )
        assert (done.added, done.removed, done.tiers_added) == (("Search",), ("search",), ("FREE",))
        assert (await services.active()).default_tier == "FREE"

    scenario(database_url, run)


def test_a_tier_that_has_users_stays(database_url: str) -> None:
    """Syncing it away is refused with the number of users and an example."""

    async def run(services: RuleServices) -> None:
        await services.sets.apply({"tiers": TIERS, "rules": []}, "ann")
        await services.execute("INSERT INTO users (id, tier) VALUES ('u1', 'premium'), ('u2', 'premium')")
        await services.execute(
            "INSERT INTO api_keys (hash, prefix, tier, created_by) VALUES (sha256('x'), 'hg_abc', 'free', 'ann')"
        )
        before = await services.tables()
        with pytest.raises(Conflict, match=r"'premium' cannot be deleted: 2 users are on it \('u1', for example\)"):
            await services.sets.sync({"tiers": {"free": TIERS["free"]}}, "ann")
        with pytest.raises(Conflict, match=r"'free' cannot be deleted: a key is on it \('hg_abc', for example\)"):
            await services.sets.plan({"tiers": {"premium": TIERS["premium"]}}, delete=True)
        assert await services.tables() == before

    scenario(database_url, run)


def test_problems_are_named_by_the_places_of_the_file(database_url: str) -> None:
    """What is wrong with a file's rule is said of its place there, what it breaks elsewhere by the rule's name."""

    async def run(services: RuleServices) -> None:
        await services.sets.apply({"tiers": TIERS, "rules": [SEARCH | {"limits": "tier:search"}]}, "ann")
        before = await services.tables()
        cases: list[tuple[object, list[str]]] = [
            ([LOGIN, SEARCH | {"limits": "tier:nothing"}], ["rules[1].limits"] * 2),
            ([LOGIN, LOGIN], ["rules[1].name"]),
            ([LOGIN | {"limits": "x"}, {"name": "a b"}], ["rules[0].limits", "rules[1].name", "rules[1].limits"]),
            ({"tiers": {"free": {"limits": {"other": "1/hour"}}}}, ["rules.search.limits"]),
            ({"tiers": {"free": {"limits": {"search": "3 concurrent"}}}}, ["rules.search.limits"]),
            (
                {"tiers": {"free": {"display_name": "x" * 256, "limits": {"search": "1/hour"}}}},
                ["tiers.free.display_name"],
            ),
            ({"tiers": {"Free": {}, "PREMIUM": {}}}, ["tiers.Free", "tiers.PREMIUM"]),
            ({"default_tier": "Free"}, ["default_tier"]),
            ({"rules": [LOGIN], "overrides": [{}]}, ["overrides"]),
        ]
        for data, places in cases:
            with pytest.raises(InvalidRules) as caught:
                await services.sets.apply(data, "ann")
            assert [problem.field for problem in caught.value.problems] == places
            with pytest.raises(InvalidRules) as caught:
                await services.sets.plan(data, delete=False)
            assert [problem.field for problem in caught.value.problems] == places
        assert await services.tables() == before

    scenario(database_url, run)


def test_too_many_rules_are_refused(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is a bound on how many rules can be active; up to it they are written and read in parts."""
    monkeypatch.setattr("headgate.controlplane.publisher.MAX_RULES", 600)
    monkeypatch.setattr("headgate.controlplane.publisher._PAGE", 100)
    monkeypatch.setattr("headgate.controlplane.rule_rows._PAGE", 250)

    async def run(services: RuleServices) -> None:
        rules = [SEARCH | {"name": f"r{number}"} for number in range(601)]
        await services.sets.apply(rules[:600], "ann")
        assert [rule.name for rule in (await services.active()).rules] == [rule["name"] for rule in rules[:600]]
        with pytest.raises(InvalidRules, match="there would be 601 rules; at most 600"):
            await services.rules.create(rules[600], "ann")
        broken = [rule | {"limits": "tier:x"} for rule in rules[:600]]
        with pytest.raises(InvalidRules, match="and 500 more problems") as caught:
            await services.sets.apply(broken, "ann")
        assert len(caught.value.problems) == 101

    scenario(database_url, run)


@pytest.fixture(scope="module")
def two_databases(postgres: Postgres) -> tuple[str, str]:
    return postgres.new_database(), postgres.new_database()


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=RULE_SETS)
def test_what_is_dumped_can_be_applied(two_databases: tuple[str, str], data: dict[str, Any]) -> None:
    """Applied to an empty database, a dump gives the same active rules and the same dump."""

    async def run() -> None:
        first, second = (RuleServices(url) for url in two_databases)
        try:
            await there_and_back(first, second)
        finally:
            await first.database.close()
            await second.database.close()

    async def there_and_back(first: RuleServices, second: RuleServices) -> None:
        for services in (first, second):
            await services.execute("DELETE FROM rules; DELETE FROM tiers")
        await first.sets.apply(data, "ann")
        dumped = await first.sets.dump()
        await second.sets.apply(dumped, "ann")
        assert json.dumps(await second.sets.dump()) == json.dumps(dumped)
        made = await first.active()
        assert made == await second.active()
        assert {rule.name: rule for rule in made.rules} == {rule.name: rule for rule in parse_rule_set(data).rules}
        assert (await first.sets.apply(data, "ann")).is_empty
        assert (await first.sets.sync(dumped, "ann")).is_empty

    asyncio.run(run())


def test_a_file_behind_a_link_goes_on_changing_its_rules(database_url: str, tmp_path: Path) -> None:
    """A ConfigMap of Kubernetes: at each update a link leads to a new folder, and the file stays the owner."""
    for version, limit in (("..1", "5/hour"), ("..2", "6/hour")):
        (tmp_path / version).mkdir()
        (tmp_path / version / "rules.yaml").write_text(f"rules: [{{name: search, limits: {limit}}}]")
    (tmp_path / "rules.yaml").symlink_to("..data/rules.yaml")
    (tmp_path / "..data").symlink_to("..1")

    async def run(services: RuleServices) -> None:
        async def limits(expected: str) -> None:
            while True:
                if [str(limit) for rule in (await services.active()).rules for limit in rule.limits] == [expected]:
                    return
                await asyncio.sleep(0.05)

        file = RulesFile(tmp_path / "rules.yaml")
        await services.sets.apply([SEARCH], "old", f"{tmp_path}/..1/rules.yaml")
        notifier = cast("Notifier", SimpleNamespace(announce=services.announce))
        preparing = asyncio.create_task(Preparation(services.announce, file, services.sets, notifier).run())
        async with asyncio.timeout(30):
            await limits("5/hour")
            (tmp_path / "..new").symlink_to("..2")
            (tmp_path / "..new").rename(tmp_path / "..data")
            await limits("6/hour")
        assert (await services.rules.get("search")).owner == f"{tmp_path}/rules.yaml"
        preparing.cancel()

    scenario(database_url, run)
