"""A server that freezes, dies or refuses, and callers who give up: no caller hangs, and nothing is left behind."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from headgate.adapters.postgres import Database, database
from headgate.controlplane.changes import Kind, changes, record
from headgate.errors import Conflict, DatabaseError, InvalidRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.support.postgres import Postgres

SECONDS = 0.3
LONG = 60.0
"""Until then something has ended that would never end if it waited for the server; a busy machine takes a while."""


@contextmanager
def _frozen(postgres: Postgres) -> Iterator[None]:
    postgres.freeze()
    try:
        yield
    finally:
        postgres.thaw()


@asynccontextmanager
async def _opened(url: str, seconds: float = SECONDS, most: int = 2) -> AsyncIterator[Database]:
    """A database with an open connection; in the end, none of them may be in use."""
    opened = Database(url, seconds=seconds, max_connections=most)
    try:
        async with asyncio.timeout(LONG):
            while True:
                with suppress(DatabaseError):  # on a busy machine a connection may take longer than the deadline
                    await opened.rows("feed.blocks")
                    break
        yield opened
        await _whole(opened)
    finally:
        await opened.close()


async def _whole(opened: Database) -> None:
    """Return when the database answers and all its connections are open again."""
    async with asyncio.timeout(LONG):
        while True:
            with suppress(DatabaseError):
                await asyncio.gather(*(_change(opened) for _ in range(4)))
                break
        while opened._tidying:  # noqa: ASYNC110 (nothing tells)
            await asyncio.sleep(0.01)
    assert opened._pool is not None
    assert opened._pool.get_idle_size() == opened._pool.get_size() > 0
    assert opened._pool._queue.qsize() == opened._most  # type: ignore[attr-defined] # asyncpg's own


async def _change(opened: Database, name: str = "free") -> None:
    async with opened.change() as writing:
        await record(writing, "me", Kind.TIER, name, "changed", None, None)


def test_no_caller_waits_for_a_frozen_server_past_the_deadline(postgres: Postgres) -> None:
    """Reads and changes, more than there are connections, all fail in time, and go on when the server does."""

    async def run() -> None:
        async with _opened(postgres.new_database()) as opened:
            with _frozen(postgres):
                async with asyncio.timeout(LONG / 2):
                    asked = [opened.rows("feed.blocks") for _ in range(5)], [_change(opened) for _ in range(5)]
                    failed = await asyncio.gather(*asked[0], *asked[1], return_exceptions=True)
            assert all(isinstance(each, DatabaseError) and each.transient for each in failed)
            assert {str(each) for each in failed} == {"the database does not answer (it took too long)"}

    asyncio.run(run())


@pytest.mark.parametrize("place", ["begin", "statement", "commit", "error"])
def test_a_server_that_freezes_in_a_change_holds_no_caller(postgres: Postgres, place: str) -> None:
    """At whatever point of a change the server freezes, it ends in time; where it may have been made, that is said."""

    async def run() -> None:
        async with _opened(postgres.new_database()) as opened:

            async def change() -> None:
                if place == "begin":
                    postgres.freeze()
                async with opened.change() as writing:
                    await record(writing, "me", Kind.TIER, "free", "created", None, None)
                    postgres.freeze()
                    if place == "statement":
                        await record(writing, "me", Kind.TIER, "free", "changed", None, None)
                    if place == "error":
                        raise Conflict(place)

            try:
                async with asyncio.timeout(LONG / 2):
                    with pytest.raises((DatabaseError, Conflict)) as caught:
                        await change()
            finally:
                postgres.thaw()
            assert (caught.type is Conflict) == (place == "error")
            assert ("not known whether the change was made" in str(caught.value)) == (place == "commit")
            assert getattr(caught.value, "perhaps_done", False) == (place == "commit")
            await _whole(opened)
            if place != "commit":
                assert "created" not in [each["verb"] for each in await changes(opened)]

    asyncio.run(run())


def test_closing_does_not_wait_for_a_frozen_server(postgres: Postgres) -> None:
    """A program can end while its database is frozen."""

    async def run() -> None:
        opened = Database(postgres.new_database(), seconds=SECONDS)
        await opened.rows("feed.blocks")
        with _frozen(postgres):
            with pytest.raises(DatabaseError):
                await opened.rows("feed.blocks")
            async with asyncio.timeout(LONG):
                await opened.close()

    asyncio.run(run())


def test_a_change_does_not_survive_its_server(postgres: Postgres) -> None:
    """If the server dies in the middle of a change nothing of it is kept, and it is not tried again."""

    async def run() -> None:
        async with _opened(postgres.new_database(), seconds=5) as opened:
            tries = []

            async def change() -> None:
                async with opened.change() as writing:
                    tries.append("one")
                    await record(writing, "me", Kind.TIER, "free", "created", None, None)
                    postgres.kill()
                    await record(writing, "me", Kind.TIER, "free", "changed", None, None)

            with pytest.raises(DatabaseError) as caught:
                await change()
            assert caught.value.transient
            with pytest.raises(DatabaseError):
                await opened.rows("feed.blocks")
            postgres.restart()
            assert await changes(opened) == []
            assert tries == ["one"]

    asyncio.run(run())


def test_a_commit_without_an_answer_is_of_unknown_outcome(postgres: Postgres) -> None:
    """A connection that is cut just then says neither that the change was made nor that it was not."""

    async def run() -> None:
        async with _opened(postgres.new_database(), seconds=5) as opened:

            async def change() -> None:
                async with opened.change() as writing:
                    await record(writing, "me", Kind.TIER, "free", "created", None, None)
                    postgres.kill()

            with pytest.raises(DatabaseError, match="check before you retry"):
                await change()
            postgres.restart()

    asyncio.run(run())


def test_a_failure_that_the_caller_swallowed_is_no_success(postgres: Postgres) -> None:
    """A change of which one statement failed is not made, and its end says so."""

    async def run() -> None:
        async with _opened(postgres.new_database(), LONG) as opened:

            async def change() -> None:
                async with opened.change() as writing:
                    await record(writing, "me", Kind.TIER, "free", "created", None, None)
                    with suppress(InvalidRequest):
                        await record(writing, "", Kind.TIER, "free", "created", None, None)

            with pytest.raises(DatabaseError, match="the change was not made"):
                await change()
            assert await changes(opened) == []

    asyncio.run(run())


def test_a_change_that_waits_too_long_for_another_is_told_so(postgres: Postgres) -> None:
    """Changes go one after another; who waits past the deadline hears why, and the other is not disturbed."""

    async def run() -> None:
        url = postgres.new_database()
        async with _opened(url) as one, _opened(url) as other:
            async with one.change() as writing:
                await record(writing, "me", Kind.TIER, "free", "created", None, None)
                with pytest.raises(
                    DatabaseError, match="timeout: another change has kept the lock for too long"
                ) as caught:
                    await _change(other)
                assert caught.value.transient
            assert len(await changes(other)) == 1

    asyncio.run(run())


def test_a_machine_that_vanished_in_a_change_does_not_block_the_others(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server itself ends a change of which it hears nothing more."""
    monkeypatch.setattr(database, "_IDLE", "100ms")

    async def run() -> None:
        url = postgres.new_database()
        async with _opened(url) as vanished, _opened(url, seconds=5) as other:

            async def change() -> None:
                async with vanished.change() as writing:
                    await _change(other)
                    await record(writing, "me", Kind.TIER, "free", "created", None, None)

            with pytest.raises(DatabaseError):
                await change()

    asyncio.run(run())


def test_a_server_without_room_says_so(postgres: Postgres) -> None:
    """Too many connections are a passing trouble."""

    async def run() -> None:
        url = postgres.new_database()
        async with _opened(url) as owner, owner.use() as connection:
            await connection.execute(
                "CREATE ROLE few LOGIN CONNECTION LIMIT 1; GRANT SELECT ON ALL TABLES IN SCHEMA public TO few"
            )
            few = Database(url.replace("postgres@", "few@"), seconds=5)
            failed = await asyncio.gather(*(few.rows("feed.blocks") for _ in range(4)), return_exceptions=True)
            refused = [each for each in failed if isinstance(each, DatabaseError)]
            assert refused
            assert all(each.transient and "too many connections" in str(each) for each in refused)
            assert await few.rows("feed.blocks")
            await few.close()

    asyncio.run(run())


def test_giving_up_at_any_moment_leaves_nothing_behind(postgres: Postgres) -> None:
    """A caller cancelled while connecting, reading, changing or committing leaves connections and lock free."""

    async def run() -> None:
        url = postgres.new_database()
        async with _opened(url, seconds=5) as opened:
            for turns in [*range(60), *range(60, 400, 7)]:
                fresh = Database(url, seconds=5) if turns % 3 == 0 else opened
                tasks = [asyncio.create_task(_change(fresh)), asyncio.create_task(fresh.rows("feed.blocks"))]
                for _ in range(turns):
                    await asyncio.sleep(0)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                if fresh is not opened:
                    await fresh.close()
            async with asyncio.timeout(LONG):
                await _change(opened)

    asyncio.run(run())


def test_old_servers_are_refused(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is older than what headgate needs is refused with both versions named."""
    monkeypatch.setattr(database, "_OLDEST", 99)

    async def run() -> None:
        with pytest.raises(DatabaseError, match=r"is PostgreSQL \d+; headgate needs 99 or newer") as caught:
            await Database(postgres.new_database()).rows("feed.blocks")
        assert not caught.value.transient

    asyncio.run(run())


def test_an_empty_database_says_what_to_run(postgres: Postgres) -> None:
    """Where there are no tables yet, the sentence names the command that makes them."""

    async def run() -> None:
        opened = Database(postgres.new_database(empty=True))
        with pytest.raises(DatabaseError, match="run 'headgate db migrate'"):
            await opened.rows("feed.blocks")
        await opened.close()

    asyncio.run(run())
