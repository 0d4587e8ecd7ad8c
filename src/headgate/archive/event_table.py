"""Events in PostgreSQL, month by month, read and written as CSV: `COPY` is the fastest way in and out.

See `headgate.archive.ports.EventTable`.
"""

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
# Whatever limits a role has: this takes as long as it takes. Where two large sets are compared, they are compared as
# a whole, also if the server has not counted them yet and takes them for small.
_BEGIN: Final = """
BEGIN ISOLATION LEVEL {level};
SET LOCAL statement_timeout = 0;
SET LOCAL lock_timeout = '{wait}';
SET LOCAL idle_in_transaction_session_timeout = 0;
SET LOCAL enable_nestloop = off"""
_LOCK: Final = "SELECT pg_try_advisory_xact_lock($1)"


class EventReading:
    """Events of a span in one snapshot."""

    def __init__(
        self, connection: PoolConnectionProxy[asyncpg.Record], statement: str, span: tuple[datetime, datetime]
    ) -> None:
        """`connection` is in a transaction that sees one snapshot."""
        self._connection = connection
        self._statement = statement
        self._span = span
        self.mark: EventMark
        self.number: int

    def blocks(self) -> AsyncGenerator[bytes]:
        """CSV, block by block."""
        return _copied(self._connection, self._statement, *self._span)


class EventReturn:
    """Events that come back, in one transaction."""

    def __init__(self, connection: PoolConnectionProxy[asyncpg.Record], month: Month) -> None:
        """`connection` is in a transaction that has a table for them."""
        self._connection = connection
        self._month = month

    async def put(self, blocks: AsyncIterator[bytes]) -> int:
        """Store those that are not there."""
        named = Statements(self._connection)
        await named.run("archive.empty_returned")
        with translated():
            await self._connection.copy_to_table("returned_events", source=blocks, columns=EVENT_COLUMNS, format="csv")
        row = await named.row("archive.put_back")
        return 0 if row is None else int(row["number"])

    def stored(self) -> AsyncGenerator[bytes]:
        """They, as they are stored now."""
        return _copied(self._connection, "archive.returned_rows", self._month.start, self._month.end)


class EventTable:
    """See `headgate.archive.ports.EventTable`."""

    def __init__(self, database: Database, clock: Callable[[], datetime] | None = None) -> None:
        """`database` has calls that may take hours; `clock`, if there is one, stands for that of its server."""
        self._database = database
        self._clock = clock

    async def times(self) -> tuple[datetime, datetime]:
        """When it is, and when something last happened."""
        row = await self._database.row("archive.times")
        assert row is not None  # noqa: S101 (it has no FROM)
        return row["now"] if self._clock is None else self._clock(), row["newest"]

    async def origin(self) -> str:
        """Which database this is."""
        row = await self._database.row("archive.origin")
        assert row is not None  # noqa: S101 (it always has one)
        return str(row["id"])

    async def months(self) -> Mapping[Month, int]:
        """The months that have a partition, and its size; a partition that somebody made by hand is left alone."""
        found = {}
        for row in await self._database.rows("archive.partitions"):
            name = _PARTITION.fullmatch(row["name"])
            if name is not None:
                found[Month(int(name[1]), int(name[2]))] = int(row["size"])
        return found

    async def mark(self, month: Month) -> EventMark:
        """Which events a month has now."""
        return await _mark(self._database, month.start, month.end)

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        """Let nobody else archive meanwhile. The lock is a transaction's own, so that PgBouncer lets it be."""
        async with self._database.use() as connection:
            with translated():
                await connection.execute(_BEGIN.format(level="READ COMMITTED", wait="1s"))
                is_ours = await connection.fetchval(_LOCK, _ARCHIVING)
            if not is_ours:
                msg = "events are being archived or brought back by somebody else; try again when that has ended"
                raise Conflict(msg)

            async def still_held() -> None:
                with translated():
                    await connection.fetchval("SELECT 1")

            try:
                yield still_held
            finally:
                # Not behind the caller's back, as the pool would: whoever comes next would find it taken.
                with suppress(DatabaseError), translated():
                    await connection.execute("ROLLBACK", timeout=_SECONDS_TO_TIDY)

    @asynccontextmanager
    async def reading(
        self, since: datetime, before: datetime, known: AsyncIterator[bytes] | None = None
    ) -> AsyncIterator[EventReading]:
        """Read a span as it is at one instant."""
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
    async def returning(self, month: Month, until: datetime) -> AsyncIterator[EventReturn]:
        """Bring events of a month back in one transaction."""
        async with self._database.use() as connection:
            named = Statements(connection)
            with translated():
                await connection.execute(_BEGIN.format(level="READ COMMITTED", wait="60s"))
            await named.row("retention.make_partition", month.start)
            await named.run("archive.make_returned")
            yield EventReturn(connection, month)
            await named.run("archive.keep", month.start.date(), until)
            with translated():
                await connection.execute("COMMIT")

    async def drop(self, month: Month, mark: EventMark) -> bool:
        """Take a month away.

        It waits for readers of the table only a moment, since everybody else waits behind it; then it
        lets go and tries again.
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
    """What a statement answers, as CSV, while whoever takes it works on the block before.

    PostgreSQL sends one message for each line, and asyncpg gives on whole messages, so no line is ever cut.
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
    taking = None
    try:
        while True:
            taking = asyncio.ensure_future(blocks.get())
            await asyncio.wait({taking, copying}, return_when=asyncio.FIRST_COMPLETED)
            if not taking.done() and copying.done():
                copying.result()
            block = await taking
            if not block:
                return
            yield block
    finally:
        for task in (taking, copying):
            if task is not None:
                task.cancel()
        with suppress(asyncio.CancelledError, DatabaseError):
            await copying
