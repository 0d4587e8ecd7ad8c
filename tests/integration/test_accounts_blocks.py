"""Blocks: one of each subject, ending by themselves, and as processes take them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.accounts import AHEAD, with_accounts

from headgate.controlplane.changes import Kind, changes
from headgate.controlplane.documents import read, stored
from headgate.errors import Conflict, InvalidFields, NotFound, Stale
from headgate.ports import BLOCKS

if TYPE_CHECKING:
    from tests.integration.accounts import Accounts


async def _document(accounts: Accounts) -> tuple[int, Any]:
    """Blocks as processes take them."""
    document = await stored(accounts.database, BLOCKS)
    assert document is not None
    return document.number, read(document)


def test_users_keys_and_networks_are_blocked(database_url: str) -> None:
    """A user need not be known; an address is a network of one, however it is written."""

    async def test(accounts: Accounts) -> None:
        key, _ = await accounts.keys.create({}, "me")
        user = await accounts.blocks.create({"user": "unknown", "reason": "spam", "until": AHEAD}, "token:ops")
        assert user == await accounts.blocks.get(user.id)
        assert (user.user, user.reason, user.created_by, user.version) == ("unknown", "spam", "token:ops", 1)
        assert (await accounts.blocks.create({"api_key": key.id.upper()}, "me")).api_key == key.id
        for written, kept in {
            "192.0.2.7": "192.0.2.7/32",
            "::ffff:192.0.2.8": "192.0.2.8/32",
            "::FFFF:10.0.0.0/104": "10.0.0.0/8",
            "2001:DB8::0:1": "2001:db8::1/128",
            " 2001:db8::/32 ": "2001:db8::/32",
        }.items():
            assert (await accounts.blocks.create({"network": written}, "me")).network == kept
        change = (await changes(accounts.database, Kind.BLOCK, user.id))[0]
        assert change["after"] == user.as_dict()

    with_accounts(database_url, test, rules=False)


def test_there_is_one_block_of_a_subject(database_url: str) -> None:
    """A second one is refused with the id of the first, also when both come at once."""

    async def test(accounts: Accounts) -> None:
        key, _ = await accounts.keys.create({}, "me")
        for subject in ({"user": "u1"}, {"api_key": key.id}, {"network": "192.0.2.7"}):
            ended = await asyncio.gather(
                *(accounts.blocks.create(subject, "me") for _ in range(3)), return_exceptions=True
            )
            (made,) = (end for end in ended if not isinstance(end, BaseException))
            refused = [str(end) for end in ended if isinstance(end, Conflict)]
            assert refused == [f"it is blocked already, by the block {made.id}; change that one"] * 2
        assert (await accounts.blocks.create({"network": "192.0.2.0/24"}, "me")).network == "192.0.2.0/24"

    with_accounts(database_url, test, rules=False)


def test_a_block_is_changed_at_the_version_that_was_read(database_url: str) -> None:
    """Its reason and its end; what it blocks stays."""

    async def test(accounts: Accounts) -> None:
        block = await accounts.blocks.create({"network": "10.0.0.0/8"}, "me")
        changed = await accounts.blocks.replace(block.id, {"reason": "abuse", "until": AHEAD}, "me", 1)
        assert (changed.reason, changed.version) == ("abuse", 2)
        with pytest.raises(Stale):
            await accounts.blocks.replace(block.id, {}, "me", 1)
        with pytest.raises(Stale):
            await accounts.blocks.delete(block.id, "me", 1)
        with pytest.raises(InvalidFields, match=r"network: it is '10.0.0.0/8' and cannot be changed"):
            await accounts.blocks.replace(block.id, {"network": "11.0.0.0/8"}, "me")
        with pytest.raises(InvalidFields, match=r"until: .* has passed"):
            await accounts.blocks.replace(block.id, {"until": "2020-01-01T00:00:00Z"}, "me")
        forever = await accounts.blocks.replace(block.id, {"network": "10.0.0.0/8"}, "me", 2)
        assert (forever.reason, forever.until) == (None, None)
        await accounts.blocks.delete(block.id, "me", 3)
        for missing in (accounts.blocks.get(block.id), accounts.blocks.get("\x00"), accounts.blocks.delete("x", "me")):
            with pytest.raises(NotFound, match="there is no block"):
                await missing

    with_accounts(database_url, test, rules=False)


def test_an_ended_block_is_as_good_as_gone(database_url: str) -> None:
    """It is not found, not listed, does not stand in the way of another, and is swept away."""

    async def test(accounts: Accounts) -> None:
        first = await accounts.blocks.create({"user": "u1", "until": AHEAD}, "me")
        second = await accounts.blocks.create({"user": "u2", "until": AHEAD}, "me")
        await accounts.sql("UPDATE blocks SET until = now()")
        assert await accounts.blocks.list() == []
        assert await accounts.blocks.list(subject="u1") == []
        with pytest.raises(NotFound):
            await accounts.blocks.get(first.id)
        assert await _document(accounts) == (2, [])
        again = await accounts.blocks.create({"user": "u1"}, "me")
        assert again.id != first.id
        assert await accounts.blocks.sweep() == 1
        assert await accounts.blocks.sweep() == 0
        assert second.id not in str(await accounts.sql("SELECT id FROM blocks"))

    with_accounts(database_url, test, rules=False)


def test_blocks_are_found_by_what_they_stop(database_url: str) -> None:
    """A user, a key, or an address in the middle of a network."""

    async def test(accounts: Accounts) -> None:
        key, _ = await accounts.keys.create({}, "me")
        subjects = ({"user": "u1"}, {"api_key": key.id}, {"network": "10.0.0.0/8"}, {"network": "2001:db8::/32"})
        made = [(await accounts.blocks.create(subject, "me")).id for subject in subjects]
        for subject, expected in zip(("u1", key.id, "10.1.2.3", "2001:db8:1::1"), made, strict=True):
            assert [block.id for block in await accounts.blocks.list(subject=subject)] == [expected]
        assert await accounts.blocks.list(subject="11.0.0.1") == []
        assert await accounts.blocks.list(subject="\x00") == []
        page = await accounts.blocks.list(most=2)
        rest = await accounts.blocks.list(after=page[-1].id)
        assert [block.id for block in (*page, *rest)] == sorted(made)
        with pytest.raises(InvalidFields, match="after"):
            await accounts.blocks.list(after="u1")

    with_accounts(database_url, test, rules=False)


def test_processes_are_given_a_numbered_list(database_url: str) -> None:
    """The number is that of the newest change of blocks; a malformed row written by hand does not break the list."""

    async def test(accounts: Accounts) -> None:
        assert await _document(accounts) == (0, [])
        first = await accounts.blocks.create({"user": "u1", "reason": "spam", "until": "2100-01-01T00:00:00.5Z"}, "me")
        second = await accounts.blocks.create({"network": "10.0.0.0/8"}, "me")
        await accounts.sql("INSERT INTO blocks (user_id, until, created_by) VALUES ('u2', 'infinity', 'me')")
        number, blocks = await _document(accounts)
        assert number == (await changes(accounts.database, Kind.BLOCK))[0]["id"]
        by_id = {block.pop("id"): block for block in blocks}
        assert by_id.pop(first.id) == {"user": "u1", "reason": "spam", "until": 4102444800.5}
        assert by_id.pop(second.id) == {"network": "10.0.0.0/8", "until": None}
        assert [*by_id.values()] == [{"user": "u2", "until": None}]

    with_accounts(database_url, test, rules=False)
