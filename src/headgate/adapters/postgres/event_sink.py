"""Events into PostgreSQL: a batch is one transaction, with its id in it, so that nothing is stored twice.

A batch is copied as it is. Only where the database refuses that, partitions are made, each row is cleaned,
and what is still refused is found by cutting the batch in halves: nothing else is lost for it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import asyncpg

from headgate.adapters.postgres.event_rows import COLUMNS, copied
from headgate.core.units import DAY
from headgate.errors import Conflict, DatabaseError, InvalidRequest, SinkError
from headgate.ports import SinkResult

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headgate.adapters.postgres.connection import Statements
    from headgate.adapters.postgres.database import Database
    from headgate.core.event import Event, EventBatch
    from headgate.core.units import Micros

    Row: TypeAlias = tuple[Any, ...]

_USER, _IP, _EXTRA, _STATUS = (COLUMNS.index(name) for name in ("user_id", "ip", "extra", "status"))
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_REFUSALS: Final = (InvalidRequest, Conflict)
_MAX_BIGINT: Final = 2**63 - 1
_MAX_INTEGER: Final = 2**31 - 1
_MAX_USER: Final = 1_000
"""In bytes; an index takes no more than 2,700."""
_DAYS_KEPT: Final = 30
"""How long the ids of batches are remembered. A process that is dead for longer may send its last batch twice."""


class PostgresEvents:
    """See `headgate.ports.EventSink`."""

    name = "postgres"

    def __init__(self, database: Database, clock: Callable[[], Micros]) -> None:
        """Only this sink uses the database object; the code that opened it closes it."""
        self._database = database
        self._clock = clock
        self._forgot = 0

    async def store(self, batch: EventBatch) -> SinkResult:
        """Store a batch; nothing of it, if its id was stored before."""
        try:
            await self._forget()
            try:
                refused = await self._store(batch, in_parts=False)
            except _REFUSALS:
                await self._make_partitions(batch.events)
                refused = await self._store(batch, in_parts=True)
        except DatabaseError as error:
            raise SinkError(str(error)) from error
        return SinkResult(len(batch.events) - refused, refused)

    async def close(self) -> None:
        """Nothing: see `__init__`."""

    async def _store(self, batch: EventBatch, *, in_parts: bool) -> int:
        """How many rows were refused; without parts that is an error, and nothing is stored."""
        async with self._database.transaction() as writing:
            if await writing.row("batches.add", batch.id) is None:
                return 0
            if in_parts:
                return await _copy_in_parts(writing, [_cleaned(_row(event, batch)) for event in batch.events])
            await writing.copy_bytes("events", COLUMNS, copied(batch))
            return 0

    async def _make_partitions(self, events: Sequence[Event]) -> None:
        days = {event.at // DAY for event in events if isinstance(event.at, int)}
        months = {(time.year, time.month): time for day in days if (time := _time(day * DAY)) is not None}
        for time in months.values():
            try:
                await self._database.row("batches.make_partition", time)
            except DatabaseError as error:
                if not isinstance(error.__cause__, asyncpg.DuplicateTableError):  # another process has just made it
                    raise

    async def _forget(self) -> None:
        """Once a day, forget ids of batches."""
        today = self._clock() // DAY
        if today > self._forgot:
            await self._database.rows("batches.forget", _DAYS_KEPT)
            self._forgot = today


async def _copy_in_parts(writing: Statements, rows: Sequence[Row]) -> int:
    """Copy all that is taken; returns how many are not."""
    if not rows:
        return 0
    await writing.run("batches.try_part")
    try:
        await writing.copy("events", COLUMNS, rows)
    except _REFUSALS:
        await writing.run("batches.take_back_part")
        if len(rows) == 1:
            return 1
        half = len(rows) // 2
        return await _copy_in_parts(writing, rows[:half]) + await _copy_in_parts(writing, rows[half:])
    await writing.run("batches.keep_part")
    return 0


def _row(event: Event, batch: EventBatch) -> Row:
    at, *rest = event
    return (_time(at), *rest, batch.region, batch.server)


def _time(at: Micros) -> datetime | None:
    try:
        return _EPOCH + timedelta(microseconds=at)
    except (OverflowError, TypeError):
        return None


def _cleaned(row: Row) -> Row:
    """A row that can be stored, as far as that is possible; what has no place in its column moves to `extra`."""
    cells = [_clean(cell) for cell in row]
    user, ip = cells[_USER], cells[_IP]
    if isinstance(user, str) and len(user.encode()) > _MAX_USER:
        cells[_USER], cells[_EXTRA] = None, {**(cells[_EXTRA] or {}), "user": user}
    if ip is not None:
        try:
            cells[_IP] = str(ip_address(str(ip).partition("%")[0]))
        except ValueError:
            cells[_IP], cells[_EXTRA] = None, {**(cells[_EXTRA] or {}), "ip": ip}
    if isinstance(cells[_STATUS], int):
        cells[_STATUS] = min(_MAX_INTEGER, cells[_STATUS])
    return tuple(cells)


def _clean(value: Any) -> Any:  # noqa: ANN401 (any value of an event)
    """The same without what PostgreSQL has no form for."""
    match value:
        case str():
            return value.replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()
        case bool():
            return value
        case int():
            return max(-_MAX_BIGINT - 1, min(_MAX_BIGINT, value))
        case dict():
            return {_clean(name): _clean(each) for name, each in value.items()}
        case list() | tuple():
            return [_clean(each) for each in value]
    return value
