"""A database whose rules were written by an earlier version, with fields that are refused today."""

from __future__ import annotations

from typing import Any

import pytest
from tests.integration.rule_services import SEARCH, RuleServices, scenario

from headgate.adapters.zones import zone
from headgate.controlplane.documents import make
from headgate.controlplane.overrides import OverrideReader
from headgate.errors import InvalidRules

OFFICE: dict[str, Any] = {"action": "allow", "per": ["user"], "match": {"ip_ranges": ["10.0.0.0/8"]}}
SHUT: dict[str, Any] = {"action": "block", "cost": 5, "spread": "leased", "match": {"methods": ["PUT"]}}
WIDE: dict[str, Any] = {"per": ["user"], "limits": ["9/hour"], "spread": "leased"}
"""Without effect in an earlier version; today it is a rule as any other."""
TAB: dict[str, Any] = {"limits": ["9/hour"], "match": {"endpoints": ["/a\tb"]}}
INSERT = "INSERT INTO rules (name, data, draft, updated_by) VALUES ($1, $2, $3, 'old')"


async def upgraded(services: RuleServices) -> int:
    """Write such rules, and the snapshot of them; returns its number."""
    await services.rules.create(SEARCH, "ann")
    for name, data in {"office": OFFICE, "shut": SHUT, "wide": WIDE, "tab": TAB}.items():
        await services.execute(INSERT, name, {"name": name} | data, None)
    await services.execute(INSERT, "draft", None, OFFICE | {"name": "draft"})
    newest = await services.snapshots.current()
    assert newest is not None
    old = [{"name": "office"} | OFFICE, {"name": "shut"} | SHUT, {"name": "wide"} | WIDE, {"name": "tab"} | TAB]
    rules = [SEARCH, *old]
    document = make("rules", newest.number, {"rules": rules})
    await services.execute(
        "UPDATE snapshots SET rules = 5, digest = $2, body = $3 WHERE number = $1",
        newest.number,
        document.digest,
        document.body,
    )
    return newest.number


def test_every_change_goes_on(database_url: str) -> None:
    """Other rules change, and the old ones are switched, published, given overrides, rolled back and replaced."""

    async def run(services: RuleServices) -> None:
        then = await upgraded(services)
        await services.rules.replace("search", SEARCH | {"limits": "7/hour"}, "ben")
        names = {rule.name for rule in (await services.active()).rules}
        assert names == {"search", "office", "shut", "wide", "tab"}
        await services.rules.set_enabled("office", False, "ben")
        await services.rules.publish(None, "ben")
        assert await services.rules.validate({"name": "new", "limits": "1/hour"}) == []
        await services.sets.apply([{"name": "new", "limits": "1/hour"}], "ben")
        own = await OverrideReader(zone).read_one(services.database, "wide", "5/hour")
        assert own == ("5/hour",)
        old = (await services.rules.history("office"))[-1]
        await services.rules.replace("office", {"action": "block"}, "ben")
        await services.rules.rollback("office", old.change, "ben")
        back = await services.rules.get("office")
        assert back.data is not None
        assert (back.data["action"], back.data["per"]) == ("allow", ["global"])
        await services.snapshots.rollback(then, "ben")
        assert {rule.name for rule in (await services.active()).rules} == names
        await services.snapshots.publish("ben")

    scenario(database_url, run)


def test_the_dump_can_be_applied(database_url: str) -> None:
    """Fields without effect are not in it, so that people can go on with it."""

    async def run(services: RuleServices) -> None:
        await upgraded(services)
        await services.rules.delete("tab", "ben")
        dump = await services.sets.dump()
        assert [each for each in dump["rules"] if each["name"] in {"office", "shut", "wide"}] == [
            {"name": "office", "action": "allow", "match": OFFICE["match"]},
            {"name": "shut", "action": "block", "match": SHUT["match"]},
            {"name": "wide", "per": ["user"], "limits": "9/hour", "spread": "leased"},
        ]
        await services.sets.sync(dump, "ben")
        assert await services.sets.dump() == dump

    scenario(database_url, run)


def test_people_cannot_write_them_any_more(database_url: str) -> None:
    """Neither one by one nor in a file."""

    async def run(services: RuleServices) -> None:
        await upgraded(services)
        for data in (OFFICE, SHUT, TAB):
            with pytest.raises(InvalidRules):
                await services.rules.replace("search", data, "ben")
            with pytest.raises(InvalidRules):
                await services.sets.apply([data | {"name": "new"}], "ben")
            assert await services.rules.validate(data | {"name": "new"})

    scenario(database_url, run)
