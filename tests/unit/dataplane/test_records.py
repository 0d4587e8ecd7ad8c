"""Records of users and keys: where they are found, for how long they hold, and what is looked up together."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.fake_records import Set
from tests.support.waiting import wait_until_async

from headgate.core.own_limits import NO_LIMITS
from headgate.core.records import UserRecord
from headgate.dataplane.lookups import MAX_NAMES

if TYPE_CHECKING:
    from headgate.dataplane.record_cache import CachedRecord

PRO = {"tier": "pro", "overrides": {}}
DIGEST = bytes(32)


def tier(entry: CachedRecord) -> str | None:
    """The tier on record."""
    return None if entry.record is None else entry.record.tier


def test_a_record_is_read_once_and_held_for_a_minute() -> None:
    """First from the database, then from this process, and after a minute from what processes share."""

    async def run() -> None:
        set_up = Set()
        set_up.source.users_on_record["u1"] = {"tier": "pro", "overrides": {"search": ["5/minute"], "junk": ["what?"]}}
        for _ in range(3):
            user = (await set_up.records.user("u1")).record
            assert user is not None
            assert (user.tier, list(user.limits.by_rule)) == ("pro", ["search"])
        await set_up.shared()
        assert set_up.source.asked == ["u1"]
        assert set_up.cache.seconds == {"hg:user:u1": 86_400.0}
        set_up.advance(60)
        assert tier(await set_up.records.user("u1")) == "pro"
        assert set_up.source.asked == ["u1"]
        assert len(set_up.cache.gets) == 2
        await set_up.records.close()

    asyncio.run(run())


def test_a_shared_record_is_fresh_for_ten_minutes() -> None:
    """Past them the database is asked, and what it says takes its place."""

    async def run() -> None:
        set_up = Set()
        set_up.source.users_on_record["u1"] = PRO
        await set_up.records.user("u1")
        await set_up.shared()
        set_up.source.users_on_record["u1"] = {"tier": "basic"}
        set_up.advance(599)
        assert tier(await set_up.records.user("u1")) == "pro"
        set_up.advance(61)
        assert tier(await set_up.records.user("u1")) == "basic"
        await set_up.shared()
        assert json.loads(set_up.cache.values["hg:user:u1"])[1] == {"tier": "basic"}
        await set_up.records.close()

    asyncio.run(run())


def test_unknown_is_remembered_too() -> None:
    """That a name is not on record is held as well; of users also among processes, not of keys, which are invented."""

    async def run() -> None:
        set_up = Set()
        for _ in range(3):
            for entry in (await set_up.records.user("u1"), await set_up.records.key(DIGEST)):
                assert entry.record is None
                assert not entry.is_assumed
        await set_up.shared()
        assert set_up.source.asked == ["u1", DIGEST.hex()]
        assert [*set_up.cache.values] == ["hg:user:u1"]
        assert set_up.cache.seconds == {"hg:user:u1": 60.0}
        await set_up.records.close()

    asyncio.run(run())


def test_all_misses_of_a_turn_are_one_question_to_the_cache_and_one_query() -> None:
    """However many callers come at once, users and keys; each name once, however many want it."""

    async def run() -> None:
        set_up = Set()
        names = [f"u{number}" for number in range(100)]
        set_up.source.users_on_record = dict.fromkeys(names, PRO)
        set_up.source.add_key(DIGEST, tier="gold")
        found = await asyncio.gather(*[set_up.records.user(name) for name in names * 3], set_up.records.key(DIGEST))
        assert [tier(entry) for entry in found] == ["pro"] * 300 + ["gold"]
        assert set_up.cache.gets == [[*[f"hg:user:{name}" for name in names], f"hg:key:{DIGEST.hex()}"]]
        assert set_up.source.queries == [names, [DIGEST.hex()]]
        await set_up.shared()
        assert len(set_up.cache.values) == 101
        await set_up.records.close()

    asyncio.run(run())


def test_a_burst_goes_to_the_cache_in_pieces() -> None:
    """One piece at a time; what is missed meanwhile goes with the next one."""

    async def run() -> None:
        set_up = Set()
        set_up.cache.slow = asyncio.Event()
        first = [asyncio.create_task(set_up.records.user(f"a{number}")) for number in range(MAX_NAMES + 1)]
        await wait_until_async(lambda: len(set_up.cache.gets) == 1)
        second = [asyncio.create_task(set_up.records.user(f"b{number}")) for number in range(10)]
        await asyncio.sleep(0)
        set_up.cache.slow.set()
        await asyncio.gather(*first, *second)
        assert [len(get) for get in set_up.cache.gets] == [MAX_NAMES, 11]
        await set_up.records.close()

    asyncio.run(run())


def test_a_cache_that_cannot_be_reached_is_passed_over() -> None:
    """The database is asked, and nothing is put into the cache that was not missing there."""

    async def run() -> None:
        set_up = Set()
        set_up.cache.away = True
        set_up.source.users_on_record["u1"] = PRO
        assert tier(await set_up.records.user("u1")) == "pro"
        await set_up.shared()
        assert set_up.cache.values == {}
        await set_up.records.close()

    asyncio.run(run())


def test_what_took_long_to_read_is_not_shared() -> None:
    """A change may have been marked and the mark have ended meanwhile, as while this process was stopped."""

    async def run() -> None:
        set_up = Set()
        set_up.source.users_on_record["u1"] = PRO
        set_up.source.frozen = asyncio.Event()
        asking = asyncio.create_task(set_up.records.user("u1"))
        await wait_until_async(lambda: bool(set_up.source.asked))
        set_up.advance(5)
        set_up.source.frozen.set()
        assert tier(await asking) == "pro"
        await set_up.shared()
        assert set_up.cache.values == {}
        await set_up.records.close()

    asyncio.run(run())


def test_a_caller_may_leave() -> None:
    """If the first of several who wait is cancelled, the others get their answer."""

    async def run() -> None:
        set_up = Set(cached=False)
        set_up.source.users_on_record["u1"] = PRO
        set_up.source.frozen = asyncio.Event()
        first, second = (asyncio.create_task(set_up.records.user("u1")) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        set_up.source.frozen.set()
        assert tier(await second) == "pro"
        await set_up.records.close()

    asyncio.run(run())


@pytest.mark.parametrize("name", ["user:u1", "*"])
def test_what_is_forgotten_while_it_is_read_is_not_kept(name: str) -> None:
    """A change that is announced during a read makes that read void: the next request reads again."""

    async def run() -> None:
        set_up = Set()
        set_up.source.users_on_record["u1"] = PRO
        set_up.source.frozen = frozen = asyncio.Event()
        old = asyncio.create_task(set_up.records.user("u1"))
        await wait_until_async(lambda: bool(set_up.source.asked))
        set_up.records.forget(["rules", name])
        frozen.set()
        assert tier(await old) == "pro"
        set_up.source.users_on_record["u1"] = {"tier": "basic"}
        new = await set_up.records.user("u1")
        assert tier(new) == "basic"
        assert await set_up.records.user("u1") is new
        await set_up.shared()
        assert json.loads(set_up.cache.values["hg:user:u1"])[1] == {"tier": "basic"}
        await set_up.records.close()

    asyncio.run(run())


@pytest.mark.parametrize("names", [["user:u1", f"key:{DIGEST.hex()}"], ["*"]])
def test_what_is_forgotten_is_read_again(names: list[str]) -> None:
    """A changed user or key is active with the next request."""

    async def run() -> None:
        set_up = Set(cached=False)
        assert tier(await set_up.records.user("u1")) is None
        set_up.source.add_key(DIGEST, tier="gold")
        assert tier(await set_up.records.key(DIGEST)) == "gold"
        set_up.source.users_on_record["u1"] = PRO
        set_up.source.add_key(DIGEST, tier="silver")
        set_up.records.forget(["user:other"])
        assert tier(await set_up.records.user("u1")) is None
        set_up.records.forget(names)
        assert tier(await set_up.records.user("u1")) == "pro"
        assert tier(await set_up.records.key(DIGEST)) == "silver"
        set_up.records.forget(names)
        del set_up.source.users_on_record["u1"]
        assert tier(await set_up.records.user("u1")) is None
        await set_up.records.close()

    asyncio.run(run())


def test_a_record_can_end_and_begin() -> None:
    """A name goes from known to unknown and back, and is held as the one or the other."""

    async def run() -> None:
        set_up = Set(cached=False)
        for data in (PRO, None, PRO):
            set_up.source.users_on_record = {} if data is None else {"u1": data}
            set_up.advance(60)
            assert (tier(await set_up.records.user("u1")) is None) == (data is None)
        assert len(set_up.records) == 1
        await set_up.records.close()

    asyncio.run(run())


def test_closing_answers_those_who_wait() -> None:
    """They are told that nothing could be read."""

    async def run() -> None:
        set_up = Set()
        set_up.cache.slow = asyncio.Event()
        asking = asyncio.create_task(set_up.records.user("u1"))
        await wait_until_async(lambda: bool(set_up.cache.gets))
        await set_up.records.close()
        assert (await asking).is_assumed

    asyncio.run(run())


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xff",
        b"[" * 100_000,
        b"7",
        b"[]",
        b"[1]",
        b'["x",null]',
        b'[9e9,{"tier": 7}]',
        b'[9e9,{"tier": "x", "overrides": [1]}]',
        b'{"tier":"old form"}',
    ],
)
def test_nonsense_in_the_cache_is_not_there(value: bytes) -> None:
    """Whatever was written there, the database is asked."""

    async def run() -> None:
        set_up = Set()
        set_up.cache.values["hg:user:u1"] = value
        set_up.source.users_on_record["u1"] = PRO
        assert (await set_up.records.user("u1")).record == UserRecord("pro", NO_LIMITS)
        await set_up.records.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    "members",
    [
        {"hash": bytes(31).hex()},
        {"hash": "zz"},
        {"revoked": None},
        {"expires": "x"},
        {"expires": float("inf")},
        {"id": 7},
    ],
)
def test_a_key_that_is_not_the_one_asked_for_is_not_there(members: dict[str, Any]) -> None:
    """A record whose hash is another's, or which makes no sense, belongs to no caller."""

    async def run() -> None:
        set_up = Set(cached=False)
        set_up.source.add_key(DIGEST, **members)
        assert (await set_up.records.key(DIGEST)).record is None
        await set_up.records.close()

    asyncio.run(run())


@pytest.mark.parametrize("name", ["u" * 256, "u\0", "\ud800"])
def test_names_that_no_user_can_have_are_not_asked_for(name: str) -> None:
    """A user whose id could not be on record is unknown without a query."""

    async def run() -> None:
        set_up = Set()
        assert (await set_up.records.user(name)).record is None
        assert set_up.source.asked == []

    asyncio.run(run())
