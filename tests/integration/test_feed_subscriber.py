"""Following on real servers: lost announcements, outages, and starting with everything away."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING

import pytest
from tests.integration.changing import change, limit, publish
from tests.support.servers import ring_url
from tests.support.waiting import wait_until_async

from headgate.adapters.clock import wall_clock
from headgate.adapters.memory import MemoryCache
from headgate.adapters.postgres import Database
from headgate.adapters.redis import RedisFeed, feed_at
from headgate.adapters.saved_documents import SavedDocuments
from headgate.adapters.zones import zone
from headgate.controlplane.changes import StoredChanges
from headgate.controlplane.notifier import Notifier
from headgate.controlplane.subscriber import ActiveDocument, DocumentOrigin, Subscriber
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.dataplane.snapshots import Snapshots
from headgate.ports import RULES

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
    from pathlib import Path

    from tests.support.postgres import Postgres
    from tests.support.sentinel import SentinelSetup
    from tests.support.valkey import Server


EVERY = 0.05


class Process:
    """One process that follows and, for the sake of the test, also announces."""

    def __init__(self, url: str, database: Database, saved: SavedDocuments | None = None, every: float = EVERY) -> None:
        self.database = database
        self.feed = feed_at(url, 0.5)
        self.snapshots = Snapshots(zone, wall_clock)
        self.forgotten: list[str] = []
        self.subscriber = Subscriber(
            self.feed, {RULES: self._take}, self._forget, saved, StoredChanges(database), every=every, grace=EVERY
        )
        self.notifier = Notifier(database, self.feed, MemoryCache(wall_clock), every=EVERY)

    def _take(self, data: object, number: int) -> None:
        self.snapshots.publish(parse_rule_set(data, zone), number)

    def _forget(self, names: Sequence[str]) -> None:
        self.forgotten += names

    async def publish(self, amount: int) -> int:
        number = await publish(self.database, limit(amount))
        await self.notifier.announce()
        return number

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(self.subscriber.run()), asyncio.create_task(self.notifier.run())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    async def until(self, number: int) -> None:
        await wait_until_async(lambda: self.snapshots.current.number == number)


@asynccontextmanager
async def process(
    url: str, database_url: str, saved: SavedDocuments | None = None, every: float = EVERY, *, is_running: bool = True
) -> AsyncIterator[Process]:
    database = Database(database_url)
    one = Process(url, database, saved, every)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(database.close)
        stack.push_async_callback(one.feed.close)
        if is_running:
            await one.subscriber.start()
            await stack.enter_async_context(one.running())
        yield one


def test_a_change_is_active_at_once(database_url: str, valkey: Server) -> None:
    """An announcement is enough; no process waits for the next look."""

    async def run() -> None:
        async with process(valkey.url, database_url, every=60) as one:
            for amount in range(1, 6):
                await one.until(await one.publish(amount))
            number = await change(one.database, "user", "u1")
            await one.notifier.announce()
            await wait_until_async(lambda: "user:u1" in one.forgotten)
            assert (await one.feed.state()).position.number == number
            assert one.subscriber.missed == 0

    asyncio.run(run())


@pytest.mark.parametrize("scheme", ["one", "protocol 3", "sentinel", "cluster", "ring"])
def test_changes_are_followed_on_every_kind_of_server(
    database_url: str, scheme: str, request: pytest.FixtureRequest
) -> None:
    """What is published is active on each of them."""
    match scheme:
        case "ring":
            url = ring_url(request.getfixturevalue("ring_servers"))
        case "sentinel" | "cluster":
            url = request.getfixturevalue(f"{scheme}_setup").url
        case _:
            url = request.getfixturevalue("valkey").url + ("?protocol=3" if scheme == "protocol 3" else "")

    async def run() -> None:
        async with process(url, database_url, every=60) as one:
            for amount in (1, 2):
                await one.until(await one.publish(amount))

    asyncio.run(run())


def test_announcements_that_are_lost_are_made_up_for(
    database_url: str, valkey: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though no message ever arrives, rules come into force and records are forgotten."""

    async def silence(_feed: RedisFeed) -> AsyncGenerator[None]:
        yield None
        await asyncio.Event().wait()

    async def run() -> None:
        monkeypatch.setattr(RedisFeed, "announcements", silence)
        async with process(valkey.url, database_url) as one:
            await one.until(await one.publish(1))
            await wait_until_async(lambda: one.forgotten.count("*") == 1)
            await change(one.database, "user", "u1")
            await one.until(await one.publish(2))
            await wait_until_async(lambda: one.forgotten.count("*") == 2)
            assert one.subscriber.missed == 1

    asyncio.run(run())


def test_who_may_not_listen_is_late_but_right(database_url: str, valkey: Server) -> None:
    """A user without the right to the channel follows by looking."""

    async def run() -> None:
        valkey.ask("ACL", "SETUSER", "deaf", "on", ">x", "~*", "+@all", "resetchannels")
        deaf = valkey.url.replace("://", "://deaf:x@")
        async with process(valkey.url, database_url) as one, process(deaf, database_url) as other:
            for amount in (1, 2):
                await other.until(await one.publish(amount))

    asyncio.run(run())


def test_a_flush_changes_nothing_for_those_who_follow(database_url: str, valkey: Server) -> None:
    """The rules stay, and what is published after it is active."""

    async def run() -> None:
        async with process(valkey.url, database_url) as one:
            number = await one.publish(1)
            await one.until(number)
            valkey.ask("FLUSHALL")
            assert one.snapshots.current.number == number
            await one.until(await one.publish(2))
            assert one.subscriber.state[RULES] == ActiveDocument(DocumentOrigin.FEED, number + 1)

    asyncio.run(run())


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "frozen"])
def test_rules_stay_while_redis_is_unavailable(database_url: str, valkey: Server, *, is_killed: bool) -> None:
    """What was published meanwhile is active once Redis has recovered."""

    async def run() -> None:
        async with process(valkey.url, database_url) as one:
            number = await one.publish(1)
            await one.until(number)
            (valkey.kill if is_killed else valkey.freeze)()
            later = await publish(one.database, limit(2))
            await wait_until_async(lambda: one.subscriber.trouble is not None)
            assert one.snapshots.current.number == number
            valkey.revive()
            await one.until(later)

    asyncio.run(run())


def test_a_failover_is_followed(database_url: str, sentinel_setup: SentinelSetup) -> None:
    """After the primary was lost, changes are announced on and heard from the new one."""

    async def run() -> None:
        async with process(sentinel_setup.url, database_url) as one:
            await one.until(await one.publish(1))
            await asyncio.to_thread(sentinel_setup.primary().kill)
            later = await publish(one.database, limit(2))
            await one.until(later)

    asyncio.run(run())


@pytest.mark.parametrize("has_saved", [True, False], ids=["saved", "nothing saved"])
@pytest.mark.parametrize("how", ["killed", "frozen"])
@pytest.mark.parametrize("away", ["Redis", "PostgreSQL", "both"])
def test_starting_while_servers_are_unavailable(
    postgres: Postgres, valkey: Server, tmp_path: Path, away: str, how: str, *, has_saved: bool
) -> None:
    """A process starts within the time it is given, by what it can get, and catches up once all have recovered."""
    revivals: list[Callable[[], None]] = []

    def revive() -> None:
        while revivals:
            revivals.pop()()

    async def run() -> None:
        database_url = postgres.new_database()
        saved = SavedDocuments(tmp_path)
        async with process(valkey.url, database_url, saved if has_saved else None) as one:
            number = await one.publish(1)
            await one.until(number)
        postgres.execute("postgres", "CHECKPOINT")  # in tests nothing else makes sure that it is written
        try:
            if away != "PostgreSQL":
                (valkey.kill if how == "killed" else valkey.freeze)()
            if away != "Redis":
                (postgres.kill if how == "killed" else postgres.freeze)()
                revivals.append(postgres.restart if how == "killed" else postgres.thaw)
            async with process(valkey.url, database_url, saved, is_running=False) as one:
                clock = asyncio.get_running_loop().time
                began = clock()
                state = await one.subscriber.start()
                took = clock() - began
                last = DocumentOrigin.SAVED if has_saved else DocumentOrigin.NOTHING
                origin = {"Redis": DocumentOrigin.DATABASE, "PostgreSQL": DocumentOrigin.FEED, "both": last}[away]
                assert state[RULES] == ActiveDocument(origin, 0 if origin is DocumentOrigin.NOTHING else number)
                assert took < 2  # said to be 1.5, on a machine that does nothing else
                valkey.revive()
                revive()
                async with one.running():
                    await one.until(number)
        finally:
            revive()

    asyncio.run(run())


def test_starting_while_a_database_freezes_that_was_connected_to(postgres: Postgres, valkey: Server) -> None:
    """A connection that is open and silent does not hold a process up either."""

    async def run() -> None:
        async with process(valkey.url, postgres.new_database(), is_running=False) as one:
            await one.database.row("feed.rules")
            clock = asyncio.get_running_loop().time
            postgres.freeze()
            try:
                began = clock()
                await one.subscriber.start()
                assert clock() - began < 2
            finally:
                postgres.thaw()

    asyncio.run(run())
