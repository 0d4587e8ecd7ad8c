"""Admin tokens: roles, expiry, revocation within a second, and no secret anywhere."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.integration.accounts import AHEAD, TOKEN, with_accounts

from headgate.adapters.postgres import Database
from headgate.controlplane import access
from headgate.controlplane.access import Access, Caller, Role
from headgate.controlplane.changes import Kind, changes
from headgate.errors import Conflict, DatabaseError, NotFound

if TYPE_CHECKING:
    from tests.integration.accounts import Accounts


def test_each_role_may_do_what_those_below_it_may() -> None:
    """A viewer reads, an operator operates, an admin does everything."""
    assert [[mine.covers(needed) for needed in Role] for mine in Role] == [
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]


def test_a_token_lets_its_holder_in(database_url: str) -> None:
    """Under the name that change records will carry, with its role, and its use is noted."""

    async def test(accounts: Accounts) -> None:
        token, secret = await accounts.access.create({"name": "ci", "role": "operator", "expires_at": AHEAD}, "me")
        assert (token.name, token.role, token.state, token.last_used) == ("ci", Role.OPERATOR, "active", None)
        assert await accounts.access.authenticate(secret) == Caller("token:ci", Role.OPERATOR, token.id)
        (kept,) = await accounts.access.list()
        assert kept.last_used is not None
        again = Access(accounts.database)
        assert await again.authenticate(secret) is not None
        assert (await accounts.access.list())[0].last_used == kept.last_used
        held = str(await accounts.sql("SELECT t::text, c::text FROM tokens t, changes c"))
        assert secret[12:] not in held + repr(token)

    with_accounts(database_url, test, rules=False)


def test_the_token_of_the_settings_needs_no_database() -> None:
    """With it the first token is made, and an operator gets in while the database is unavailable."""

    async def run() -> None:
        with_token = Access(Database("postgresql:///none?host=/nowhere"), TOKEN)
        assert await with_token.authenticate(TOKEN) == Caller("token:bootstrap", Role.ADMIN, None)
        assert TOKEN not in repr(vars(with_token))
        assert await Access(Database("postgresql:///none?host=/nowhere"), "").authenticate("") is None
        for wrong in ("", "x", TOKEN + "x", TOKEN.upper(), "\ud800", "\x00", "hgt_" + "a" * 38):
            assert await with_token.authenticate(wrong) is None

    asyncio.run(run())


def test_unknown_expired_and_revoked_tokens_are_refused(database_url: str) -> None:
    """All are answered alike."""

    async def test(accounts: Accounts) -> None:
        made = [await accounts.access.create({"name": f"t{n}", "role": "admin"}, "me") for n in range(3)]
        await accounts.access.revoke(made[0][0].id, "token:ops")
        await accounts.sql("UPDATE tokens SET expires_at = now() WHERE id = $1", made[1][0].id)
        await accounts.sql("DELETE FROM tokens WHERE id = $1", made[2][0].id)
        for _, secret in made:
            assert await accounts.access.authenticate(secret) is None
        states = {token.name: (token.state, token.revoked_by) for token in await accounts.access.list()}
        assert states == {"t0": ("revoked", "token:ops"), "t1": ("expired", None)}
        first = await accounts.access.revoke(made[0][0].id, "me")
        assert first.revoked_by == "token:ops"
        for missing in (made[2][0].id, "x", "\x00"):
            with pytest.raises(NotFound, match="there is no token"):
                await accounts.access.revoke(missing, "me")

    with_accounts(database_url, test, rules=False)


def test_a_revoked_token_is_forgotten_within_a_second(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who was let in is remembered for a second, here a shorter one; where a token is revoked it ends at once."""
    assert access._REMEMBERED_SECONDS <= 1
    monkeypatch.setattr(access, "_REMEMBERED_SECONDS", 0.1)

    async def test(accounts: Accounts) -> None:
        here, elsewhere = accounts.access, Access(accounts.database)
        token, secret = await here.create({"name": "ci", "role": "viewer"}, "me")
        assert await here.authenticate(secret) is not None
        assert await elsewhere.authenticate(secret) is not None
        await here.revoke(token.id, "me")
        assert await here.authenticate(secret) is None
        await asyncio.sleep(0.15)
        assert await elsewhere.authenticate(secret) is None

    with_accounts(database_url, test, rules=False)


def test_who_was_let_in_is_remembered_in_bounded_memory(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many tokens do not add up, and while one is remembered the database is not asked."""
    monkeypatch.setattr(access, "_MAX_REMEMBERED", 2)

    async def test(accounts: Accounts) -> None:
        made = [(await accounts.access.create({"name": f"t{n}", "role": "viewer"}, "me"))[1] for n in range(5)]
        for secret in made:
            assert await accounts.access.authenticate(secret) is not None
            assert len(accounts.access._remembered) <= 2
        accounts.access._database = Database("postgresql:///none?host=/nowhere")
        assert await accounts.access.authenticate(made[-1]) is not None
        with pytest.raises(DatabaseError):
            await accounts.access.authenticate(made[0])

    with_accounts(database_url, test, rules=False)


def test_a_name_belongs_to_one_token_at_a_time(database_url: str) -> None:
    """So that a change record says who it was; a name is free again when its token is revoked."""

    async def test(accounts: Accounts) -> None:
        token, _ = await accounts.access.create({"name": "ci", "role": "viewer"}, "me")
        with pytest.raises(Conflict, match="there is a token 'CI' already"):
            await accounts.access.create({"name": "CI", "role": "viewer"}, "me")
        await accounts.access.revoke(token.id, "me")
        await accounts.access.create({"name": "CI", "role": "viewer"}, "me")
        assert [row["verb"] for row in await changes(accounts.database, Kind.TOKEN)] == [
            "created",
            "revoked",
            "created",
        ]

    with_accounts(database_url, test, rules=False)
