"""Users: tier, overrides, totals, pages, and very many at once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.accounts import with_accounts

from headgate.controlplane.changes import Kind, changes
from headgate.errors import Conflict, InvalidFields, NotFound, Stale

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.integration.accounts import Accounts


def test_a_user_is_kept_as_it_was_written(database_url: str) -> None:
    """With its tier, when it got it, and limits of its own."""

    async def test(accounts: Accounts) -> None:
        data = {"id": "u1", "tier": "free", "overrides": {"export": "50 per minute", "search": ["1/second", "9/hour"]}}
        made = await accounts.users.create(data, "me")
        assert made == await accounts.users.get("u1")
        assert made.overrides == {"export": ("50/minute",), "search": ("1/second", "9/hour")}
        assert (made.requests_today, made.requests_month, made.times_exceeded, made.version) == (0, 0, 0, 1)
        (change,) = await changes(accounts.database, Kind.USER, "u1")
        assert change["after"] == made.as_dict()
        with pytest.raises(Conflict, match="there is a user 'u1' already"):
            await accounts.users.create(data, "me")
        replaced = await accounts.users.replace("u1", {"id": "u1", "overrides": {"slots": "unlimited"}}, "me")
        assert (replaced.tier, replaced.tier_since, replaced.overrides) == (None, None, {"slots": ("unlimited",)})
        assert replaced.version == 2

    with_accounts(database_url, test)


def test_an_upgrade_is_dated(database_url: str) -> None:
    """The time of the last change of tier is kept; other changes do not move it."""

    async def test(accounts: Accounts) -> None:
        first = await accounts.users.create({"id": "u1", "tier": "free"}, "me")
        same = await accounts.users.replace("u1", {"tier": "free", "overrides": {"export": "1/hour"}}, "me")
        assert first.tier_since is not None
        assert same.tier_since == first.tier_since
        upgraded = await accounts.users.replace("u1", {"tier": "premium"}, "me")
        assert upgraded.tier_since is not None
        assert upgraded.tier_since > first.tier_since

    with_accounts(database_url, test)


def test_ids_are_opaque(database_url: str) -> None:
    """Letter case, Unicode form and blanks make another user, and no id can do harm."""

    async def test(accounts: Accounts) -> None:
        ids = ["a", "A", " a", "é", "e\u0301", "'; DROP TABLE users; --", "*", "\U0001f600" * 255, "a/b?c#d"]
        for each in ids:
            await accounts.users.create({"id": each}, "me")
        for each in ids:
            assert (await accounts.users.get(each)).id == each
        assert len(await accounts.users.list()) == len(ids)

    with_accounts(database_url, test)


def test_overrides_come_and_go_one_by_one(database_url: str) -> None:
    """Each is a change of the user, and only the newest version may be changed."""

    async def test(accounts: Accounts) -> None:
        await accounts.users.create({"id": "u1", "overrides": {"search": "1/hour"}}, "me")
        assert (await accounts.users.set_override("u1", "export", ["9/minute"], "me", 1)).version == 2
        with pytest.raises(Stale):
            await accounts.users.set_override("u1", "export", "8/minute", "you", 1)
        again = await accounts.users.set_override("u1", "export", "7/minute", "me")
        assert again.overrides == {"export": ("7/minute",), "search": ("1/hour",)}
        left = await accounts.users.remove_override("u1", "search", "me", 3)
        assert left.overrides == {"export": ("7/minute",)}
        with pytest.raises(NotFound, match="no override of rule 'search'"):
            await accounts.users.remove_override("u1", "search", "me")
        for limits in ("3 concurrent", "", [], None, 5, ["1/hour", "2/hour"], "1/calendar day tz Mars/Phobos"):
            with pytest.raises(InvalidFields, match="limits"):
                await accounts.users.set_override("u1", "search", limits, "me")
        for rule in ("none", "staff", "Search", "sear\x00ch", "\ud800"):
            with pytest.raises(InvalidFields, match="limits"):
                await accounts.users.set_override("u1", rule, "1/hour", "me")

    with_accounts(database_url, test)


def test_an_override_of_a_rule_that_is_only_drafted_or_broken_is_refused(database_url: str) -> None:
    """The tables may hold anything, written by hand; limits are checked against active rules."""

    async def test(accounts: Accounts) -> None:
        await accounts.sql("INSERT INTO rules (name, draft, updated_by) VALUES ('draft', '{}', 'me')")
        await accounts.sql("INSERT INTO rules (name, data, updated_by) VALUES ('broken', '{\"per\": 7}', 'me')")
        for rule in ("draft", "broken"):
            with pytest.raises(InvalidFields, match=f"there is no active rule '{rule}'"):
                await accounts.users.create({"id": "u1", "overrides": {rule: "1/hour"}}, "me")

    with_accounts(database_url, test)


def test_a_user_cannot_have_overrides_without_end(database_url: str) -> None:
    """Every process keeps users in memory, so each of them is small."""

    async def test(accounts: Accounts) -> None:
        await accounts.sql(
            "INSERT INTO rules (name, data, updated_by)"
            " SELECT 'r' || n, jsonb_build_object('name', 'r' || n, 'limits', '1/hour'), 'me'"
            " FROM generate_series(1, 101) AS n"
        )
        await accounts.users.create({"id": "u1", "overrides": {f"r{n}": "2/hour" for n in range(1, 101)}}, "me")
        with pytest.raises(Conflict, match="100 overrides"):
            await accounts.users.set_override("u1", "r101", "2/hour", "me")
        await accounts.users.set_override("u1", "r100", "3/hour", "me")

    with_accounts(database_url, test)


@pytest.mark.usefixtures("one_day")
def test_totals_of_an_earlier_day_or_month_are_zero(database_url: str) -> None:
    """What was counted yesterday is not today's."""

    async def test(accounts: Accounts) -> None:
        await accounts.sql(
            "INSERT INTO users (id, requests_today, requests_month, counted_on)"
            " SELECT id, 5, 50, (now() AT TIME ZONE 'UTC' + days)::date"
            " FROM (VALUES ('today', '0 days'::interval), ('never', NULL), ('year', '-1 year'), ('month',"
            "       CASE extract(day FROM now() AT TIME ZONE 'UTC') WHEN 1 THEN '1 day' ELSE '-1 day' END::interval)"
            ") AS _ (id, days)"
        )
        seen = {user.id: (user.requests_today, user.requests_month) for user in await accounts.users.list()}
        assert seen == {"today": (5, 50), "never": (0, 0), "month": (0, 50), "year": (0, 0)}

    with_accounts(database_url, test)


def test_a_quota_reset_is_noted(database_url: str) -> None:
    """When and by whom."""

    async def test(accounts: Accounts) -> None:
        await accounts.users.create({"id": "u1"}, "me")
        assert (await accounts.users.mark_quota_reset("u1", "token:support")).quota_reset is not None
        change = (await changes(accounts.database, Kind.USER, "u1"))[0]
        assert (change["who"], change["verb"]) == ("token:support", "reset")

    with_accounts(database_url, test)


def test_a_deleted_user_takes_its_keys_along(database_url: str) -> None:
    """And every process is told to forget the keys it knows."""

    async def test(accounts: Accounts) -> None:
        await accounts.users.create({"id": "u1", "overrides": {"export": "1/hour"}}, "me")
        key, _ = await accounts.keys.create({"user": "u1"}, "me")
        await accounts.keys.rotate(key.id, "me")
        with pytest.raises(Stale):
            await accounts.users.delete("u1", "me", 9)
        await accounts.users.delete("u1", "me", 1)
        assert await accounts.keys.list() == []
        first, second = (await changes(accounts.database))[:2]
        assert (first["kind"], first["name"], first["after"]) == ("user", "u1", None)
        assert (second["kind"], second["name"]) == ("api_key", "*")
        assert key.id in second["before"]["keys"]

    with_accounts(database_url, test)


def test_pages_neither_repeat_nor_skip_while_others_write(database_url: str) -> None:
    """A page begins behind the last id of the one before, whatever has come and gone since."""

    async def test(accounts: Accounts) -> None:
        for number in range(0, 20, 2):
            await accounts.users.create({"id": f"u{number:02}", "tier": ("free", "premium")[number % 4 > 0]}, "me")
        first = await accounts.users.list(most=4)
        await accounts.users.create({"id": "u01"}, "me")
        await accounts.users.create({"id": "u09"}, "me")
        await accounts.users.delete(first[-1].id, "me")
        second = await accounts.users.list(after=first[-1].id, most=4)
        assert [user.id for user in (*first, *second)] == [f"u{n:02}" for n in (0, 2, 4, 6, 8, 9, 10, 12)]
        on_tier = await accounts.users.list(tier="free", after="u04", most=2)
        assert [user.id for user in on_tier] == ["u08", "u12"]
        assert await accounts.users.list(tier="no\x00ne") == []
        with pytest.raises(InvalidFields, match="after"):
            await accounts.users.list(after="\x00")

    with_accounts(database_url, test)


def test_of_two_who_change_one_user_at_the_same_time_one_wins(database_url: str) -> None:
    """The other is told, and nothing is mixed."""

    async def test(accounts: Accounts) -> None:
        await accounts.users.create({"id": "u1"}, "me")
        ended = await asyncio.gather(
            *(accounts.users.replace("u1", {"tier": tier}, tier, 1) for tier in ("free", "premium") * 3),
            return_exceptions=True,
        )
        assert sum(not isinstance(end, BaseException) for end in ended) == 1
        assert sum(isinstance(end, Stale) for end in ended) == 5
        assert (await accounts.users.get("u1")).version == 2

    with_accounts(database_url, test)


def test_many_users_are_loaded_at_once(database_url: str) -> None:
    """New ones are made, others brought up to date; overrides that are not mentioned stay."""

    async def test(accounts: Accounts) -> None:
        await accounts.users.create({"id": "u1", "tier": "free", "overrides": {"export": "1/hour"}}, "me")
        same = await accounts.users.create({"id": "u2", "tier": "free", "overrides": {"export": "1/hour"}}, "me")
        await accounts.users.create({"id": "u3", "overrides": {"export": "1/hour"}}, "me")

        async def rows() -> AsyncIterator[dict[str, Any]]:
            yield {"id": "u1", "tier": "premium"}
            yield {"id": "u2", "tier": "free"}
            yield {"id": "u3", "overrides": {}}
            yield {"id": "u4", "overrides": {"search": ["9/second", "99/hour"]}}
            yield {"id": "u5", "tier": "free"}
            yield {"id": "u5", "tier": "premium"}
            for number in range(10_000):
                yield {"id": f"v{number}"}

        heard: list[int] = []
        assert await accounts.users.load(rows(), "token:import", heard.append) == 10_006
        assert heard == [10_000, 10_006]
        first, second, third, fourth, fifth = await accounts.users.list(most=5)
        assert (first.tier, first.overrides, first.version) == ("premium", {"export": ("1/hour",)}, 2)
        assert second == same
        assert (third.overrides, third.version) == ({}, 2)
        assert fourth.overrides == {"search": ("9/second", "99/hour")}
        assert fifth.tier == "premium"
        change = (await changes(accounts.database))[0]
        assert (change["kind"], change["name"], change["verb"]) == ("user", "*", "loaded")
        assert change["after"] == {"users": 10_006}
        assert await accounts.users.load([], "me") == 0

    with_accounts(database_url, test)


def test_a_load_with_something_wrong_leaves_nothing(database_url: str) -> None:
    """Every row is checked like a single one; a hundred problems are told, and how many more there are."""

    async def test(accounts: Accounts) -> None:
        before = await accounts.everything()
        good = [{"id": f"u{number}"} for number in range(10_000)]
        with pytest.raises(InvalidFields) as caught:
            await accounts.users.load([*good, *({"id": "x", "tier": "none"} for _ in range(150)), 7], "me")
        problems = caught.value.problems
        assert problems[0].field == "[10000].tier"
        assert len(problems) == 101
        assert problems[-1].message == "and 51 more problems"
        for row in (
            {},
            None,
            {"id": ""},
            {"id": "a\x00"},
            {"id": "a", "more": 1},
            {"id": "a", "overrides": {"x": "1/s"}},
        ):
            with pytest.raises(InvalidFields):
                await accounts.users.load([*good[:2], row], "me")
        assert await accounts.everything() == before

    with_accounts(database_url, test)
