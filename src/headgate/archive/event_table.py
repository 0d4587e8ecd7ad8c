"""The events in PostgreSQL by month, read and written as CSV: `COPY` is the fastest way in and out."""

from __future__ import annotations

import asyncio
import re
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

from headgate.adapters.postgres.connection import Statements, statements
from headgate.adapters.postgres.faults import translated
from headgate.archive.part import EVENT_COLUMNS, EventMark, Month
from headgate.errors import Conflict, DatabaseError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
    from datetime import datetime

    import asyncpg
    from asyncpg.pool import PoolConnectionProxy

    from headgate.adapters.postgres.database import Database

_ARCHIVING: Final = 0x61726368  # "arch": the advisory lock
_PARTITION: Final = re.compile(r"events_([0-9]{4})_([0-9]{2})")
_BLOCK: Final = 8 * 2**20
_BLOCKS_AHEAD: Final = 2
_TRIES: Final = 5
_SECONDS_TO_TIDY: Final = 5.0
# No timeouts, whatever the role has: this takes as long as it takes. No nested loops: two large sets are joined, and
# the server may not have analyzed them yet and believe that they are small.
_BEGIN: Final = """
BEGIN ISOLATION LEVEL {level};
SET LOCAL statement_timeout = 0;
SET LOCAL lock_timeout = '{wait}';
SET LOCAL idle_in_transaction_session_timeout = 0;
SET LOCAL enable_nestloop = off"""
_LOCK: Final = "SELECT pg_try_advisory_xact_lock($1)"


class EventReading:
    """The events of a time span in one database snapshot."""

    def __init__(
        self, connection: PoolConnectionProxy[asyncpg.Record], statement: str, span: tuple[datetime, datetime]
    ) -> None:
        """`connection` is in a transaction that sees one snapshot."""
        self._connection = connection
        self._statement = statement
        self._span = span
        self.mark: EventMark
        """Of all events of the span."""
        self.number: int
        """Of the events that `blocks` returns."""

    def blocks(self) -> AsyncGenerator[bytes]:
        """The events by time and id, as CSV in the archive's columns: whole lines, some megabytes at a time."""
        return _copied(self._connection, self._statement, *self._span)


class EventRestore:
    """Events that are restored in one transaction: all of them or none."""

    def __init__(self, connection: PoolConnectionProxy[asyncpg.Record], month: Month) -> None:
        """`connection` is in a transaction with a temporary table for them."""
        self._connection = connection
        self._month = month

    async def put(self, blocks: AsyncIterator[bytes]) -> int:
        """Store the events that do not exist yet, from CSV as of `EventArchive.blocks`; returns how many."""
        named = Statements(self._connection)
        await named.run("archive.empty_returned")
        with translated():
            await self._connection.copy_to_table("returned_events", source=blocks, columns=EVENT_COLUMNS, format="csv")
        row = await named.row("archive.put_back")
        return 0 if row is None else int(row["number"])

    def stored(self) -> AsyncGenerator[bytes]:
        """All events of the last `put` as they are stored now; CSV as of `EventReading.blocks`."""
        return _copied(self._connection, "archive.returned_rows", self._month.start, self._month.end)


class EventTable:
    """Events in the database, by month. Raises as `headgate.ports.Statements` does."""

    def __init__(self, database: Database, clock: Callable[[], datetime] | None = None) -> None:
        """Calls of `database` may take hours; `clock`, if given, replaces that of its server."""
        self._database = database
        self._clock = clock

    async def times(self) -> tuple[datetime, datetime]:
        """The time of the server's clock, and of the newest event or change."""
        row = await self._database.row("archive.times")
        assert row is not None  # noqa: S101 (it has no FROM)
        return row["now"] if self._clock is None else self._clock(), row["newest"]

    async def origin(self) -> str:
        """The id of this database."""
        row = await self._database.row("archive.origin")
        assert row is not None  # noqa: S101 (it always has one)
        return str(row["id"])

    async def months(self) -> Mapping[Month, int]:
        """The months that have a partition, with its size in bytes; partitions made by hand are ignored."""
        found = {}
        for row in await self._database.rows("archive.partitions"):
            name = _PARTITION.fullmatch(row["name"])
            if name is not None:
                found[Month(int(name[1]), int(name[2]))] = int(row["size"])
        return found

    async def mark(self, month: Month) -> EventMark:
        """Identifies the events that a month has now."""
        return await _mark(self._database, month.start, month.end)

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        """Hold the archive lock (`Conflict` if another process has it); yields a check that raises if it was lost.

        The lock belongs to a transaction, so that it works through PgBouncer.
        """
        async with self._database.use() as connection:
            with translated():
                await connection.execute(_BEGIN.format(level="READ COMMITTED", wait="1s"))
                is_ours = await connection.fetchval(_LOCK, _ARCHIVING)
            if not is_ours:
                msg = "another process is archiving or restoring events; try again when it has finished"
                raise Conflict(msg)

            async def still_held() -> None:
                with translated():
                    await connection.fetchval("SELECT 1")

            try:
                yield still_held
            finally:
                # Not in the background, as the pool does it: the next caller would find the lock taken.
                with suppress(DatabaseError), translated():
                    await connection.execute("ROLLBACK", timeout=_SECONDS_TO_TIDY)

    @asynccontextmanager
    async def reading(
        self, since: datetime, before: datetime, known: AsyncIterator[bytes] | None = None
    ) -> AsyncIterator[EventReading]:
        """Read a span in one snapshot, without the events whose keys are `known` (CSV of time and id)."""
        async with self._database.use() as connection:
            named = Statements(connection)
            with translated():
                await connection.execute(_BEGIN.format(level="REPEATABLE READ", wait="60s"))
                if known is not None:
                    await connection.execute(statements()["archive.make_known"])
                    await connection.copy_to_table("archived_keys", source=known, format="csv")
            statement = "archive.rows" if known is None else "archive.unknown_rows"
            reading = EventReading(connection, statement, (since, before))
            reading.mark = await _mark(named, since, before)
            reading.number = reading.mark.number
            if known is not None:
                row = await named.row("archive.unknown_number", since, before)
                reading.number = 0 if row is None else int(row["number"])
            yield reading

    @asynccontextmanager
    async def restoring(self, month: Month, until: datetime) -> AsyncIterator[EventRestore]:
        """Restore events of a month, to stay until then, in one transaction."""
        async with self._database.use() as connection:
            named = Statements(connection)
            with translated():
                await connection.execute(_BEGIN.format(level="READ COMMITTED", wait="60s"))
            await named.row("retention.make_partition", month.start)
            await named.run("archive.make_returned")
            yield EventRestore(connection, month)
            await named.run("archive.keep", month.start.date(), until)
            with translated():
                await connection.execute("COMMIT")

    async def drop(self, month: Month, mark: EventMark) -> bool:
        """Drop a month if it still has exactly the events of the mark; returns whether it did.

        It waits for readers of the table only briefly, because all later ones queue behind it; then it gives up
        the lock and retries.
        """
        for attempt in range(_TRIES):
            try:
                return await self._drop(month, mark)
            except DatabaseError as error:
                if not error.transient or attempt == _TRIES - 1:
                    raise
                await asyncio.sleep(attempt)
        raise AssertionError  # the last try has returned or raised

    async def _drop(self, month: Month, mark: EventMark) -> bool:
        async with self._database.use() as connection:
            with translated():
                await connection.execute(_BEGIN.format(level="READ COMMITTED", wait="2s"))
            row = await Statements(connection).row("archive.drop", month.start, mark.number, mark.mark)
            with translated():
                await connection.execute("COMMIT")
        return row is not None and bool(row["is_done"])


async def _mark(named: Statements | Database, since: datetime, before: datetime) -> EventMark:
    row = await named.row("archive.mark", since, before)
    assert row is not None  # noqa: S101 (it counts)
    return EventMark(row["number"], row["mark"])


async def _copied(
    connection: PoolConnectionProxy[asyncpg.Record], statement: str, *arguments: object
) -> AsyncGenerator[bytes]:
    """The result of a statement as CSV; it is fetched ahead while the caller works on the last block.

    PostgreSQL sends one message per line, and asyncpg passes on whole messages, so no line is ever cut.
    """
    blocks: asyncio.Queue[bytes] = asyncio.Queue(_BLOCKS_AHEAD)
    gathered: list[bytes] = []
    size = 0

    async def take(data: bytes) -> None:
        nonlocal size
        gathered.append(data)
        size += len(data)
        if size >= _BLOCK:
            block = b"".join(gathered)
            gathered.clear()
            size = 0
            await blocks.put(block)

    async def copy() -> None:
        with translated():
            await connection.copy_from_query(statements()[statement].rstrip(";"), *arguments, output=take, format="csv")
        if gathered:
            await blocks.put(b"".join(gathered))
        await blocks.put(b"")

    copying = asyncio.create_task(copy())
    next_block = None
    try:
        while True:
            next_block = asyncio.ensure_future(blocks.get())
            await asyncio.wait({next_block, copying}, return_when=asyncio.FIRST_COMPLETED)
            if not next_block.done() and copying.done():
                copying.result()
            block = await next_block
            if not block:
                return
            yield block
    finally:
        for task in (next_block, copying):
            if task is not None:
                task.cancel()
        with suppress(asyncio.CancelledError, DatabaseError):
            await copying
