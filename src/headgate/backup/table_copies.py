"""Whole tables, out of the database and into it, in PostgreSQL's text form of COPY.

Reading happens in one transaction that sees one moment, whatever changes meanwhile. Writing happens in one
transaction, so that the database is either restored or unchanged.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.adapters.postgres.connection import statements
from headgate.adapters.postgres.database import CHANGES
from headgate.adapters.postgres.faults import outcome_is_unknown, translated
from headgate.adapters.postgres.migrations import (
    MIGRATING,
    applied_on,
    apply_on,
    known,
    pending,
    tables,
    undo_on,
)
from headgate.errors import Conflict, DatabaseError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
    from datetime import datetime

    import asyncpg
    from asyncpg.pool import PoolConnectionProxy

    from headgate.adapters.postgres.database import Database

_EXCLUDED: Final = frozenset({"idempotency", "jobs", "processes"})
"""Idempotent responses of the last day, which hold secrets of new keys; when daily jobs are due, since a daily backup
is made while its own job runs, which restored would look cut off; and the running processes."""
KEPT_BEFORE: Final = frozenset({"jobs"})
"""Backups made before these tables were excluded have them; a restore leaves them out."""
CONFIGURATION: Final = frozenset(
    [
        *("tiers", "rules", "users", "overrides", "api_keys", "blocks", "tokens"),
        *("changes", "lineage", "rule_versions", "snapshots"),
    ]
)
"""Deciding processes read these tables, and must not wait for a restore."""
NEVER_EMPTY: Final = frozenset({"lineage", "origin"})
"""These tables have a row even in an unused database."""


def kept_tables() -> Sequence[str]:
    """All tables of a backup, in the order of their references. The migrations are in the schema number instead."""
    return [table for table in tables() if table not in _EXCLUDED]


_SECONDS: Final = 7 * 86_400.0  # asyncpg has no "as long as it takes"
_NO_LIMITS: Final = """
SET LOCAL statement_timeout = 0;
SET LOCAL idle_in_transaction_session_timeout = 0;
SET LOCAL timezone = 'UTC';
SET LOCAL datestyle = 'ISO, YMD';
SET LOCAL intervalstyle = 'postgres';
SET LOCAL extra_float_digits = 3;
SET LOCAL bytea_output = 'hex';
SET LOCAL lock_timeout = '9s';"""
_BEGIN_READING: Final = f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;{_NO_LIMITS}"
# No change and no migration runs during a restore.
_BEGIN_WRITING: Final = f"""
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;{_NO_LIMITS}
SELECT pg_advisory_xact_lock({MIGRATING});
SELECT pg_advisory_xact_lock({CHANGES})"""


class Moment(NamedTuple):
    """The state of a database besides its tables."""

    at: datetime
    server: str
    """The version of PostgreSQL."""
    schema: int
    """The number of the newest applied migration."""
    lineage: str
    origin: str
    change: int
    """The number of the newest change."""


class TableReader:
    """Reads the tables of a database as of one moment."""

    def __init__(self, connection: PoolConnectionProxy[asyncpg.Record]) -> None:
        """`connection` is in a transaction for the lifetime of this object."""
        self._connection = connection

    async def moment(self) -> Moment:
        """The state at this moment."""
        done = await applied_on(self._connection)
        with translated():
            row = await self._connection.fetchrow(statements()["backup.moment"])
        assert row is not None  # noqa: S101 (it has no FROM)
        return Moment(row["at"], row["server"], max(done), row["lineage"], row["origin"], row["change"])

    async def events(self) -> tuple[datetime, datetime] | None:
        """The times of the first and the last event; None if there are none."""
        with translated():
            row = await self._connection.fetchrow(statements()["backup.span"])
        return None if row is None or row["first"] is None else (row["first"], row["last"])

    async def columns(self, table: str) -> Sequence[str]:
        """The columns of a table, without generated ones."""
        with translated():
            rows = await self._connection.fetch(statements()["backup.columns"], table)
        return [row["name"] for row in rows]

    async def estimate(self, tables: Sequence[str]) -> int:
        """The estimated number of rows in some tables."""
        with translated():
            rows: int = await self._connection.fetchval(statements()["backup.estimate"], list(tables))
        return rows

    async def copy(self, table: str, columns: Sequence[str], sink: Callable[[bytes], Coroutine[Any, Any, None]]) -> int:
        """Pass all rows of a table to `sink` in chunks; returns their number."""
        with translated():
            done = await self._connection.copy_from_query(
                f"SELECT {_listed(columns)} FROM {_quoted(table)}",  # noqa: S608 (names from the catalogue)
                output=sink,
                timeout=_SECONDS,
            )
        return _count(done)


@asynccontextmanager
async def reading(database: Database, tables: Sequence[str]) -> AsyncIterator[TableReader]:
    """Some tables at one moment. They cannot be dropped meanwhile; all else continues.

    Raises `DatabaseError` if the schema is not up to date.
    """
    left = await pending(database)
    if left:
        msg = f"the database lacks {len(left)} of {len(known())} migrations; run 'headgate db migrate' first"
        raise DatabaseError(msg, transient=False)
    async with database.use() as connection:
        with translated():
            await connection.execute(_BEGIN_READING)
            # Before the first read, which takes the snapshot.
            await connection.execute(f"LOCK TABLE {_listed(tables)} IN ACCESS SHARE MODE")
        yield TableReader(connection)
        with translated():
            await connection.execute("ROLLBACK")


class TableWriter:
    """Replaces the tables of a database."""

    def __init__(self, connection: PoolConnectionProxy[asyncpg.Record]) -> None:
        """`connection` is in a transaction for the lifetime of this object."""
        self._connection = connection

    async def schema(self) -> int:
        """The number of the newest applied migration; 0 without a schema."""
        return max(await applied_on(self._connection), default=0)

    async def origin(self) -> str:
        """The id of this database."""
        with translated():
            origin: str = await self._connection.fetchval(statements()["backup.origin"])
        return origin

    async def in_use(self, tables: Sequence[str]) -> Sequence[str]:
        """The tables among these that have rows."""
        found = []
        for table in tables:
            with translated():
                if await self._connection.fetchval(f"SELECT EXISTS (SELECT FROM {_quoted(table)})"):  # noqa: S608 (ours)
                    found.append(table)
        return found

    async def clear(self, read_by_all: Sequence[str], others: Sequence[str]) -> None:
        """Empty tables; readers of those in `read_by_all` are not blocked."""
        with translated():
            if others:
                # All at once and first, so that a writer to several of them cannot deadlock with this.
                await self._connection.execute(f"LOCK TABLE {_listed(others)} IN ACCESS EXCLUSIVE MODE")
            for table in reversed(read_by_all):
                await self._connection.execute(f"DELETE FROM {_quoted(table)}", timeout=_SECONDS)  # noqa: S608 (ours)
            if others:
                await self._connection.execute(f"TRUNCATE {_listed(others)}", timeout=_SECONDS)

    async def rebuild(self, schema: int) -> None:
        """Drop everything of headgate, and create the schema as of that migration."""
        await undo_on(self._connection)
        await apply_on(self._connection, schema)

    async def check_columns(self, table: str, columns: Sequence[str]) -> None:
        """Raise `Conflict` unless a table has all these columns."""
        with translated():
            rows = await self._connection.fetch(statements()["backup.columns"], table)
        missing = set(columns) - {row["name"] for row in rows}
        if missing:
            msg = f"the backup has a column {min(missing)} in {table}, which this headgate does not know"
            raise Conflict(msg)

    async def make_partitions(self, first: datetime, last: datetime) -> None:
        """Make partitions for events from the first to the last."""
        with translated():
            await self._connection.execute(statements()["backup.partitions"], first, last)

    async def load(self, table: str, columns: Sequence[str], source: AsyncIterator[bytes]) -> int:
        """Load rows into a table; returns their number."""
        with translated():
            done = await self._connection.copy_to_table(table, source=source, columns=list(columns), timeout=_SECONDS)
        return _count(done)

    async def finish(self) -> str:
        """Migrate the schema, reset the sequence of changes, and start a new lineage, which is returned."""
        with translated():
            lineage: str = await self._connection.fetchval(statements()["backup.lineage"])
            highest: int = await self._connection.fetchval(statements()["backup.highest"])
            sequence: str = await self._connection.fetchval(statements()["backup.sequence"])
            # Unlike setval, this is rolled back with the transaction.
            await self._connection.execute(f"ALTER SEQUENCE {sequence} RESTART WITH {highest + 1}")
        await apply_on(self._connection, known()[-1].number)
        return lineage


@asynccontextmanager
async def writing(database: Database) -> AsyncIterator[TableWriter]:
    """One transaction that replaces tables. It commits if the block succeeds, and else rolls back."""
    async with database.use() as connection:
        with translated():
            await connection.execute(_BEGIN_WRITING)
        yield TableWriter(connection)
        try:
            with translated():
                done = await connection.execute("COMMIT", timeout=_SECONDS)
        except DatabaseError as error:
            if not outcome_is_unknown(error):
                raise
            msg = f"{error}, and it is unknown whether the backup was restored; restore it again with --replace"
            raise DatabaseError(msg, transient=True, perhaps_done=True) from error
        if done != "COMMIT":
            msg = "nothing was restored: PostgreSQL rolled it back after an error, which is in its log"
            raise DatabaseError(msg, transient=False)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(_quoted, names))


def _count(done: str) -> int:
    """The number in ``COPY 42``."""
    return int(done.rpartition(" ")[2])
