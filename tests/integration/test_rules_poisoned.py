"""Poisoned rules: refused with a sentence, by every way in, and nothing is changed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.rule_services import SEARCH, TIERS, RuleServices, scenario
from tests.support.invalid_rules import FIELDS, SETS, WHOLE

from headgate.errors import InvalidRules, short_repr

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator

    from tests.support.postgres import Postgres

GOOD = {"name": "login", "per": ["ip"], "limits": "5/minute"}


class Target:
    """Services with good active rules, and what the tables hold then."""

    def __init__(self, url: str) -> None:
        self.loop = asyncio.Runner()
        self.services = RuleServices(url)
        self.loop.run(self._prepare())
        self.before = self.loop.run(self.services.tables())

    async def _prepare(self) -> None:
        await self.services.sets.apply({"tiers": TIERS, "rules": [SEARCH | {"limits": "tier:search"}]}, "ann")
        await self.services.rules.create({"name": "draft", "limits": "1/hour"}, "ann", draft=True)

    def refuses(self, attempt: Awaitable[object], field: str | None) -> None:
        """The attempt fails with sentences, one of them about the field, and leaves everything as it was."""

        async def run() -> InvalidRules:
            with pytest.raises(InvalidRules) as caught:
                await attempt
            assert await self.services.tables() == self.before
            return caught.value

        error = self.loop.run(run())
        assert field is None or field in [problem.field for problem in error.problems], error
        assert all(10 < len(line) < 1_000 and line.isprintable() for line in error.lines), error

    def close(self) -> None:
        self.loop.run(self.services.database.close())
        self.loop.close()


@pytest.fixture(scope="module")
def target(postgres: Postgres) -> Iterator[Target]:
    made = Target(postgres.new_database())
    yield made
    made.close()


@pytest.mark.parametrize(("poison", "field"), FIELDS, ids=lambda value: short_repr(value)[:40])
def test_a_poisoned_rule_is_refused(target: Target, poison: dict[str, Any], field: str) -> None:
    """Created, drafted, put in another's place or applied from a file: a rule with one bad field changes nothing."""
    services, data = target.services, GOOD | poison
    target.refuses(services.rules.create(data, "eve"), field)
    target.refuses(services.rules.create(data, "eve", draft=True), field)
    target.refuses(services.rules.replace("search", {"name": "search"} | data, "eve"), None)
    target.refuses(
        services.sets.apply([{"name": "first", "limits": "1/hour"}, data], "eve"),
        f"rules[1].{field}".replace(".[", "["),
    )
    problems = target.loop.run(services.rules.validate(data))
    assert field in [problem.field for problem in problems]


@pytest.mark.parametrize("data", WHOLE, ids=lambda value: short_repr(value)[:40])
def test_what_is_no_rule_is_refused(target: Target, data: object) -> None:
    """Something that is no mapping at all is refused in words."""
    target.refuses(target.services.rules.create(data, "eve"), None)
    target.refuses(target.services.rules.replace("search", data, "eve"), None)
    target.refuses(target.services.rules.replace("draft", data, "eve", draft=True), None)


@pytest.mark.parametrize(("data", "field"), SETS, ids=lambda value: short_repr(value)[:40])
def test_a_poisoned_rule_set_is_refused(target: Target, data: object, field: str) -> None:
    """A file with one bad place is applied as a whole or not at all."""
    target.refuses(target.services.sets.apply(data, "eve"), field)
    target.refuses(target.services.sets.sync(data, "eve", "eve.yaml"), field)
    target.refuses(target.services.sets.plan(data, delete=False), field)


def test_there_are_enough_of_them() -> None:
    """More than a hundred, so that every field has its share."""
    assert len(FIELDS) + len(WHOLE) + len(SETS) > 200


def test_a_good_rule_is_taken(database_url: str) -> None:
    """What the poison is put into is good by itself."""

    async def run(services: RuleServices) -> None:
        await services.rules.create(GOOD, "ann")

    scenario(database_url, run)


@pytest.mark.parametrize("many", [100_001, 1_000_000])
def test_more_rules_than_can_be_active_are_not_even_read(target: Target, many: int) -> None:
    """However many there are, there is one sentence about it."""
    rules: list[object] = [{}] * many
    for wish in (rules, {"rules": rules}):
        for attempt in (
            target.services.sets.plan(wish, delete=True),
            target.services.sets.apply(wish, "ann"),
            target.services.sets.sync(wish, "ann"),
        ):
            target.refuses(attempt, "rules")
        (problem,) = target.loop.run(target.services.rules.validate(wish))
        assert problem.message == f"there would be {many:,} rules; at most 100,000 can be active"


def test_the_event_loop_goes_on_while_very_many_rules_are_read(target: Target) -> None:
    """Decisions are made on it, and do not wait while a rule set is checked."""
    wrong = [{"name": f"r{number}", "limits": "x", "match": {"endpoints": 7}} for number in range(10_000)]

    async def run(data: object) -> None:
        loop = asyncio.get_running_loop()
        validating = asyncio.create_task(target.services.rules.validate(data))
        started = before = loop.time()
        longest = 0.0
        while not validating.done():
            await asyncio.sleep(0)
            now = loop.time()
            longest, before = max(longest, now - before), now
        assert await validating
        assert longest < (before - started) / 3

    target.loop.run(run({"rules": wrong}))
    endpoints = [f"/e{number}/{{id}}" for number in range(20_000)]
    one = {"name": "one", "limits": "5/minute", "match": {"endpoints": endpoints, "tiers": ["unknown"]}}
    target.loop.run(run(one))
    target.loop.run(run({"rules": [one]}))


def test_a_list_in_a_rule_has_an_end(target: Target) -> None:
    """Every entry is compiled in every process; one rule must not be able to take minutes."""
    for many, sentence in ((100_001, "at most 100,000 entries, not 100,001"), (1_000_000, "not 1,000,000")):
        rule = {"name": "one", "limits": "5/minute", "match": {"endpoints": ["/a"] * many}}
        (problem,) = target.loop.run(target.services.rules.validate(rule))
        assert sentence in problem.message
