"""Behind a pooler that gives every transaction another connection."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.integration.pooler import PORT, Pooler

from headgate.adapters.postgres import Database, migrate
from headgate.controlplane.changes import Kind, changes, record
from headgate.errors import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.support.postgres import Postgres


def _behind_pooler(postgres: Postgres, scenario: Callable[[str], Awaitable[None]]) -> None:
    async def run() -> None:
        pooler = Pooler(postgres.folder)
        await pooler.start()
        await scenario(f"{postgres.new_database(empty=True)}&port={PORT}")
        await pooler.stop()

    asyncio.run(asyncio.wait_for(run(), 30))


def test_nothing_outlives_a_transaction(postgres: Postgres) -> None:
    """With pgbouncer=true, migrations, changes, bulk loads and reads work behind PgBouncer in transaction mode."""

    async def scenario(url: str) -> None:
        database = Database(f"{url}&pgbouncer=true")
        await migrate(database)
        for number in range(5):
            async with database.change() as writing:
                await writing.copy("tiers", ["name", "limits"], [(f"t{number}", {"api": ["1/second"]})])
                await record(writing, "me", Kind.TIER, f"t{number}", "created", None, {"number": number})
            found = await asyncio.gather(*(changes(database, Kind.TIER, f"t{number}") for _ in range(20)))
            assert [[change["after"] for change in each] for each in found] == [[{"number": number}]] * 20
        await database.close()

    _behind_pooler(postgres, scenario)


def test_prepared_statements_do_not_pass_a_pooler(postgres: Postgres) -> None:
    """Without pgbouncer=true they are missed there, which is said and can be looked up."""

    async def scenario(url: str) -> None:
        database = Database(url)
        with pytest.raises(DatabaseError, match="pgbouncer=true"):
            await migrate(database)
        await database.close()

    _behind_pooler(postgres, scenario)
