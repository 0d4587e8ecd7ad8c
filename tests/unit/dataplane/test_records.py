"""Records of users and keys: where they are found, for how long they hold, and what an outage does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.dataplane.fake_records import Set, until

from headgate.core.breaker import State
from headgate.core.known import KnownUser
from headgate.core.own_limits import NO_LIMITS

PRO = {"tier": "pro", "overrides": {}}
DIGEST = bytes(32)


def test_a_record_is_read_once_and_held_for_a_minute() -> None:
    """First from the database, then from this process, and after a minute from what processes share."""

    async def run() -> None:
        set_up = Set()
        set_up.source.users["u1"] = {"tier": "pro", "overrides": {"search": ["5/minute"], "junk": ["what?"]}}
        for _ in range(3):
            user = await set_up.records.user("u1")
            assert user is not None
            assert (user.tier, list(user.limits.by_rule)) == ("pro", ["search"])
        assert set_up.source.asked == ["u1"]
        assert set_up.cache.seconds == {"hg:user:u1": 600.0}
        set_up.clock.advance(seconds=60)
        user = await set_up.records.user("u1")
        assert user is not None
        assert user.tier == "pro"
        assert set_up.source.asked == ["u1"]
        await set_up.records.close()

    asyncio.run(run())


def test_unknown_is_remembered_too() -> None:
    """That nobody is on record is held as well; of users also among processes, but not of keys, which are invented."""

    async def run() -> None:
        set_up = Set()
        for _ in range(3):
            assert await set_up.records.user("u1") is None
            assert await set_up.records.key(DIGEST) is None
        assert set_up.source.asked == ["u1", DIGEST.hex()]
        assert set_up.cache.values == {"hg:user:u1": b"null"}
        assert set_up.cache.seconds == {"hg:user:u1": 60.0}
        set_up.clock.advance(seconds=60)
        assert await set_up.records.user("u1") is None
        assert set_up.source.asked == ["u1", DIGEST.hex()]
        await set_up.records.close()

    asyncio.run(run())


def test_invented_names_push_out_only_inventions() -> None:
    """However many keys somebody invents, what is known stays, and memory is bounded."""

    async def run() -> None:
        set_up = Set(most=(10, 20), cached=False)
        set_up.source.users["u1"] = PRO
        set_up.source.add_key(DIGEST)
        assert await set_up.records.user("u1") is not None
        assert await set_up.records.key(DIGEST) is not None
        assert await set_up.records.user("stranger") is None
        for number in range(1, 1_000):
            assert await set_up.records.key(number.to_bytes(32)) is None
        asked = len(set_up.source.asked)
        assert await set_up.records.user("u1") is not None
        assert await set_up.records.key(DIGEST) is not None
        assert await set_up.records.user("stranger") is None
        assert len(set_up.source.asked) == asked
        assert sum(map(len, set_up.records._unknown.values())) == 21

    asyncio.run(run())


def test_of_many_known_the_ones_used_last_are_held() -> None:
    """Memory is bounded for known names too."""

    async def run() -> None:
        set_up = Set(most=(2, 2), cached=False)
        set_up.source.users = dict.fromkeys("abc", PRO)
        for name in "abaca":
            await set_up.records.user(name)
        assert set_up.source.asked == ["a", "b", "c"]
        assert len(set_up.records._known) == 2

    asyncio.run(run())


def test_one_question_for_many_who_ask_the_same() -> None:
    """While a record is being read, nobody else asks for it."""

    async def run() -> None:
        set_up = Set(cached=False)
        set_up.source.users["u1"] = PRO
        set_up.source.frozen = asyncio.Event()
        asking = asyncio.gather(*[set_up.records.user("u1") for _ in range(50)])
        await asyncio.sleep(0)
        set_up.source.frozen.set()
        assert await asking == [KnownUser("pro", NO_LIMITS)] * 50
        assert set_up.source.asked == ["u1"]

    asyncio.run(run())


def test_who_asks_may_go_away() -> None:
    """If the first of several leaves, the others get their answer."""

    async def run() -> None:
        set_up = Set(cached=False)
        set_up.source.users["u1"] = PRO
        set_up.source.frozen = asyncio.Event()
        first, second = (asyncio.create_task(set_up.records.user("u1")) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        set_up.source.frozen.set()
        assert await second is not None

    asyncio.run(run())


@pytest.mark.parametrize("name", ["user:u1", "*"])
def test_what_is_forgotten_while_it_is_read_is_not_kept(name: str) -> None:
    """A change that is announced during a read makes that read void: the next request reads again."""

    async def run() -> None:
        set_up = Set()
        set_up.source.users["u1"] = PRO
        set_up.source.frozen = frozen = asyncio.Event()
        old = asyncio.create_task(set_up.records.user("u1"))
        await until(lambda: bool(set_up.source.asked))
        set_up.records.forget(["rules", name])
        set_up.source.users["u1"] = {"tier": "basic"}
        set_up.source.frozen = None
        new = await set_up.records.user("u1")
        frozen.set()
        before = await old
        assert (before and before.tier, new and new.tier) == ("pro", "basic")
        await asyncio.sleep(0)
        again = await set_up.records.user("u1")
        assert again is new
        assert set_up.cache.values == {"hg:user:u1": b'{"tier":"basic"}'}

    asyncio.run(run())


@pytest.mark.parametrize("names", [["user:u1", f"key:{DIGEST.hex()}"], ["*"]])
def test_what_is_forgotten_is_read_again(names: list[str]) -> None:
    """A changed user or key is in force with the next request."""

    async def run() -> None:
        set_up = Set(cached=False)
        assert await set_up.records.user("u1") is None
        set_up.source.add_key(DIGEST)
        key = await set_up.records.key(DIGEST)
        assert key is not None
        assert not key.revoked
        set_up.source.users["u1"] = PRO
        set_up.source.add_key(DIGEST, revoked=True)
        set_up.records.forget(["user:other"])
        assert await set_up.records.user("u1") is None
        set_up.records.forget(names)
        assert await set_up.records.user("u1") is not None
        key = await set_up.records.key(DIGEST)
        assert key is not None
        assert key.revoked
        set_up.records.forget(names)
        del set_up.source.users["u1"]
        assert await set_up.records.user("u1") is None

    asyncio.run(run())


def test_when_everything_is_forgotten_nobody_becomes_a_stranger() -> None:
    """All records are due to be read again, and hold until they can be; one that is forgotten by name does not."""

    async def run() -> None:
        set_up = Set(cached=False)
        set_up.source.users = {"u1": PRO, "u2": PRO}
        for user in ("u1", "u2"):
            await set_up.records.user(user)
        set_up.source.away = True
        set_up.records.forget(["*"])
        set_up.records.forget(["user:u2"])
        assert await set_up.records.user("u1") is not None
        assert await set_up.records.user("u2") is None
        await set_up.records.close()

    asyncio.run(run())


def test_a_record_can_end_and_begin() -> None:
    """A name goes from known to unknown and back, and is held as the one or the other."""

    async def run() -> None:
        set_up = Set(cached=False)
        for data in (PRO, None, PRO):
            set_up.source.users = {} if data is None else {"u1": data}
            set_up.clock.advance(seconds=60)
            assert (await set_up.records.user("u1") is None) == (data is None)
        assert [len(set_up.records._known), len(set_up.records._unknown["user:"])] == [1, 0]

    asyncio.run(run())


def test_what_is_known_stays_known_while_the_database_is_away() -> None:
    """A record that is due to be read again holds on; who is not known is nobody. Nothing is raised."""

    async def run() -> None:
        set_up = Set(cached=False)
        set_up.source.users["u1"] = PRO
        assert await set_up.records.user("u1") is not None
        set_up.source.away = True
        set_up.clock.advance(seconds=3_600)
        for _ in range(20):
            assert await set_up.records.user("u1") is not None
            assert await set_up.records.user("u2") is None
        assert len(set_up.source.asked) < 10, "the breaker keeps questions away"
        await set_up.records.close()

    asyncio.run(run())


def test_a_frozen_database_is_waited_for_no_longer_than_the_deadline() -> None:
    """After a few that wait in vain, nobody waits at all; once it is back, records are read again."""

    async def run() -> None:
        set_up = Set(cached=False, seconds=0.01)
        set_up.source.users["u1"] = PRO
        set_up.source.frozen = asyncio.Event()
        for _ in range(10):
            assert await set_up.records.user("u1") is None
        assert len(set_up.source.asked) < 10
        set_up.source.frozen.set()
        set_up.source.frozen = None
        await until(lambda: set_up.asking.state is State.CLOSED)
        assert await set_up.records.user("u1") is not None
        await set_up.records.close()

    asyncio.run(run())


def test_a_cache_that_takes_too_long_is_not_waited_for() -> None:
    """The deadline holds for the whole way."""

    async def run() -> None:
        set_up = Set(seconds=0.005)
        set_up.cache.slow = asyncio.Event()
        assert await set_up.records.user("u1") is None
        await set_up.records.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xff",
        b"[" * 100_000,
        b"7",
        b"[]",
        b'{"tier": 7}',
        b'{"tier": "x", "overrides": [1]}',
    ],
)
def test_nonsense_in_the_cache_is_not_there(value: bytes) -> None:
    """Whatever somebody wrote there, the database is asked."""

    async def run() -> None:
        set_up = Set()
        set_up.cache.values["hg:user:u1"] = value
        set_up.source.users["u1"] = PRO
        assert await set_up.records.user("u1") == KnownUser("pro", NO_LIMITS)

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
    """A record whose hash is another's, or which makes no sense, is nobody's."""

    async def run() -> None:
        set_up = Set(cached=False)
        set_up.source.add_key(DIGEST, **members)
        assert await set_up.records.key(DIGEST) is None

    asyncio.run(run())


@pytest.mark.parametrize("name", ["u" * 256, "u\0", "\ud800"])
def test_names_that_nobody_can_have_are_not_asked_for(name: str) -> None:
    """A user whose id could not be on record is unknown without a question."""

    async def run() -> None:
        set_up = Set()
        assert await set_up.records.user(name) is None
        assert set_up.source.asked == []

    asyncio.run(run())
