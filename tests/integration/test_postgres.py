"""The database: migrations, statements, changes in turn, faults in headgate's words."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import asyncpg
import pytest

from headgate.adapters.postgres import Database, applied, migrate, pending, require_schema
from headgate.adapters.postgres.migrations import BREAKING, known
from headgate.controlplane.changes import Kind, changes, record
from headgate.errors import DatabaseError, InvalidRequest, InvalidSettings

if TYPE_CHECKING:
    from tests.support.postgres import Postgres


async def _close(*databases: Database) -> None:
    for database in databases:
        await database.close()


def test_several_processes_can_migrate_an_empty_database_at_once(postgres: Postgres) -> None:
    """Each migration is applied once, whichever process is first."""

    async def run() -> None:
        url = postgres.new_database(empty=True)
        databases = [Database(url) for _ in range(4)]
        assert await pending(databases[0]) == list(known())
        done = await asyncio.gather(*map(migrate, databases))
        assert sorted(step for steps in done for step in steps) == list(known())
        assert await pending(databases[0]) == []
        await _close(*databases)

    asyncio.run(run())


_NEWER = "INSERT INTO migrations (number, name, digest) VALUES ($1, $2, '')"


def test_a_schema_of_the_next_version_is_borne(postgres: Postgres, caplog: pytest.LogCaptureFixture) -> None:
    """During an upgrade old programs run on a newer schema, and say so once; a backup by them would not be whole."""

    async def run() -> None:
        database = Database(postgres.new_database())
        async with database.use() as connection:
            await connection.execute(_NEWER, 9999, "more_columns")
        for _ in range(2):
            assert await pending(database) == []
            assert await migrate(database) == []
            await require_schema(database)
        with pytest.raises(DatabaseError, match="install a newer one"):
            await applied(database)
        await database.close()

    asyncio.run(run())
    assert [line for line in caplog.messages if "migration 9999" in line] == [
        "database schema: migration 9999 (more_columns) is of a newer headgate; this process continues, upgrade it"
    ]


def test_a_schema_that_cannot_be_borne_is_refused(postgres: Postgres) -> None:
    """The name of a migration says that older programs do not work on what it makes."""

    async def run() -> None:
        database = Database(postgres.new_database())
        async with database.use() as connection:
            await connection.execute(_NEWER, 9998, "breaking_everything")
        with pytest.raises(DatabaseError, match="migration 9998, which this headgate does not know; install a newer"):
            await pending(database)
        await database.close()

    asyncio.run(run())


def test_no_migration_needs_a_stop_of_all_services() -> None:
    """Every schema can be borne by the version before, so upgrades are rolling."""
    assert not [step.name for step in known() if step.name.startswith(BREAKING)]


def test_changes_are_numbered_in_the_order_in_which_they_take_effect(postgres: Postgres) -> None:
    """A change waits for the one before it, so no number becomes visible before a lower one."""

    async def run() -> None:
        url = postgres.new_database()
        first, second = Database(url), Database(url)
        inside, go_on = asyncio.Event(), asyncio.Event()

        async def slowly() -> int:
            async with first.change() as writing:
                inside.set()
                await go_on.wait()
                return await record(writing, "me", Kind.TIER, "free", "created", None, {"price": 0})

        async def quickly() -> int:
            await inside.wait()
            async with second.change() as writing:
                return await record(writing, "you", Kind.TIER, "free", "changed", {"price": 0}, {"price": 1})

        both = asyncio.gather(slowly(), quickly())
        await inside.wait()
        go_on.set()
        numbers = await both
        assert numbers[0] < numbers[1]
        assert [row["who"] for row in await changes(first, Kind.TIER, "free")] == ["you", "me"]
        await _close(first, second)

    asyncio.run(run())


def test_a_change_that_fails_leaves_nothing(postgres: Postgres) -> None:
    """Everything of a change is written, or nothing."""

    async def run() -> None:
        database = Database(postgres.new_database())

        async def half() -> None:
            async with database.change() as writing:
                await record(writing, "me", Kind.TIER, "free", "created", None, None)
                await record(writing, "", Kind.TIER, "free", "created", None, None)

        with pytest.raises(InvalidRequest):
            await half()
        assert await changes(database) == []
        await database.close()

    asyncio.run(run())


def test_many_rows_are_loaded_at_once(postgres: Postgres) -> None:
    """A bulk load takes every kind of value, and one that does not fit leaves nothing."""

    async def run() -> None:
        database = Database(postgres.new_database())
        now = datetime.now(UTC)
        columns = ["name", "display_name", "price", "limits", "created_at"]

        async def load(price: object) -> None:
            async with database.change() as writing:
                await writing.copy("tiers", columns, [(f"t{n}", None, 7, {"a": ["ü"]}, now) for n in range(1_000)])
                await writing.copy("tiers", columns, [("last", "Last", price, {}, now)])

        for wrong in ("much", -1, object()):
            with pytest.raises(InvalidRequest):
                await load(wrong)
        await load(8)
        async with database.use() as connection:
            assert await connection.fetchval("SELECT count(*) FROM tiers") == 1_001
            row = await connection.fetchrow("SELECT * FROM tiers WHERE name = 't999'")
        assert row is not None
        assert (row["limits"], row["created_at"]) == ({"a": ["ü"]}, now)
        await database.close()

    asyncio.run(run())


def test_a_database_that_is_not_there_is_said_so(postgres: Postgres) -> None:
    """No exception of asyncpg reaches the caller, and no password does."""

    async def run() -> None:
        database = Database("postgresql://me:secret@/none?host=/nowhere")
        with pytest.raises(DatabaseError, match="does not answer") as caught:
            await database.rows("feed.blocks")
        assert "secret" not in str(caught.value)
        assert caught.value.transient
        database = Database(postgres.url("no_such_database"))
        with pytest.raises(DatabaseError, match="no_such_database"):
            await database.rows("feed.blocks")

    asyncio.run(run())


def test_letting_go_of_a_server_that_has_just_died_is_no_error(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database can be closed in the very moment in which its server is lost; its connections are cut off then."""

    async def lost(_pool: object) -> None:
        raise BrokenPipeError  # what asyncpg was once seen to raise, when a server had just been killed

    async def run() -> None:
        database = Database(postgres.new_database())
        async with database.use() as used:
            connection = used._con  # type: ignore[attr-defined] # the stubs have forgotten it
        with monkeypatch.context() as patched:
            patched.setattr(asyncpg.Pool, "close", lost)
            await database.close()
        assert connection.is_closed()

    asyncio.run(run())


@pytest.mark.parametrize("url", ["mysql://x", "", "postgresql://x/y?pgbouncer=perhaps", 7])
def test_a_malformed_address_is_refused(url: str) -> None:
    """With a sentence that does not repeat it."""
    with pytest.raises(InvalidSettings):
        Database(url)
