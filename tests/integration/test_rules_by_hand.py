"""Rows written straight into the tables: the database refuses them, or publishing does and names the rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import asyncpg
import pytest
from tests.integration.rule_services import LOGIN, SEARCH, TIERS, RuleServices, scenario

from headgate.errors import InvalidRules

if TYPE_CHECKING:
    from tests.support.postgres import Postgres


@pytest.fixture(scope="module")
def tables(postgres: Postgres) -> str:
    """The address of a database with two tiers and a rule, into which every test writes a row, and takes it out."""
    url = postgres.new_database()

    async def run(services: RuleServices) -> None:
        await services.sets.apply({"tiers": TIERS, "rules": [SEARCH | {"limits": "tier:search"}]}, "ann")

    scenario(url, run)
    return url


INSERT = "INSERT INTO rules (name, data, updated_by) VALUES ($1, $2, 'psql')"

REFUSED_BY_THE_DATABASE: list[tuple[str, object]] = [
    ("hand", [SEARCH]),
    ("hand", "search"),
    ("hand", 7),
    ("hand", None),
    ("hand", {"name": "other", "limits": "1/hour"}),
    ("hand", {"limits": "1/hour", "priority": "high"}),
    ("hand", {"limits": "1/hour", "priority": 10**30}),
    ("hand", {"limits": "1/hour", "priority": []}),
    ("hand", {"limits": "1/hour", "enabled": "perhaps"}),
    ("hand", {"limits": "1/hour", "layer": "\x00"}),
    ("search", {"limits": "1/hour"}),
    ("SEARCH", {"limits": "1/hour"}),
    ("a b", {"limits": "1/hour"}),
    ("", {"limits": "1/hour"}),
    ("ünicode", {"limits": "1/hour"}),
    ("x" * 65, {"limits": "1/hour"}),
]


@pytest.mark.parametrize(("name", "data"), REFUSED_BY_THE_DATABASE)
def test_the_database_refuses_what_can_be_no_rule(tables: str, name: str, data: object) -> None:
    """Names that are none or are taken whatever their case, and data that is no rule's, do not get into the table."""

    async def run(services: RuleServices) -> None:
        before = await services.tables()
        with pytest.raises((asyncpg.PostgresError, asyncpg.DataError)):
            await services.execute(INSERT, name, data)
        assert await services.tables() == before

    scenario(tables, run)


def _deep(depth: int) -> str:
    return '{"limits":' + "[" * depth + "]" * depth + "}"


# As SQL, so that PostgreSQL reads what Python does not.
REFUSED_WHEN_PUBLISHED: list[tuple[str, str]] = [
    ("'{}'", "rules.hand.limits: a rule needs limits"),
    ("""'{"limits": "x"}'""", "rules.hand.limits: 'x' is not a limit"),
    ("""'{"limits": 5}'""", "rules.hand.limits: a limit"),
    ("""'{"limits": null}'""", "rules.hand.limits: a rule needs limits"),
    ("""'{"limits": "tier:nothing"}'""", "rules.hand.limits: tier 'free'"),
    ("""'{"limits": "1/hour", "match": {"tiers": ["gold"]}}'""", "rules.hand.match.tiers: there is no tier 'gold'"),
    ("""'{"limits": "1/hour", "match": "all"}'""", "rules.hand.match: expected a mapping"),
    ("""'{"limits": "1/hour", "match": {"endpoints": [7]}}'""", "rules.hand.match.endpoints[0]: expected a text"),
    ("""'{"limits": "1/hour", "match": {"ip_ranges": ["10.0.0.1/8"]}}'""", "rules.hand.match.ip_ranges[0]: "),
    ("""'{"limits": "1/hour", "priority": 2000000}'""", "rules.hand.priority: expected a whole number"),
    ("""'{"limits": "1/hour", "enabled": 1}'""", "rules.hand.enabled: expected true or false"),
    ("""'{"limits": "1/hour", "enabled": "on"}'""", "rules.hand.enabled: expected true or false"),
    ("""'{"limits": "1/hour", "colour": "red"}'""", "rules.hand.colour: unknown field"),
    ("""'{"limits": "1/hour", "algorithm": "concurrency"}'""", "rules.hand.limits: concurrency needs"),
    ("""'{"limits": "1/hour", "action": "block"}'""", "rules.hand.limits: a rule with 'action: block'"),
    ("""'{"limits": "1/hour", "sample": 1e5000}'""", "rules.hand: its row was written by hand and cannot be read"),
    (f"'{_deep(3_000)}'", "rules.hand"),  # Python 3.13 reads it, and finds that it is no limit
    (f"'{_deep(500)}'", "rules.hand.limits: "),
    ("""jsonb_build_object('limits', repeat('x', 1000000))""", "rules.hand.limits: a limit of 1000000 characters"),
]


@pytest.mark.parametrize(("data", "line"), REFUSED_WHEN_PUBLISHED, ids=lambda value: value[:60])
def test_publishing_refuses_and_names_the_rule(tables: str, data: str, line: str) -> None:
    """Publishing, or changing another rule, fails and names the broken rule; the last snapshot stays."""

    async def run(services: RuleServices) -> None:
        await services.execute(f"INSERT INTO rules (name, data, updated_by) VALUES ('hand', {data}, 'psql')")  # noqa: S608 (our own words)
        before = await services.tables()
        attempts: list[Any] = [
            lambda: services.snapshots.publish("ann"),
            lambda: services.rules.replace("search", SEARCH | {"limits": "7/hour"}, "ann"),
            lambda: services.rules.create(LOGIN, "ann", draft=True),
            lambda: services.sets.apply([LOGIN], "ann"),
        ]
        for attempt in attempts:
            with pytest.raises(InvalidRules) as caught:
                await attempt()
            assert caught.value.lines[0].startswith(line)
            assert len(caught.value.lines[0]) < 500
            assert await services.tables() == before
        assert [rule.name for rule in (await services.active()).rules] == ["search"]
        assert (await services.rules.get("hand")).updated_by == "psql"
        assert len(await services.rules.list()) == 2
        await services.rules.replace("hand", {"limits": "1/hour"}, "ann")
        assert len((await services.active()).rules) == 2
        await services.rules.delete("hand", "ann")

    scenario(tables, run)


TIERS_BY_HAND: list[tuple[str, str]] = [
    ("""'{"search": "x"}'""", "tiers.hand.limits.search: 'x' is not a limit"),
    ("""'{"search": {"a": 1}}'""", "tiers.hand.limits.search: "),
    ("""'{"search": []}'""", "tiers.hand.limits.search: expected one to 8 limits"),
    ("""'{"a b": "1/hour", "search": "1/hour"}'""", "tiers.hand.limits.a b: 'a b' is not a name"),
    ("""'{}'""", "rules.search.limits: tier 'hand', which this rule can match, has no limit named 'search'"),
    (f"'{_deep(3_000)}'", "tiers.hand.limits"),  # as above
    ("""'{"search": 1e5000}'""", "tiers.hand.limits: expected a mapping of names"),
]


@pytest.mark.parametrize(("limits", "line"), TIERS_BY_HAND, ids=lambda value: value[:60])
def test_publishing_names_the_tier(tables: str, limits: str, line: str) -> None:
    """A tier that was written by hand is found out as well."""

    async def run(services: RuleServices) -> None:
        await services.execute(f"INSERT INTO tiers (name, limits) VALUES ('hand', {limits})")  # noqa: S608 (our own words)
        before = await services.tables()
        for attempt in (services.snapshots.publish, lambda who: services.rules.create(LOGIN, who)):
            with pytest.raises(InvalidRules) as caught:
                await attempt("ann")
            assert caught.value.lines[0].startswith(line)
            assert await services.tables() == before
        await services.execute("DELETE FROM tiers WHERE name = 'hand'")

    scenario(tables, run)


@pytest.mark.parametrize("column", ["data", "draft"])
def test_a_broken_row_does_not_keep_others_from_being_seen(database_url: str, column: str) -> None:
    """Lists, drafts and deletion go on beside a row that cannot be read."""

    async def run(services: RuleServices) -> None:
        await services.rules.create(SEARCH, "ann")
        await services.execute(
            f"""INSERT INTO rules (name, {column}, updated_by) VALUES ('hand', '{{"sample": 1e5000}}', 'psql')"""  # noqa: S608 (our own words)
        )
        assert [rule.name for rule in await services.rules.list()] == ["hand", "search"]
        with pytest.raises(InvalidRules, match=r"rules\.hand: its row was written by hand"):
            await services.rules.publish(None, "ann") if column == "draft" else await services.sets.dump()
        await services.rules.delete("hand", "ann")
        assert await services.sets.dump() == {"rules": [SEARCH | {"limits": "100/hour"}]}

    scenario(database_url, run)
