"""Ordered migrations: ``sql/migrations/0001_….sql``, each carried out once, in a transaction of its own."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.adapters.postgres.faults import translated
from headgate.errors import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import asyncpg
    from asyncpg.pool import PoolConnectionProxy

    from headgate.adapters.postgres.database import Database

_MIGRATING: Final = 0x6D696772  # "migr": the advisory lock; a transaction's own, so that PgBouncer lets it go too
_TABLE: Final = """
CREATE TABLE IF NOT EXISTS migrations (
    number integer     PRIMARY KEY,
    name   text        NOT NULL,
    digest bytea       NOT NULL,
    at     timestamptz NOT NULL DEFAULT now()
)"""


class Migration(NamedTuple):
    """One step from one schema to the next."""

    number: int
    name: str
    sql: str

    @property
    def digest(self) -> bytes:
        """What tells one text of it from another."""
        return hashlib.sha256(self.sql.encode()).digest()


@cache
def known() -> Sequence[Migration]:
    """All migrations there are, in order."""
    found = []
    for file in files(__package__).joinpath("sql", "migrations").iterdir():
        number, _, name = file.name.removesuffix(".sql").partition("_")
        found.append(Migration(int(number), name, file.read_text(encoding="utf-8")))
    return tuple(sorted(found))


async def pending(database: Database) -> list[Migration]:
    """What has not been carried out yet. Raises `DatabaseError` if the database is ahead of this program."""
    async with database.use() as connection:
        return await _pending(connection)


async def migrate(database: Database, done: Callable[[Migration], None] = lambda _: None) -> list[Migration]:
    """Bring the schema up to date; several processes may try at once. `done` is told of each step."""
    carried_out: list[Migration] = []
    async with database.use() as connection:
        while True:
            with translated():
                async with connection.transaction():
                    await connection.execute("SELECT pg_advisory_xact_lock($1)", _MIGRATING)
                    await connection.execute(_TABLE)
                    left = await _pending(connection)
                    if not left:
                        return carried_out
                    step = left[0]
                    await connection.execute(step.sql, timeout=None)
                    await connection.execute(
                        "INSERT INTO migrations (number, name, digest) VALUES ($1, $2, $3)",
                        step.number,
                        step.name,
                        step.digest,
                    )
            carried_out.append(step)
            done(step)


async def _pending(connection: PoolConnectionProxy[asyncpg.Record]) -> list[Migration]:
    with translated():
        if await connection.fetchval("SELECT to_regclass('migrations')") is None:
            return list(known())
        done = {row["number"]: row["digest"] for row in await connection.fetch("SELECT number, digest FROM migrations")}
    unknown = sorted(set(done) - {step.number for step in known()})
    if unknown:
        msg = f"the database has migration {unknown[0]}, which this headgate does not know; install a newer one"
        raise DatabaseError(msg, transient=False)
    for step in known():
        if step.number in done and done[step.number] != step.digest:
            msg = f"migration {step.number} was carried out with another text than this headgate has"
            raise DatabaseError(msg, transient=False)
    return [step for step in known() if step.number not in done]
