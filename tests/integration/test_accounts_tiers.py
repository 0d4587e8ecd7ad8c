"""Tiers: a default among them, part of what is published, and kept while a user, key or rule needs them."""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING

import pytest
from tests.integration.accounts import with_accounts

from headgate.controlplane.changes import Kind, changes
from headgate.controlplane.documents import stored
from headgate.errors import Conflict, InvalidFields, InvalidRules, NotFound, Stale
from headgate.ports import RULES

if TYPE_CHECKING:
    from tests.integration.accounts import Accounts


def test_a_tier_is_kept_as_it_was_written(database_url: str) -> None:
    """Limits come back in their plain form, and a price as a number."""

    async def test(accounts: Accounts) -> None:
        limits = {"search": "100 per hour", "api": ["10/second", "1000/hour"], "all": "UNLIMITED"}
        made = await accounts.tiers.create(
            {"name": "free", "display_name": "Für alle", "price": 9.99, "limits": limits}, "token:ci"
        )
        assert made == await accounts.tiers.get("free")
        assert made.limits == {"all": ("unlimited",), "api": ("10/second", "1000/hour"), "search": ("100/hour",)}
        assert (made.display_name, made.price, made.version) == ("Für alle", 9.99, 1)
        (change,) = await changes(accounts.database, Kind.TIER, "free")
        assert (change["who"], change["verb"], change["before"]) == ("token:ci", "created", None)
        assert change["after"] == made.as_dict()
        assert change["after"]["limits"]["api"] == ["10/second", "1000/hour"]
        assert accounts.announced == 1
        assert await accounts.sql("SELECT number FROM snapshots") == [{"number": change["id"]}]

    with_accounts(database_url, test, rules=False)


def test_there_is_one_default_from_the_first_tier_on(database_url: str) -> None:
    """The first tier is the default; another takes over in one step, in which both are recorded."""

    async def test(accounts: Accounts) -> None:
        assert (await accounts.tiers.create({"name": "free", "is_default": False}, "me")).is_default
        assert not (await accounts.tiers.create({"name": "silver"}, "me")).is_default
        assert (await accounts.tiers.create({"name": "gold", "is_default": True}, "me")).is_default
        assert [tier.name for tier in await accounts.tiers.list() if tier.is_default] == ["gold"]
        after = await accounts.tiers.replace("free", {"is_default": True}, "me")
        assert after.is_default
        assert [(tier.name, tier.version) for tier in await accounts.tiers.list()] == [
            ("free", 3),
            ("silver", 1),
            ("gold", 2),
        ]
        assert [row["name"] for row in await changes(accounts.database)][:2] == ["free", "gold"]
        published = await stored(accounts.database, RULES)
        assert published is not None
        assert json.loads(zlib.decompress(published.body))["default_tier"] == "free"
        kept = await accounts.tiers.replace("free", {"price": 5}, "me")
        assert kept.is_default
        with pytest.raises(InvalidFields, match="set is_default at another tier"):
            await accounts.tiers.replace("free", {"is_default": False}, "me")

    with_accounts(database_url, test, rules=False)


def test_of_two_who_change_one_tier_the_second_is_told(database_url: str) -> None:
    """A change made from an older version is refused."""

    async def test(accounts: Accounts) -> None:
        assert (await accounts.tiers.replace("free", {"limits": {"search": "1/hour"}}, "me", 1)).version == 2
        with pytest.raises(Stale, match=r"tier 'free' has changed since it was read \(it is at version 2 now\)"):
            await accounts.tiers.replace("free", {"limits": {"search": "2/hour"}}, "you", 1)
        with pytest.raises(Stale):
            await accounts.tiers.delete("free", "you", 1)
        assert (await accounts.tiers.get("free")).limits == {"search": ("1/hour",)}

    with_accounts(database_url, test)


def test_a_tier_that_is_needed_stays(database_url: str) -> None:
    """The refusal says what needs it: a user, a key, a rule, or all users that name none."""

    async def test(accounts: Accounts) -> None:
        before = await accounts.everything()
        with pytest.raises(Conflict, match="is the default"):
            await accounts.tiers.delete("free", "me")
        assert await accounts.everything() == before
        await accounts.users.create({"id": "u1", "tier": "premium"}, "me")
        with pytest.raises(Conflict, match="user 'u1' is on it"):
            await accounts.tiers.delete("premium", "me")
        await accounts.users.delete("u1", "me")
        key, _ = await accounts.keys.create({"tier": "premium"}, "me")
        with pytest.raises(Conflict, match=f"API key '{key.id}' is on it"):
            await accounts.tiers.delete("premium", "me")
        await accounts.sql("DELETE FROM api_keys")
        await accounts.rules.replace("export", {"limits": "5/minute", "match": {"tiers": ["premium"]}}, "me")
        before = await accounts.everything()
        with pytest.raises(Conflict, match=r"still needed: .*there is no tier 'premium'"):
            await accounts.tiers.delete("premium", "me")
        assert await accounts.everything() == before
        await accounts.sql("DELETE FROM rules")
        await accounts.tiers.delete("premium", "me")
        await accounts.tiers.delete("free", "me")
        assert await accounts.tiers.list() == []

    with_accounts(database_url, test)


def test_a_limit_that_a_rule_takes_from_tiers_cannot_be_taken_away(database_url: str) -> None:
    """Publishing fails, and with it the whole change: nothing is kept, nothing is announced."""

    async def test(accounts: Accounts) -> None:
        before, told = await accounts.everything(), accounts.announced
        with pytest.raises(InvalidRules, match="has no limit named 'search'"):
            await accounts.tiers.replace("free", {"limits": {"other": "1/hour"}}, "me")
        with pytest.raises(InvalidRules, match="has no limit named 'search'"):
            await accounts.tiers.create({"name": "bronze", "is_default": True}, "me")
        with pytest.raises(InvalidRules, match="concurrent"):
            await accounts.tiers.replace("free", {"limits": {"search": "3 concurrent"}}, "me")
        assert await accounts.everything() == before
        assert accounts.announced == told

    with_accounts(database_url, test)


def test_what_is_not_there_is_not_found(database_url: str) -> None:
    """Names are exact, and a name that nothing can have is only one more that is not there."""

    async def test(accounts: Accounts) -> None:
        for name in ("gold", "FREE", "free\x00", "fre\ud800", "", "\uff46\uff52\uff45\uff45"):
            for missing in (
                accounts.tiers.get(name),
                accounts.tiers.replace(name, {}, "me"),
                accounts.tiers.delete(name, "me"),
            ):
                with pytest.raises(NotFound, match="there is no tier"):
                    await missing

    with_accounts(database_url, test)
