"""Processes that report themselves in a real database, and what is told of who has a change."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from tests.integration.changing import change, limit, publish
from tests.support.admin import with_admin
from tests.support.waiting import wait_until_async

from headgate.adapters.memory import MemoryFeed
from headgate.adapters.postgres import Database
from headgate.controlplane.changes import MAX_CHANGES, StoredChanges
from headgate.controlplane.processes import Applied, Presence, Processes, ProcessName
from headgate.controlplane.subscriber import Subscriber
from headgate.errors import DatabaseError
from headgate.ports import BLOCKS, RULES, Position

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from tests.support.admin import Admin


class Process:
    """A process that follows the database directly, since its feed never has anything."""

    def __init__(self, database: Database, pid: int, *kinds: str) -> None:
        takers = dict.fromkeys(kinds or (RULES, BLOCKS), lambda _data, _number: None)
        self.subscriber = Subscriber(MemoryFeed(), takers, lambda _names: None, database=StoredChanges(database))
        self.presence = Presence(database, ProcessName(uuid4(), "host", pid, "service", "eu"), self.subscriber, 60.0)
        self._direct = self.subscriber._direct

    async def take(self) -> None:
        """Take what is newest."""
        assert self._direct is not None
        await self._direct.look()

    @asynccontextmanager
    async def reporting(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.presence.run())
        yield
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def _with_database(url: str, test: Callable[[Database], Coroutine[None, None, None]]) -> None:
    async def run() -> None:
        database = Database(url)
        try:
            await test(database)
        finally:
            await database.close()

    asyncio.run(run())


def test_a_process_is_listed_with_what_it_runs_on(database_url: str) -> None:
    """At once, again whenever it has taken something, and no more once it has left."""

    async def test(database: Database) -> None:
        processes, one = Processes(database), Process(database, 1)

        async def numbers() -> list[tuple[int, int, str]]:
            return [(each.rules, each.blocks, each.rules_from) for each in await processes.list()]

        async def is_listed_with(*expected: tuple[int, int, str]) -> bool:
            return await numbers() == list(expected)

        async with one.reporting():
            await wait_until_async(lambda: is_listed_with((0, 0, "none")))
            number = await publish(database, limit(5))
            await one.take()
            await wait_until_async(lambda: is_listed_with((number, 0, "database")))
        (listed,) = await processes.list()
        assert (listed.host, listed.pid, listed.role, listed.region, listed.following) == (
            *("host", 1, "service", "eu"),
            "feed",
        )
        assert listed.started <= listed.seen
        await one.presence.leave()
        assert await processes.list() == []

    _with_database(database_url, test)


def test_who_has_a_change_is_waited_for_and_no_longer_than_told(database_url: str) -> None:
    """The answer comes as soon as all have it, and else names those that do not."""

    async def test(database: Database) -> None:
        processes = Processes(database)
        assert await processes.applied(60) == Applied(0, 0, [])
        one, two = Process(database, 1), Process(database, 2)
        async with one.reporting(), two.reporting():
            await wait_until_async(lambda: _number(processes, 2))
            assert await processes.applied(60) == Applied(2, 2, [])  # nothing was ever published
            await publish(database, limit(5))
            await one.take()
            await wait_until_async(lambda: _has(processes, 1))
            assert await processes.applied(0) == Applied(2, 1, ["host:2"])
            waiting = asyncio.create_task(processes.applied(60))
            await two.take()
            assert await waiting == Applied(2, 2, [])
            await change(database, "block", "b")
            assert await processes.applied(0) == Applied(2, 0, ["host:1", "host:2"])

    _with_database(database_url, test)


def test_an_application_with_rules_of_its_own_is_waited_for_only_with_blocks(database_url: str) -> None:
    """It never takes the published rules."""

    async def test(database: Database) -> None:
        processes, one = Processes(database), Process(database, 1, BLOCKS)
        async with one.reporting():
            await change(database, "block", "b")
            await one.take()
            await wait_until_async(lambda: _has(processes, 1))
            await publish(database, limit(5))
            assert await processes.applied(0) == Applied(1, 1, [])
            await change(database, "block", "b")
            assert await processes.applied(0) == Applied(1, 0, ["host:1"])

    _with_database(database_url, test)


def test_a_process_of_another_history_does_not_have_it(database_url: str) -> None:
    """After a restore numbers begin anew, and higher ones of before say nothing."""

    async def test(database: Database) -> None:
        processes, one = Processes(database), Process(database, 1)
        await publish(database, limit(5))
        async with one.reporting():
            await one.take()
            await wait_until_async(lambda: _has(processes, 1))
            async with database.use() as connection:
                await connection.execute("UPDATE lineage SET id = gen_random_uuid()")
            assert (await processes.applied(0)).have_it == 0
            await one.take()
            await wait_until_async(lambda: _has(processes, 1))

    _with_database(database_url, test)


def test_processes_that_ended_without_a_word_are_forgotten(database_url: str) -> None:
    """They are neither listed nor counted after ten seconds, and their rows are gone after a minute."""

    async def test(database: Database) -> None:
        processes = Processes(database)
        for pid in (1, 2, 3):
            await Process(database, pid).presence._report()
        async with database.use() as connection:
            await connection.execute("UPDATE processes SET seen = now() - interval '11 seconds' WHERE pid = 1")
            await connection.execute("UPDATE processes SET seen = now() - interval '61 seconds' WHERE pid = 2")
        assert [each.pid for each in await processes.list()] == [3]
        assert (await processes.applied(0)).processes == 1
        await Process(database, 4).presence._report()
        assert await _pids(database) == [1, 3, 4]

    _with_database(database_url, test)


def test_a_process_that_cannot_report_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    """An application whose role may not write there says so once."""

    class Refusing:
        async def rows(self, statement: str, *_arguments: object) -> list[Any]:
            msg = f"{statement}: permission denied"
            raise DatabaseError(msg, transient=False)

        async def row(self, statement: str, *arguments: object) -> None:
            await self.rows(statement, *arguments)

    async def run() -> None:
        subscriber = Subscriber(MemoryFeed(), {BLOCKS: lambda _data, _number: None}, lambda _names: None)
        presence = Presence(Refusing(), ProcessName(uuid4(), "host", 1, "application", None), subscriber)
        for _ in range(3):
            await presence._report()
        await presence.leave()

    asyncio.run(run())
    assert caplog.text.count("permission denied") == 1


def test_the_database_tells_what_has_changed_since_a_position(database_url: str) -> None:
    """Names of documents and records in order, each once; everything, of very many or of another history."""

    async def test(database: Database) -> None:
        changes = StoredChanges(database)
        began = (await changes.since(Position())).position
        assert (await changes.since(began)).names == ()
        number = await publish(database, limit(5))
        for name in ("u1", "u2", "u1"):
            await change(database, "user", name)
        await change(database, "token", "t")
        found = await changes.since(began)
        assert (found.names, found.numbers) == (["rules", "user:u1", "user:u2"], {RULES: number, BLOCKS: 0})
        assert await changes.since(found.position) == (found.position, found.numbers, ())
        assert (await changes.since(found.position._replace(mark="another"))).names == ["*"]
        assert (await changes.since(found.position._replace(lineage="another"))).names == ["*"]
        async with database.use() as connection:
            await connection.execute(
                "INSERT INTO changes (who, kind, name, verb) "
                "SELECT 'test', 'user', n::text, 'changed' FROM generate_series(1, $1::int) n",
                MAX_CHANGES + 5,
            )
        many = await changes.since(found.position)
        assert many.names == ["*"]
        assert len((await changes.since(many.position)).names) == 5

    _with_database(database_url, test)


@pytest.mark.parametrize("wait", ["-1", "10.1", "soon", "1_0", "nan", "inf", "", "1" * 30])
def test_a_wait_that_is_no_time_is_refused_before_anything_is_changed(database_url: str, wait: str) -> None:
    """It is a number of seconds from 0 to 10; other endpoints do not take it."""

    async def test(admin: Admin) -> None:
        answer = await admin.ask("POST", f"/v1/blocks?wait={wait}", {"user": "u1"})
        assert answer.status_code == 422
        assert (await admin.good("GET", "/v1/blocks"))["items"] == []
        assert (await admin.ask("POST", "/v1/users?wait=1", {"id": "u1"})).status_code == 422

    with_admin(database_url, test)


def test_the_answer_to_a_change_says_who_has_it(database_url: str) -> None:
    """In a header of all, and in the body where there is one; a second copy of a request says it anew."""

    async def test(admin: Admin) -> None:
        made = await admin.ask("POST", "/v1/blocks?wait=0", {"user": "u1"}, idempotency_key="k")
        assert made.headers["headgate-applied"] == "0/0"
        await Process(admin.database, 7).presence._report()
        copy = await admin.ask("POST", "/v1/blocks?wait=0", {"user": "u1"}, idempotency_key="k")
        assert (copy.headers["idempotency-replayed"], copy.headers["headgate-applied"]) == ("true", "0/1")
        assert copy.json() == {**made.json(), "applied": {"processes": 1, "have_it": 0, "waiting_for": ["host:7"]}}
        again = await admin.ask("POST", "/v1/blocks?wait=0", {"user": "u2"})
        assert again.headers["headgate-applied"] == "0/1"
        assert again.json()["applied"] == {"processes": 1, "have_it": 0, "waiting_for": ["host:7"]}
        gone = await admin.ask("DELETE", f"/v1/blocks/{again.json()['id']}?wait=0")
        assert (gone.status_code, gone.headers["headgate-applied"], gone.content) == (204, "0/1", b"")
        (listed,) = (await admin.good("GET", "/v1/processes"))["items"]
        assert (listed["pid"], listed["rules_from"]) == (7, "none")

    with_admin(database_url, test)


async def _number(processes: Processes, number: int) -> bool:
    return len(await processes.list()) == number


async def _has(processes: Processes, number: int) -> bool:
    return (await processes.applied(0)).have_it == number


async def _pids(database: Database) -> list[int]:
    async with database.use() as connection:
        return [row["pid"] for row in await connection.fetch("SELECT pid FROM processes ORDER BY pid")]
