"""Limits that users and keys have in place of a rule's outlive the rule: dormant without it, active with it again."""

from __future__ import annotations

from typing import Any

import pytest
from tests.integration.accounts import Accounts, with_accounts
from tests.integration.rule_services import LOGIN, SEARCH, RuleServices, scenario

from headgate.controlplane.changes import Kind, changes
from headgate.errors import Conflict, InvalidFields, InvalidRules, NotFound, Stale


async def _with_own_limits(services: RuleServices) -> None:
    """Two rules, three users with overrides of `search`, and a key with limits for it."""
    await services.sets.apply([SEARCH, LOGIN], "ann", "a.yaml")
    await services.execute("INSERT INTO users (id) VALUES ('u1'), ('u2'), ('u3')")
    await services.execute("INSERT INTO overrides SELECT id, 'search', '{5/hour}' FROM users")
    await services.execute(
        "INSERT INTO api_keys (hash, prefix, limits, created_by) VALUES (sha256('x'), 'hg_x', $1, 'ann')",
        {"search": ["1/hour"], "login": ["2/hour"]},
    )


async def _own_limits(services: RuleServices) -> tuple[int, list[Any]]:
    tables = await services.tables()
    return len(tables["overrides"]), [key["limits"] for key in tables["api_keys"]]


@pytest.mark.parametrize("way", ["delete and roll back", "sync and roll back", "sync and create"])
def test_overrides_come_back_with_their_rule(database_url: str, way: str) -> None:
    """However the rule goes and comes back, what users and keys had for it is there again."""

    async def run(services: RuleServices) -> None:
        await _with_own_limits(services)
        before = await _own_limits(services)
        snapshot = await services.snapshots.current()
        assert snapshot is not None
        if way == "delete and roll back":
            ((version, *_),) = [await services.rules.history("search")]
            await services.rules.delete("search", "ben")
            await services.rules.rollback("search", version.change, "ben")
        elif way == "sync and roll back":
            await services.sets.sync([LOGIN], "ben", "a.yaml")
            await services.snapshots.rollback(snapshot.number, "ben")
        else:
            await services.sets.sync([LOGIN], "ben", "a.yaml")
            await services.rules.create(SEARCH, "ben")
        assert await _own_limits(services) == before

    scenario(database_url, run)


def test_plans_name_and_count_them(database_url: str) -> None:
    """A plan says whose limits go to sleep with a rule and whose come back with one, in words and as data."""

    async def run(services: RuleServices) -> None:
        await _with_own_limits(services)
        planned = await services.sets.plan([LOGIN], delete=True, owner="a.yaml")
        assert planned.lines() == [
            "- rule search: limits of 3 users (u1, u2, u3) and 1 API key (hg_x) become dormant",
        ]
        assert planned.as_dict()["dormant"] == [
            {"rule": "search", "users": 3, "keys": 1, "some_users": ["u1", "u2", "u3"], "some_keys": ["hg_x"]}
        ]
        assert await services.sets.sync([LOGIN], "ben", "a.yaml") == planned
        await services.execute("INSERT INTO users SELECT 'v' || n FROM generate_series(1, 9) n")
        await services.execute("INSERT INTO overrides SELECT id, 'search', '{5/hour}' FROM users WHERE id LIKE 'v%'")
        planned = await services.sets.plan([SEARCH, LOGIN], delete=False, owner="a.yaml")
        holders = "limits of 12 users (u1, u2, u3, v1, v2 and 7 more) and 1 API key (hg_x)"
        assert planned.lines() == [f"+ rule search: {holders} become active again"]
        assert [each["users"] for each in planned.as_dict()["returning"]] == [12]

    scenario(database_url, run)


def test_changes_record_them_by_value(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The history says which limits went to sleep and which woke up, each one of them, in parts of a bounded size."""
    monkeypatch.setattr("headgate.controlplane.rule_own_limits._PAGE", 2)

    async def run(services: RuleServices) -> None:
        await _with_own_limits(services)
        await services.rules.delete("search", "ben")
        told = [each for each in await changes(services.database, Kind.RULE) if each["verb"] == "overrides_dormant"]
        users = [each["before"]["users"] for each in told if "users" in each["before"]]
        assert {name: limits for part in users for name, limits in part.items()} == {
            name: ["5/hour"] for name in ("u1", "u2", "u3")
        }
        assert len(users) == 2
        (keys,) = [each["before"]["keys"] for each in told if "keys" in each["before"]]
        assert [(key["prefix"], key["limits"]) for key in keys.values()] == [("hg_x", ["1/hour"])]
        await services.rules.create(SEARCH, "ben")
        told = [each for each in await changes(services.database, Kind.RULE) if each["verb"] == "overrides_active"]
        assert sorted(name for each in told for name in each["after"].get("users", {})) == ["u1", "u2", "u3"]
        current = await services.snapshots.current()
        newest = (await changes(services.database))[0]["id"]
        assert current is not None
        assert current.number == newest

    scenario(database_url, run)


def test_a_rule_that_they_do_not_fit_does_not_come_back_in_silence(database_url: str) -> None:
    """A new rule of the name is refused while limits sleep that it could not use; the sentence says what to do."""

    async def run(services: RuleServices) -> None:
        await _with_own_limits(services)
        await services.rules.delete("search", "ben")
        gate = {"name": "search", "action": "block"}
        with pytest.raises(InvalidRules, match=r"3 users have own limits for it .* remove them, or"):
            await services.rules.create(gate, "ben")

    scenario(database_url, run)


def test_dormant_overrides_are_shown_apart_and_survive_other_changes(database_url: str) -> None:
    """What a user or key has for a rule that is gone is listed as dormant, and stays until it is removed."""

    async def run(accounts: Accounts) -> None:
        user = {"id": "u1", "overrides": {"export": "1/hour", "search": "9/hour"}}
        await accounts.users.create(user, "me")
        key, _ = await accounts.keys.create({"limits": {"export": "1/hour", "search": "9/hour"}}, "me")
        await accounts.rules.delete("export", "me")
        found = await accounts.users.get("u1")
        assert (found.overrides, found.dormant_overrides) == ({"search": ("9/hour",)}, {"export": ("1/hour",)})
        asleep = await accounts.keys.get(key.id)
        assert (asleep.limits, asleep.dormant_limits) == ({"search": ("9/hour",)}, {"export": ("1/hour",)})
        # What was read can be written back, and that neither fails nor takes the dormant ones away.
        await accounts.users.replace("u1", {"overrides": found.overrides}, "me")
        await accounts.users.load([{"id": "u1", "overrides": {"search": "8/hour"}}], "me")
        await accounts.keys.replace(key.id, {"limits": asleep.limits}, "me")
        rotated, _ = await accounts.keys.rotate(key.id, "me")
        await accounts.rules.create({"name": "export", "limits": "5/minute", "per": ["user"]}, "me")
        assert (await accounts.users.get("u1")).overrides == {"export": ("1/hour",), "search": ("8/hour",)}
        assert (await accounts.keys.get(rotated.id)).limits == {"export": ("1/hour",), "search": ("9/hour",)}

    with_accounts(database_url, run)


def test_a_dormant_override_can_be_removed(database_url: str) -> None:
    """It is removed like an active one, and does not come back."""

    async def run(accounts: Accounts) -> None:
        await accounts.users.create({"id": "u1", "overrides": {"export": "1/hour"}}, "me")
        await accounts.rules.delete("export", "me")
        left = await accounts.users.remove_override("u1", "export", "me")
        assert (left.overrides, left.dormant_overrides) == ({}, {})
        with pytest.raises(NotFound):
            await accounts.users.remove_override("u1", "export", "me")

    with_accounts(database_url, run)


def test_dormant_limits_of_a_key_can_be_removed(database_url: str) -> None:
    """They are removed like active ones, of a revoked key too; a rule of that name then finds none."""

    async def run(accounts: Accounts) -> None:
        key, _ = await accounts.keys.create({"limits": {"export": "1/hour", "search": "9/hour"}}, "me")
        await accounts.rules.delete("export", "me")
        await accounts.keys.revoke(key.id, "me")
        left = await accounts.keys.remove_limits(key.id, "export", "me")
        assert (left.limits, left.dormant_limits) == ({"search": ("9/hour",)}, {})
        assert left.version == key.version + 2
        with pytest.raises(NotFound, match="no limits for rule 'export'"):
            await accounts.keys.remove_limits(key.id, "export", "me")
        told = (await changes(accounts.database, kind=Kind.API_KEY))[0]
        assert told["before"]["dormant_limits"] == {"export": ["1/hour"]}

    with_accounts(database_url, run)


def test_limits_of_a_key_change_one_rule_at_a_time(database_url: str) -> None:
    """Setting one leaves the others; what does not fit, a revoked key and a stale version are refused."""

    async def run(accounts: Accounts) -> None:
        key, _ = await accounts.keys.create({"limits": {"export": "1/hour"}}, "me")
        assert (await accounts.keys.set_limits(key.id, "search", ["7/hour", "3/minute"], "me")).limits == {
            "export": ("1/hour",),
            "search": ("7/hour", "3/minute"),
        }
        assert (await accounts.keys.remove_limits(key.id, "export", "me")).limits == {"search": ("7/hour", "3/minute")}
        for rule, limit in (("search", "3 concurrent"), ("nowhere", "1/hour")):
            with pytest.raises(InvalidFields):
                await accounts.keys.set_limits(key.id, rule, limit, "me")
        with pytest.raises(Stale):
            await accounts.keys.set_limits(key.id, "search", "8/hour", "me", key.version)
        await accounts.keys.revoke(key.id, "me")
        with pytest.raises(Conflict, match="revoked"):
            await accounts.keys.set_limits(key.id, "search", "8/hour", "me")

    with_accounts(database_url, run)


def test_a_sync_that_deletes_much_asks_for_the_number(database_url: str) -> None:
    """Up to a tenth goes without a word; more needs to be named, and is refused as a whole until it is."""

    async def run(services: RuleServices) -> None:
        rules = [SEARCH | {"name": f"r{number:02}"} for number in range(30)]
        await services.sets.apply(rules, "ann", "a.yaml")
        await services.sets.apply([LOGIN], "ann", "b.yaml")
        assert (await services.sets.sync(rules[:27], "ann", "a.yaml")).removed == ("r27", "r28", "r29")
        before = await services.tables()
        sentence = r"delete 3 of 27 rules .*r24, r25, r26.*; .*--delete-at-most 3"
        planned = await services.sets.plan(rules[:24], delete=True, owner="a.yaml")
        assert planned.as_dict()["delete_at_most"] == 3
        for most in (None, 0, 2):
            with pytest.raises(Conflict, match=sentence):
                await services.sets.sync(rules[:24], "ann", "a.yaml", delete_at_most=most)
        assert await services.tables() == before
        assert len((await services.sets.sync(rules[:24], "ann", "a.yaml", delete_at_most=3)).removed) == 3
        with pytest.raises(Conflict, match="delete 24 of 24 rules"):
            await services.sets.sync({"rules": []}, "ann", "a.yaml", delete_at_most=23)

    scenario(database_url, run)


def test_a_sync_that_deletes_one_rule_of_a_few_needs_no_number(database_url: str) -> None:
    """A single deletion among several is everyday work; deleting the only rule of a file is not."""

    async def run(services: RuleServices) -> None:
        await services.sets.apply([SEARCH, LOGIN], "ann", "a.yaml")
        assert (await services.sets.plan([LOGIN], delete=True, owner="a.yaml")).delete_at_most is None
        assert (await services.sets.sync([LOGIN], "ann", "a.yaml")).removed == ("search",)
        with pytest.raises(Conflict, match="delete 1 of 1 rules"):
            await services.sets.sync({"rules": []}, "ann", "a.yaml")

    scenario(database_url, run)
