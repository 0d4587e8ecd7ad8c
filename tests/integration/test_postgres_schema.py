"""The schema: equal to the sum of migrations, on every server there is, and every statement fits it."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import asyncpg
import pytest
from tests.integration.schema_text import SCHEMA, schema_of
from tests.support.postgres import Postgres

from headgate.adapters.embedded import postgres
from headgate.adapters.postgres import Database, migrate
from headgate.adapters.postgres.connection import statements
from headgate.controlplane.changes import Kind, changes, record
from headgate.errors import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SERVERS = list(dict.fromkeys(postgres._found()))


@pytest.fixture(scope="module")
def migrated(postgres: Postgres) -> str:
    """One database for all tests that leave nothing in it."""
    return postgres.new_database()


@pytest.fixture(params=SERVERS, ids=[str(postgres._version(folder)) for folder in SERVERS])
def server(request: pytest.FixtureRequest, servers_folder: Path) -> Iterator[Postgres]:
    """A server of each version that there is."""
    programs: Path = request.param
    server = Postgres(servers_folder / f"postgres{postgres._version(programs)}", programs)
    yield server
    server.kill()


def _without_views(schema: str) -> str:
    """Versions of PostgreSQL write the text of a view in different ways."""
    return re.sub(r"CREATE VIEW .*?;\n\n", "", schema, flags=re.DOTALL)


def test_every_server_there_is_will_do(server: Postgres) -> None:
    """Migrations make the same schema on each version of PostgreSQL, and changes are made and read there."""

    async def run() -> None:
        database = Database(server.new_database())
        assert _without_views(await schema_of(database)) == _without_views(SCHEMA.read_text(encoding="utf-8"))
        async with database.change() as writing:
            await record(writing, "me", Kind.TIER, "free", "created", None, {"price": 0})
        assert [change["after"] for change in await changes(database)] == [{"price": 0}]
        await database.close()

    asyncio.run(run())


def test_the_schema_file_makes_the_schema(postgres: Postgres) -> None:
    """What schema.sql shows is all there is: executed, it makes the same schema as the migrations."""

    async def run() -> None:
        database = Database(postgres.new_database(empty=True))
        async with database.use() as connection:
            await connection.execute(SCHEMA.read_text(encoding="utf-8"))
        assert await schema_of(database) == SCHEMA.read_text(encoding="utf-8")
        await database.close()

    asyncio.run(run())


@pytest.mark.parametrize("name", statements())
def test_every_statement_fits_the_schema(name: str, migrated: str) -> None:
    """The server understands each named statement: its tables, columns and types are there."""
    subject = name.partition(".")[0]

    async def run() -> None:
        connection = await asyncpg.connect(migrated)
        async with connection.transaction():  # some tables last only for one, and are made by statements of the subject
            for other, sql in statements().items():
                if other.startswith(f"{subject}.") and sql.startswith("CREATE TEMP"):
                    await connection.execute(sql)
            if not statements()[name].startswith("CREATE TEMP"):
                await connection.prepare(statements()[name])
        await connection.close()

    asyncio.run(run())


def test_everything_is_made_where_the_search_path_says(postgres: Postgres) -> None:
    """A schema of its own is named in the address; a new one that is put before it later changes nothing."""

    async def run() -> None:
        url = postgres.new_database(empty=True)
        plain = Database(url)
        async with plain.use() as connection:
            await connection.execute("CREATE SCHEMA own; CREATE SCHEMA later")
        own = Database(f"{url}&search_path=own")
        assert len(await migrate(own)) > 0
        before = Database(f"{url}&search_path=later,own")
        assert await migrate(before) == []
        async with before.use() as connection:
            await connection.execute("SELECT make_event_partition(now())")
            schemas = await connection.fetch(
                "SELECT DISTINCT schemaname FROM pg_tables WHERE tablename LIKE 'events_%'"
            )
        assert [row["schemaname"] for row in schemas] == ["own"]
        for database in (plain, own, before):
            await database.close()

    asyncio.run(run())


def test_the_migrations_of_another_program_are_not_touched(postgres: Postgres) -> None:
    """A database in which another program has a table of that name is refused with a sentence."""

    async def run() -> None:
        database = Database(postgres.new_database(empty=True))
        async with database.use() as connection:
            await connection.execute("CREATE TABLE migrations (id integer, migration text)")
        with pytest.raises(DatabaseError, match="give headgate a database of its own"):
            await migrate(database)
        await database.close()

    asyncio.run(run())


def test_a_migration_may_take_longer_than_a_call(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the deadline of calls nor a time limit of the role ends a migration, nor another who waits for it."""
    from headgate.adapters.postgres import migrations  # noqa: PLC0415 (its parts are replaced)

    slow = migrations.Migration(1, "slow", "CREATE TABLE slow (); SELECT pg_sleep(0.5)")
    monkeypatch.setattr(migrations, "known", lambda: (slow,))

    async def run() -> None:
        url = f"{postgres.new_database(empty=True)}&statement_timeout=300"
        databases = [Database(url, seconds=0.2), Database(url, seconds=0.2)]
        done = await asyncio.gather(*map(migrate, databases))
        assert sorted(done) == [[], [slow]]
        for database in databases:
            await database.close()

    asyncio.run(run())
