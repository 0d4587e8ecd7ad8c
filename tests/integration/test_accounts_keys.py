"""API keys: a secret that is shown once, expiry, revocation, rotation, and very many at once."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.accounts import AHEAD, with_accounts

from headgate.controlplane.changes import Kind, changes
from headgate.core.api_key import hash_of, looks_like_api_key, new_api_key, prefix_of
from headgate.errors import Conflict, InvalidFields, NotFound, Stale

if TYPE_CHECKING:
    from tests.integration.accounts import Accounts


async def _all_text(accounts: Accounts) -> str:
    """Everything that the database holds."""
    tables = ("users", "api_keys", "changes", "tokens", "blocks")
    return str([await accounts.sql(f"SELECT t::text FROM {table} t") for table in tables])  # noqa: S608 (our own names)


def test_a_key_is_shown_once_and_kept_as_a_hash(database_url: str) -> None:
    """Neither the table nor a change record nor a record has more of it than its first characters."""

    async def test(accounts: Accounts) -> None:
        await accounts.users.create({"id": "u1"}, "me")
        data = {
            "name": "Büro",
            "user": "u1",
            "tenant": "acme",
            "tier": "premium",
            "limits": {"export": "9 per minute"},
            "expires_at": AHEAD,
        }
        key, secret = await accounts.keys.create(data, "token:ci")
        assert looks_like_api_key(secret)
        assert key == await accounts.keys.get(key.id)
        assert (key.name, key.user, key.tenant, key.tier, key.state) == ("Büro", "u1", "acme", "premium", "active")
        assert key.limits == {"export": ("9/minute",)}
        assert key.expires_at == datetime(2199, 12, 31, 23, 59, 59, tzinfo=UTC)
        assert key.created_by == "token:ci"
        await accounts.keys.rotate(key.id, "me", overlap_seconds=60)
        held = await _all_text(accounts) + repr(key) + repr(accounts.keys)
        assert secret not in held
        assert secret[12:] not in held
        assert hash_of(secret).hex() not in repr(key) + str(await changes(accounts.database))
        (row,) = await accounts.sql("SELECT hash, prefix FROM api_keys WHERE id = $1", key.id)
        assert (row["hash"], row["prefix"]) == (hash_of(secret), prefix_of(secret))

    with_accounts(database_url, test)


def test_a_key_is_changed_but_not_given_away(database_url: str) -> None:
    """All but its owner can be changed, at the version that was read."""

    async def test(accounts: Accounts) -> None:
        await accounts.users.create({"id": "u1"}, "me")
        key, _ = await accounts.keys.create({"user": "u1", "name": "a"}, "me")
        changed = await accounts.keys.replace(key.id, {"name": "b", "user": "u1", "tier": "free"}, "me", 1)
        assert (changed.name, changed.user, changed.tier, changed.version) == ("b", "u1", "free", 2)
        with pytest.raises(Stale):
            await accounts.keys.replace(key.id, {"name": "c"}, "me", 1)
        with pytest.raises(InvalidFields, match="user: it is 'u1' and cannot be changed"):
            await accounts.keys.replace(key.id, {"user": "u2"}, "me")
        await accounts.sql("UPDATE api_keys SET expires_at = '2020-01-01T00:00:00Z'")
        kept = await accounts.keys.replace(key.id, {"name": "d", "expires_at": "2020-01-01T01:00:00+01:00"}, "me")
        assert (kept.name, kept.state) == ("d", "expired")
        assert (await accounts.keys.replace(key.id, {"expires_at": AHEAD}, "me")).state == "active"

    with_accounts(database_url, test)


def test_a_revoked_key_is_revoked_for_good(database_url: str) -> None:
    """Who did it and when is kept, also when it is revoked again."""

    async def test(accounts: Accounts) -> None:
        key, _ = await accounts.keys.create({}, "me")
        revoked = await accounts.keys.revoke(key.id, "token:ops", 1)
        assert (revoked.state, revoked.revoked_by, revoked.version) == ("revoked", "token:ops", 2)
        assert revoked.revoked_at is not None
        assert await accounts.keys.revoke(key.id, "you") == revoked
        with pytest.raises(Stale):
            await accounts.keys.revoke(key.id, "you", 1)
        for refused in (accounts.keys.replace(key.id, {}, "me"), accounts.keys.rotate(key.id, "me")):
            with pytest.raises(Conflict, match="was revoked by 'token:ops', permanently"):
                await refused
        assert [row["verb"] for row in await changes(accounts.database, Kind.API_KEY)] == ["revoked", "created"]

    with_accounts(database_url, test)


def test_a_rotated_key_makes_way_for_another(database_url: str) -> None:
    """At once, or when the overlap is over, and never later than it would have expired."""

    async def test(accounts: Accounts) -> None:
        key, secret = await accounts.keys.create(
            {"name": "ci", "tenant": "t", "limits": {"slots": "9 concurrent"}}, "me"
        )
        new, new_secret = await accounts.keys.rotate(key.id, "token:ops", 1)
        assert new_secret != secret
        assert (new.name, new.tenant, new.limits, new.created_by) == ("ci", "t", key.limits, "token:ops")
        old = await accounts.keys.get(key.id)
        assert (old.state, old.rotated_to) == ("revoked", new.id)
        newer, _ = await accounts.keys.rotate(new.id, "me", overlap_seconds=3600)
        overlapping = await accounts.keys.get(new.id)
        assert (overlapping.state, overlapping.rotated_to) == ("active", newer.id)
        assert overlapping.expires_at is not None
        with pytest.raises(Conflict, match=f"rotate {newer.id}"):
            await accounts.keys.rotate(new.id, "me")
        await accounts.sql("UPDATE api_keys SET expires_at = now() + interval '1 minute' WHERE id = $1", newer.id)
        soon = (await accounts.keys.get(newer.id)).expires_at
        await accounts.keys.rotate(newer.id, "me", overlap_seconds=3600)
        assert (await accounts.keys.get(newer.id)).expires_at == soon
        ended, _ = await accounts.keys.create({}, "me")
        await accounts.sql("UPDATE api_keys SET expires_at = now() WHERE id = $1", ended.id)
        with pytest.raises(Conflict, match="has expired"):
            await accounts.keys.rotate(ended.id, "me")

    with_accounts(database_url, test)


def test_an_overlap_is_a_number_of_seconds(database_url: str) -> None:
    """Nothing happens to the key if it is not."""

    async def test(accounts: Accounts) -> None:
        key, _ = await accounts.keys.create({}, "me")
        before = await accounts.everything()
        overlaps: list[Any] = [-1, 2_592_001, 10**30, True, 1.5, "60", None]
        for overlap in overlaps:
            with pytest.raises(InvalidFields, match="overlap_seconds"):
                await accounts.keys.rotate(key.id, "me", overlap_seconds=overlap)
        assert await accounts.everything() == before

    with_accounts(database_url, test, rules=False)


def test_of_many_who_rotate_a_key_at_the_same_time_one_does(database_url: str) -> None:
    """There is one new key, not many."""

    async def test(accounts: Accounts) -> None:
        key, _ = await accounts.keys.create({}, "me")
        ended = await asyncio.gather(*(accounts.keys.rotate(key.id, "me", 1) for _ in range(5)), return_exceptions=True)
        assert sum(isinstance(end, Stale) for end in ended) == 4
        assert len(await accounts.keys.list()) == 2

    with_accounts(database_url, test)


def test_keys_are_listed_by_owner_and_state_in_pages(database_url: str) -> None:
    """A page begins behind the last id of the one before."""

    async def test(accounts: Accounts) -> None:
        await accounts.users.create({"id": "u1"}, "me")
        made = [(await accounts.keys.create({"user": "u1" if n % 2 else None}, "me"))[0] for n in range(10)]
        await accounts.keys.revoke(made[1].id, "me")
        await accounts.sql("UPDATE api_keys SET expires_at = now() WHERE id = $1", made[3].id)
        seen: list[str] = []
        while page := await accounts.keys.list(after=seen[-1] if seen else None, most=3):
            seen += [key.id for key in page]
        assert seen == sorted(key.id for key in made)
        mine = await accounts.keys.list(user="u1", state="active")
        assert {key.id for key in mine} == {made[n].id for n in (5, 7, 9)}
        assert [key.id for key in await accounts.keys.list(state="revoked")] == [made[1].id]
        assert [key.id for key in await accounts.keys.list(state="expired")] == [made[3].id]
        assert await accounts.keys.list(user="no\x00body") == []
        for wrong in ({"state": "lost"}, {"after": "x"}):
            with pytest.raises(InvalidFields):
                await accounts.keys.list(**wrong)  # type: ignore[arg-type]  # one of several texts

    with_accounts(database_url, test)


def test_a_key_that_is_not_there_is_not_found(database_url: str) -> None:
    """Whatever is asked of it."""

    async def test(accounts: Accounts) -> None:
        for key in ("", "x", "\x00", "\ud800", "00000000-0000-0000-0000-000000000000", "hg_" + "a" * 38):
            for missing in (
                accounts.keys.get(key),
                accounts.keys.replace(key, {}, "me"),
                accounts.keys.revoke(key, "me"),
                accounts.keys.rotate(key, "me"),
            ):
                with pytest.raises(NotFound, match="there is no API key"):
                    await missing

    with_accounts(database_url, test, rules=False)


def test_a_secret_that_is_taken_for_an_id_is_not_repeated(database_url: str) -> None:
    """Not even to its sender: messages end in logs and in tickets."""

    async def test(accounts: Accounts) -> None:
        _, key = await accounts.keys.create({}, "me")
        _, token = await accounts.access.create({"name": "ci", "role": "viewer"}, "me")
        for secret in (key, token):
            for wrong in (
                accounts.keys.revoke(secret, "me"),
                accounts.access.revoke(secret, "me"),
                accounts.blocks.delete(secret, "me"),
                accounts.blocks.create({"api_key": secret}, "me"),
            ):
                with pytest.raises((NotFound, InvalidFields), match="name it by its id") as caught:
                    await wrong
                assert secret[:8] in str(caught.value)
                assert secret[:16] not in str(caught.value)

    with_accounts(database_url, test, rules=False)


def test_many_keys_are_loaded_at_once(database_url: str) -> None:
    """By their secrets or by what is kept of them; a revoked one stays revoked."""

    async def test(accounts: Accounts) -> None:
        await accounts.users.create({"id": "u1"}, "me")
        chance = random.Random(1)
        known, known_secret = await accounts.keys.create({"name": "old"}, "me")
        await accounts.keys.revoke(known.id, "me")
        secrets = [new_api_key(chance.randbytes(32)) for _ in range(3)]
        rows = [
            {"secret": secrets[0], "user": "u1", "tier": "free", "limits": {"export": "1/hour"}},
            {"hash": hash_of(secrets[1]).hex(), "prefix": prefix_of(secrets[1]), "expires_at": AHEAD},
            {"secret": secrets[2], "name": "first"},
            {"secret": secrets[2], "name": "second"},
            {"secret": known_secret, "name": "new", "user": "u1"},
        ]
        heard: list[int] = []
        assert await accounts.keys.load(rows, "token:import", heard.append) == 5
        assert heard == [5]
        by_prefix = {key.prefix: key for key in await accounts.keys.list()}
        assert len(by_prefix) == 4
        assert by_prefix[prefix_of(secrets[0])].limits == {"export": ("1/hour",)}
        assert by_prefix[prefix_of(secrets[1])].created_by == "token:import"
        assert by_prefix[prefix_of(secrets[2])].name == "second"
        changed = await accounts.keys.get(known.id)
        assert (changed.name, changed.user, changed.state) == ("new", "u1", "revoked")
        change = (await changes(accounts.database))[0]
        assert (change["kind"], change["name"], change["after"]) == ("api_key", "*", {"keys": 5})
        held = await _all_text(accounts)
        assert not any(secret[12:] in held for secret in (*secrets, known_secret))

    with_accounts(database_url, test)


def test_a_load_of_keys_with_something_wrong_leaves_nothing_and_repeats_no_secret(database_url: str) -> None:
    """Also where what is wrong is the secret itself."""

    async def test(accounts: Accounts) -> None:
        secret = new_api_key(bytes(32))
        mistyped = secret[:-1] + ("a" if secret[-1] != "a" else "b")
        good = {"secret": secret}
        before = await accounts.everything()
        for row in (
            {},
            "x",
            {"secret": mistyped},
            {"secret": [secret]},
            {"secret": secret, "hash": "0" * 64, "prefix": "hg_x"},
            {"hash": secret, "prefix": "hg_x"},
            {"hash": "0" * 64},
            {"hash": "0" * 64, "prefix": "é\x00"},
            {"hash": "0" * 64, "prefix": secret},
            {**good, "user": "unknown"},
            {**good, "tier": "none"},
            {**good, "expires_at": "2020-01-01T00:00:00Z"},
            {**good, "limits": {"staff": "1/hour"}},
        ):
            with pytest.raises(InvalidFields) as caught:
                await accounts.keys.load([good, row], "me")
            assert secret not in str(caught.value)
            assert mistyped not in str(caught.value)
            assert all(problem.path[0] == 1 for problem in caught.value.problems)
        assert await accounts.everything() == before

    with_accounts(database_url, test)
