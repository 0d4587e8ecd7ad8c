"""Announcing: whatever was committed reaches the feed, whichever servers were unavailable meanwhile."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

import pytest
from tests.integration.changing import change, limit, publish

from headgate.adapters.postgres import Database
from headgate.adapters.redis import RedisCache, feed_at, store_at
from headgate.controlplane.documents import read
from headgate.controlplane.notifier import Notifier
from headgate.controlplane.subscriber import Subscriber
from headgate.ports import BLOCKS, RULES, Announcement

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.postgres import Postgres
    from tests.support.valkey import Server

    from headgate.adapters.redis import RedisFeed

KEY = "11111111-2222-3333-4444-555555555555"
ADD_KEY = f"INSERT INTO api_keys (id, hash, prefix, created_by) VALUES ('{KEY}', '{'x' * 32}', 'hg_x', 'me')"  # noqa: S608 (our own)
SOON = 0.02


class Process(NamedTuple):
    """One admin process."""

    database: Database
    feed: RedisFeed
    cache: RedisCache
    notifier: Notifier

    async def heard(self) -> Announcement:
        """What it is told while it announces what is missing."""
        async with aclosing(self.feed.announcements()) as arriving:
            assert await anext(arriving) is None
            await self.notifier.announce()
            announcement = await asyncio.wait_for(anext(arriving), 5)
        assert announcement is not None
        return announcement

    async def rules(self) -> object:
        """What the feed says the rules are."""
        document = await self.feed.document(RULES)
        return None if document is None else read(document)


@asynccontextmanager
async def process(database_url: str, url: str) -> AsyncIterator[Process]:
    database, feed, store = Database(database_url), feed_at(url, 0.5), store_at(f"{url}?deadline_ms=5000&probe_ms=20")
    cache = RedisCache(store)
    try:
        yield Process(database, feed, cache, Notifier(database, feed, cache, every=SOON))
    finally:
        await feed.close()
        await store.close()
        await database.close()


@asynccontextmanager
async def repairing(notifier: Notifier) -> AsyncIterator[None]:
    task = asyncio.create_task(notifier.run())
    yield
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def test_every_kind_of_change_is_announced_by_its_name(database_url: str, valkey: Server) -> None:
    """Rules and blocks as documents, users and keys by name, many at once as everything, tokens not at all."""

    async def run() -> None:
        async with process(database_url, valkey.url) as one:
            assert (await one.heard()).names == ["*"]  # a feed that knows nothing
            looked = await one.cache.get_many(["hg:user:ü1"])
            await one.cache.put_many({"hg:user:ü1": b"old"}, 60, looked.era or "")
            assert (await one.cache.get_many(["hg:user:ü1"])).values == [b"old"]
            await publish(one.database, limit(5))
            await change(one.database, "tier", "free")
            await change(one.database, "token", "t")
            await change(one.database, "user", "ü1")
            await change(one.database, "user", "ü1")
            await change(one.database, "api_key", KEY, ADD_KEY)
            last = await change(
                one.database, "block", "b", "INSERT INTO blocks (user_id, created_by) VALUES ('u1', 'me')"
            )
            said = await one.heard()
            assert said.since == 0
            assert said.position.number == last
            assert sorted(said.names) == ["blocks", f"key:{'78' * 32}", "rules", "user:ü1"]
            assert (await one.cache.get_many(["hg:user:ü1"])).values == [None]
            assert await one.rules() == limit(5)
            blocks = await one.feed.document(BLOCKS)
            assert blocks is not None
            assert blocks.number == last
            assert [(block["user"], block["until"]) for block in read(blocks)] == [("u1", None)]
            for kind, name in (("user", "*"), ("api_key", "*"), ("api_key", "no such key")):
                await change(one.database, kind, name)
                assert (await one.heard()).names == ["*"]

    asyncio.run(run())


def test_what_is_known_is_not_announced_again(database_url: str, valkey: Server) -> None:
    """Where nothing has changed nothing is written, however often the notifier looks."""

    async def run() -> None:
        async with process(database_url, valkey.url) as one:
            await publish(one.database, limit(5))
            await one.notifier.announce()
            before = valkey.contents()
            async with aclosing(one.feed.announcements()) as arriving:
                assert await anext(arriving) is None
                for _ in range(3):
                    await one.notifier.announce()
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(anext(arriving), 0.05)
            assert valkey.contents() == before

    asyncio.run(run())


def test_a_thousand_changes_are_announced_as_everything(database_url: str, valkey: Server) -> None:
    """A list that is longer than it is worth is not sent."""

    async def run() -> None:
        async with process(database_url, valkey.url) as one:
            await one.notifier.announce()
            await change(
                one.database,
                "user",
                "last",
                "INSERT INTO changes (who, kind, name, verb) "
                "SELECT 'me', 'user', 'u' || n, 'changed' FROM generate_series(1, 2500) n",
            )
            for _ in range(3):
                await one.notifier.announce()
            assert (await one.feed.state()).position.number == 2501

    asyncio.run(run())


def test_several_processes_announce_at_once(database_url: str, valkey: Server) -> None:
    """In whichever order: no process misses a change, nothing goes back, and the feed ends with the newest."""

    async def run() -> None:
        async with AsyncExitStack() as stack:
            many = [await stack.enter_async_context(process(database_url, valkey.url)) for _ in range(4)]
            await many[0].notifier.announce()
            told: set[str] = set()
            subscriber = Subscriber(many[0].feed, {RULES: lambda _data, _number: None}, told.update, every=60)
            await subscriber.start()
            task = asyncio.create_task(subscriber.run())

            async def work(one: Process, number: int) -> None:
                for turn in range(25):
                    await change(one.database, "user", f"u{number}.{turn}")
                    await publish(one.database, limit(turn + 1))
                    await one.notifier.announce()

            await asyncio.gather(*[work(one, number) for number, one in enumerate(many)])
            async with asyncio.timeout(5):
                while subscriber.state[RULES].number < 200:  # noqa: ASYNC110 (a thread is at work)
                    await asyncio.sleep(0.01)
            task.cancel()
            await asyncio.wait([task])
            assert told == {f"user:u{number}.{turn}" for number in range(4) for turn in range(25)}
            assert (await many[0].feed.state()).position.number == 200

    asyncio.run(run())


def test_everything_is_written_again_after_a_flush(database_url: str, valkey: Server) -> None:
    """Documents and position are written again within a look, and all processes clear their caches."""

    async def run() -> None:
        async with process(database_url, valkey.url) as one:
            number = await publish(one.database, limit(5))
            async with repairing(one.notifier), aclosing(one.feed.announcements()) as arriving:
                await anext(arriving)
                await _until(one, number)
                valkey.ask("FLUSHALL")
                await _until(one, number)
                while (await anext(arriving) or Announcement(0, (await one.feed.state()).position, [])).names != ["*"]:
                    pass
            assert await one.rules() == limit(5)
            assert set((await one.feed.state()).documents) == {RULES, BLOCKS}

    asyncio.run(run())


@pytest.mark.parametrize(
    "damage",
    [
        ("DEL", "hg:{control}:document:rules"),
        ("SET", "hg:{control}:document:rules", "foreign"),
        ("HSET", "hg:{control}:document:rules", "digest", "other"),
        ("HSET", "hg:{control}:document:rules", "number", "999999"),
        ("HSET", "hg:{control}:document:rules", "number", "many"),
        ("HSET", "hg:{control}:document:rules", "lineage", "other"),
        ("DEL", "hg:{control}:body:rules"),
        ("LPUSH", "hg:{control}:body:rules", "foreign"),
        ("SET", "hg:{control}:position", "foreign"),
        ("HSET", "hg:{control}:position", "number", "999999"),
    ],
    ids=" ".join,
)
def test_whatever_is_done_to_the_feed_is_repaired(database_url: str, valkey: Server, damage: tuple[str, ...]) -> None:
    """A document or position that is gone, foreign, or of another number is written again."""

    async def run() -> None:
        async with process(database_url, valkey.url) as one:
            number = await publish(one.database, limit(5))
            await one.notifier.announce()
            if damage[0] in {"SET", "LPUSH"}:
                valkey.ask("DEL", damage[1])
            valkey.ask(*damage)
            await one.notifier.announce()
            assert one.notifier.trouble is None
            state = await one.feed.state()
            assert (state.position.number, state.documents[RULES].number) == (number, number)
            assert await one.rules() == limit(5)

    asyncio.run(run())


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "frozen"])
def test_a_change_while_redis_is_unavailable_is_announced_later(
    database_url: str, valkey: Server, caplog: pytest.LogCaptureFixture, *, is_killed: bool
) -> None:
    """The change is committed and its maker does not fail; it is announced when Redis has recovered."""

    async def run() -> None:
        async with process(database_url, valkey.url) as one:
            await one.notifier.announce()
            (valkey.kill if is_killed else valkey.freeze)()
            number = await publish(one.database, limit(5))
            await one.notifier.announce()
            assert one.notifier.trouble is not None
            async with repairing(one.notifier):
                valkey.revive()
                await _until(one, number)
            assert await one.rules() == limit(5)
        assert caplog.text.count("the feed is unavailable, announcements wait") == 1
        assert caplog.text.count("changes: announcements recovered") == 1

    asyncio.run(run())


@pytest.mark.parametrize("is_redis_up", [True, False], ids=["Redis is up", "Redis is down too"])
def test_whether_the_database_is_up_is_known(postgres: Postgres, valkey: Server, *, is_redis_up: bool) -> None:
    """It is up only if it has answered just now, whatever else is unavailable at the time."""

    async def run() -> None:
        async with process(postgres.new_database(), valkey.url) as one:
            assert not one.notifier.is_database_up  # it has not been asked
            await one.notifier.announce()
            assert one.notifier.is_database_up
            if not is_redis_up:
                valkey.kill()
                await one.notifier.announce()
                assert one.notifier.is_database_up
            postgres.kill()
            try:
                await one.notifier.announce()
                assert not one.notifier.is_database_up
            finally:
                postgres.revive()
            async with asyncio.timeout(60):
                while not one.notifier.is_database_up:
                    await one.notifier.announce()

    asyncio.run(run())


def test_a_database_that_was_restored_is_noticed(
    postgres: Postgres, valkey: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Its older rules come into force everywhere, whether or not it has made other changes under the same numbers."""

    async def run() -> None:
        backup = postgres.new_database()
        async with process(backup, valkey.url) as one:
            for amount in (1, 2, 3):
                await publish(one.database, limit(amount))
        name = backup.partition("@/")[2].partition("?")[0]
        restored = []
        for copy in ("as_it_was", "gone_on"):
            postgres.execute("postgres", f"CREATE DATABASE {name}_{copy} TEMPLATE {name}")
            restored.append(postgres.url(f"{name}_{copy}"))
        async with process(backup, valkey.url) as one:
            seen: list[object] = []
            subscriber = Subscriber(
                one.feed, {RULES: lambda data, _number: seen.append(data)}, lambda _: None, every=SOON
            )
            task = asyncio.create_task(subscriber.run())
            last = await publish(one.database, limit(4))
            await one.notifier.announce()
            await _until_seen(seen, limit(4))
            async with process(restored[0], valkey.url) as other:
                await other.notifier.announce()
                await _until_seen(seen, limit(3))
                assert caplog.text.count("the database was restored or replaced") == 1
            async with process(restored[1], valkey.url) as other:
                assert await publish(other.database, limit(5)) == last
                await other.notifier.announce()
                await _until_seen(seen, limit(5))
                assert caplog.text.count("this Redis served another headgate database") == 1
            task.cancel()
            await asyncio.wait([task])

    asyncio.run(run())


def test_a_restored_database_that_has_come_as_far_again_is_noticed(postgres: Postgres, valkey: Server) -> None:
    """Numbers alone do not tell one history from the other, so the time of the last change does."""

    async def run() -> None:
        backup = postgres.new_database()
        name = backup.partition("@/")[2].partition("?")[0]
        postgres.execute("postgres", f"CREATE DATABASE {name}_copy TEMPLATE {name}")
        async with process(backup, valkey.url) as one, process(postgres.url(f"{name}_copy"), valkey.url) as other:
            assert await publish(one.database, limit(1)) == 1
            await one.notifier.announce()
            before = (await one.feed.state()).position
            await change(other.database, "user", "u1")
            assert await publish(other.database, limit(2)) == 2
            await other.notifier.announce()
            assert (await one.feed.state()).position.lineage != before.lineage
            assert await other.rules() == limit(2)

    asyncio.run(run())


def test_a_database_without_rules_does_not_remove_rules(postgres: Postgres, valkey: Server) -> None:
    """A service pointed at an empty database by mistake does not switch all limits off."""

    async def run() -> None:
        async with process(postgres.new_database(), valkey.url) as one:
            await publish(one.database, limit(1))
            await one.notifier.announce()
        async with process(postgres.new_database(), valkey.url) as other:
            await other.notifier.announce()
            assert await other.rules() == limit(1)

    asyncio.run(run())


def test_a_record_that_cannot_be_dropped_is_announced_until_it_can(
    database_url: str, valkey: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All are told at once, but the change does not count as announced before the shared copy is gone."""

    async def run() -> None:
        async with process(database_url, valkey.url) as one:
            await one.notifier.announce()
            number = await change(one.database, "user", "u1")
            with monkeypatch.context() as patch:

                async def cannot(_self: RedisCache, _names: object) -> bool:
                    return False

                patch.setattr(RedisCache, "drop", cannot)
                for _ in range(2):
                    said = await one.heard()
                    assert (said.since, said.position.number, list(said.names)) == (0, 0, ["user:u1"])
                assert one.notifier.trouble is not None
            assert (await one.heard()).position.number == number

    asyncio.run(run())


async def _until(one: Process, number: int) -> None:
    async with asyncio.timeout(10):
        while True:
            with suppress(Exception):
                if (await one.feed.state()).position.number == number:
                    return
            await asyncio.sleep(0.01)


async def _until_seen(seen: list[object], what: object) -> None:
    async with asyncio.timeout(10):
        while seen[-1:] != [what]:  # noqa: ASYNC110 (a thread is at work)
            await asyncio.sleep(0.01)
