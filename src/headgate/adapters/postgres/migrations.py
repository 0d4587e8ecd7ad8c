"""Ordered migrations: ``sql/migrations/0001_….sql``, each applied once, in a transaction of its own."""

from __future__ import annotations

import hashlib
import logging
import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final, NamedTuple

import asyncpg

from headgate.adapters.postgres.faults import translated
from headgate.errors import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from asyncpg.pool import PoolConnectionProxy

    from headgate.adapters.postgres.database import Database

log = logging.getLogger("headgate")

BREAKING: Final = "breaking_"
"""How the name of a migration begins on whose schema the version before cannot run. It needs a stop of all services, so
there is none: what is to go is no longer used in one version, and taken away in the next."""
MIGRATING: Final = 0x6D696772  # "migr": the advisory lock; it ends with its transaction, also behind PgBouncer
_SECONDS: Final = 3600.0  # asyncpg has no "as long as it takes"
# In one trip. A role may have time limits that are right for everything but this.
_BEGIN: Final = f"""
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
SET LOCAL statement_timeout = 0;
SET LOCAL lock_timeout = 0;
SELECT pg_advisory_xact_lock({MIGRATING})"""
_TABLE: Final = """
CREATE TABLE migrations (
    number integer     PRIMARY KEY,
    name   text        NOT NULL,
    digest bytea       NOT NULL,
    at     timestamptz NOT NULL DEFAULT now()
)"""
# Not to_regclass, which may remember from before the lock that there was none.
_HAS_TABLE: Final = """
SELECT EXISTS (SELECT FROM pg_class WHERE relname = 'migrations' AND relkind = 'r' AND pg_table_is_visible(oid))"""
_MADE: Final = re.compile(r"^CREATE (?:OR REPLACE )?(TABLE|FUNCTION|AGGREGATE|PROCEDURE) (\w+)", re.MULTILINE)
_RECORD: Final = "INSERT INTO migrations (number, name, digest) VALUES ($1, $2, $3)"


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
        if not file.name.endswith(".sql"):
            continue
        number, _, name = file.name.removesuffix(".sql").partition("_")
        found.append(Migration(int(number), name, file.read_text(encoding="utf-8")))
    return tuple(sorted(found))


def tables() -> Sequence[str]:
    """The tables that migrations make, in their order: what a row refers to is in an earlier table, or its own."""
    made = [name for step in known() for kind, name in _MADE.findall(step.sql) if kind == "TABLE"]
    return list(dict.fromkeys(made))  # one that was made again is in its first place


async def pending(database: Database) -> list[Migration]:
    """Migrations that are not applied yet. Raises `DatabaseError` if this program cannot run on a newer schema."""
    async with database.use() as connection:
        done = await applied_on(connection, bears_newer=True)
    return [step for step in known() if step.number not in done]


async def applied(database: Database, *, bears_newer: bool = False) -> Mapping[int, datetime]:
    """When each migration was applied, by number. For `bears_newer` see `applied_on`."""
    async with database.use() as connection:
        return await applied_on(connection, bears_newer=bears_newer)


async def forbidden_tables(database: Database) -> list[str]:
    """Tables that the role of this connection may not read and write: it owns them, or needs grants."""
    return [row["name"] for row in await database.rows("inspection.forbidden", [*tables(), "migrations"])]


async def require_schema(database: Database) -> None:
    """Raise `DatabaseError` unless the schema is that of this version. Changes nothing."""
    done = await applied(database, bears_newer=True)
    missing = sum(step.number not in done for step in known())
    if not done:
        msg = "the database has no headgate schema; run 'headgate db migrate'"
        raise DatabaseError(msg, transient=False)
    if missing:
        behind = f"{missing} migration{'s' if missing > 1 else ''} behind"
        msg = f"the database schema is {behind} this headgate; run 'headgate db migrate'"
        raise DatabaseError(msg, transient=False)


async def migrate(database: Database, done: Callable[[Migration], None] = lambda _: None) -> list[Migration]:
    """Bring the schema up to date; several processes may try at once. `done` is called after each step.

    It takes as long as it takes: one that is up to date answers within the deadline of the database.
    """
    steps: list[Migration] = []
    while await pending(database):
        step = await _next_step(database)
        if step is not None:
            steps.append(step)
            done(step)
    return steps


async def _next_step(database: Database) -> Migration | None:
    """Apply the first step that is still missing once this process has the lock."""
    async with database.use() as connection:
        with translated():
            await connection.execute(_BEGIN, timeout=_SECONDS)
        done = await applied_on(connection, bears_newer=True)
        step = next((step for step in known() if step.number not in done), None)
        if step is not None:
            await _apply(connection, step)
        with translated():
            await connection.execute("COMMIT", timeout=_SECONDS)
        return step


async def _apply(connection: PoolConnectionProxy[asyncpg.Record], step: Migration) -> None:
    with translated():
        # Not IF NOT EXISTS, which looks only in the schema that new tables are made in.
        if not await _has_table(connection):
            await connection.execute(_TABLE)
        await connection.execute(step.sql, timeout=_SECONDS)
        await connection.execute(_RECORD, step.number, step.name, step.digest)


async def apply_on(connection: PoolConnectionProxy[asyncpg.Record], last: int) -> None:
    """Apply the missing migrations up to number `last`, in the transaction of this connection."""
    done = await applied_on(connection)
    for step in known():
        if step.number not in done and step.number <= last:
            await _apply(connection, step)


async def undo_on(connection: PoolConnectionProxy[asyncpg.Record]) -> None:
    """Take away everything that migrations have ever made, in the transaction of this connection."""
    made = [found for step in known() for found in _MADE.findall(step.sql)]
    with translated():
        for table in [*tables(), "migrations"]:
            await connection.execute(f"DROP TABLE IF EXISTS {table} CASCADE", timeout=_SECONDS)
        for routine in [name for kind, name in made if kind != "TABLE"]:
            await connection.execute(f"DROP ROUTINE IF EXISTS {routine} CASCADE")


async def applied_on(
    connection: PoolConnectionProxy[asyncpg.Record], *, bears_newer: bool = False
) -> Mapping[int, datetime]:
    """`applied`, on an open connection.

    Raises `DatabaseError` if the database is ahead of this program; with `bears_newer`, only if it was changed in a way
    that this program cannot bear, as the name of the migration says.
    """
    with translated():
        if not await _has_table(connection):
            return {}
        try:
            rows = await connection.fetch("SELECT number, name, digest, at FROM migrations ORDER BY number")
        except asyncpg.UndefinedColumnError as error:
            msg = "the table 'migrations' in the database is not headgate's; give headgate a database of its own"
            raise DatabaseError(msg, transient=False) from error
    texts = {step.number: step.digest for step in known()}
    newest, done = max(texts), {}
    for row in rows:
        number, name = row["number"], row["name"]
        if number > newest and bears_newer and not name.startswith(BREAKING):
            _say_newer(number, name)
            continue
        if number not in texts:
            msg = f"the database has migration {number}, which this headgate does not know; install a newer one"
            raise DatabaseError(msg, transient=False)
        if row["digest"] != texts[number]:
            msg = (
                f"migration {number} in the database differs from this headgate's; install the version that applied it"
            )
            raise DatabaseError(msg, transient=False)
        done[number] = row["at"]
    return done


@cache
def _say_newer(number: int, name: str) -> None:
    """Once in a process for each migration."""
    log.warning(
        "database schema: migration %d (%s) is of a newer headgate; this process continues, upgrade it", number, name
    )


async def _has_table(connection: PoolConnectionProxy[asyncpg.Record]) -> bool:
    found: bool = await connection.fetchval(_HAS_TABLE)
    return found
