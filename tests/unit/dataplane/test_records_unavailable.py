"""Records while the database is unavailable: what is assumed, that it is marked, and that it ends."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest
from tests.support.fake_records import Set
from tests.support.waiting import wait_until_async

if TYPE_CHECKING:
    from headgate.dataplane.record_cache import CachedRecord

PRO = {"tier": "pro", "overrides": {}}
DIGEST = bytes(32)


def gist(entry: CachedRecord) -> tuple[str | None, bool, bool]:
    """The tier, whether it is assumed, and whether nothing at all was known."""
    return None if entry.record is None else entry.record.tier, entry.is_assumed, entry.is_missing


def test_the_last_record_known_to_this_process_holds_and_is_marked() -> None:
    """However old it is. That a user was not on record holds in the same way. Nothing is known of others."""

    async def run() -> None:
        set_up = Set(cached=False)
        set_up.source.users_on_record["u1"] = PRO
        assert gist(await set_up.records.user("u1")) == ("pro", False, False)
        assert gist(await set_up.records.user("u2")) == (None, False, False)
        set_up.source.away = True
        set_up.advance(3_600)
        for _ in range(20):
            assert gist(await set_up.records.user("u1")) == ("pro", True, False)
            assert gist(await set_up.records.user("u2")) == (None, True, False)
            assert gist(await set_up.records.user("u3")) == (None, True, True)
            assert gist(await set_up.records.key(DIGEST)) == (None, True, True)
        assert not set_up.records.is_available
        await set_up.records.close()

    asyncio.run(run())


def test_the_last_record_that_processes_share_holds_and_is_marked() -> None:
    """A process that has just started has it from there, past its time; one that is fresh is not assumed at all."""

    async def run() -> None:
        set_up = Set()
        now = set_up.clock() // 1_000_000
        set_up.cache.values["hg:user:u1"] = json.dumps([now - 1, PRO]).encode()
        set_up.cache.values["hg:user:u2"] = json.dumps([now + 500, PRO]).encode()
        set_up.source.away = True
        for _ in range(3):
            assert gist(await set_up.records.user("u1")) == ("pro", True, False)
            assert gist(await set_up.records.user("u2")) == ("pro", False, False)
        assert set_up.cache.gets == [["hg:user:u1"], ["hg:user:u2"]], "an assumption is kept for a second"
        set_up.advance(1)
        assert gist(await set_up.records.user("u1")) == ("pro", True, False)
        assert len(set_up.cache.gets) == 3
        await set_up.records.close()

    asyncio.run(run())


def test_without_last_known_nothing_past_its_time_is_used_or_kept() -> None:
    """Not what this process knew, nor what is shared, which then lives for ten minutes and no longer."""

    async def run() -> None:
        set_up = Set(keeps_last_known=False)
        set_up.source.users_on_record["u1"] = PRO
        assert gist(await set_up.records.user("u1")) == ("pro", False, False)
        await set_up.shared()
        assert set_up.cache.seconds == {"hg:user:u1": 600.0}
        set_up.source.away = True
        set_up.advance(3_600)
        assert gist(await set_up.records.user("u1")) == (None, True, True)
        await set_up.records.close()

    asyncio.run(run())


@pytest.mark.parametrize("cached", [True, False])
def test_a_change_wins_over_what_was_known(*, cached: bool) -> None:
    """A record that is dropped while the database is unavailable is not assumed again, from memory or from Redis."""

    async def run() -> None:
        set_up = Set(cached=cached)
        set_up.source.users_on_record["u1"] = PRO
        await set_up.records.user("u1")
        await set_up.shared()
        set_up.source.away = True
        set_up.advance(3_600)
        assert gist(await set_up.records.user("u1")) == ("pro", True, False)
        await set_up.cache.drop(["hg:user:u1"])
        set_up.records.forget(["user:u1"])
        assert gist(await set_up.records.user("u1")) == (None, True, True)
        await set_up.records.close()

    asyncio.run(run())


def test_a_change_wins_over_what_is_being_looked_up() -> None:
    """What was read from Redis before the change is not assumed after it."""

    async def run() -> None:
        set_up = Set()
        set_up.cache.values["hg:user:u1"] = json.dumps([0, PRO]).encode()
        set_up.source.frozen = asyncio.Event()
        asking = asyncio.create_task(set_up.records.user("u1"))
        await wait_until_async(lambda: bool(set_up.source.asked))
        set_up.records.forget(["user:u1"])
        assert gist(await asking) == (None, True, True)
        await set_up.records.close()

    asyncio.run(run())


def test_when_everything_is_forgotten_no_caller_loses_its_tier() -> None:
    """All records are due to be read again, and hold until they can be, marked; one forgotten by name does not."""

    async def run() -> None:
        set_up = Set(cached=False)
        set_up.source.users_on_record = {"u1": PRO, "u2": PRO}
        for user in ("u1", "u2"):
            await set_up.records.user(user)
        set_up.source.away = True
        set_up.records.forget(["*"])
        set_up.records.forget(["user:u2"])
        assert gist(await set_up.records.user("u1")) == ("pro", True, False)
        assert gist(await set_up.records.user("u2")) == (None, True, True)
        await set_up.records.close()

    asyncio.run(run())


def test_all_is_right_again_when_the_database_has_recovered() -> None:
    """A crowd that met a frozen database is answered, each of it marked; then nothing is assumed any more."""

    async def run() -> None:
        set_up = Set()
        names = [f"u{number}" for number in range(1_000)]
        set_up.source.users_on_record = dict.fromkeys(names, PRO)
        set_up.source.frozen = frozen = asyncio.Event()
        found = await asyncio.gather(*map(set_up.records.user, names))
        assert {gist(entry) for entry in found} == {(None, True, True)}
        found = await asyncio.gather(*map(set_up.records.user, names))
        assert {gist(entry) for entry in found} == {(None, True, True)}
        set_up.source.frozen = None
        frozen.set()
        await wait_until_async(lambda: set_up.records.is_available)
        found = await asyncio.gather(*map(set_up.records.user, names))
        assert {gist(entry) for entry in found} == {("pro", False, False)}
        await set_up.records.close()

    asyncio.run(run())
