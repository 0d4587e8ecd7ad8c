"""SQL over all events, archived or still in the database, by DuckDB.

Files are read through pyarrow, which fetches only the columns and files that a query needs, from a folder or S3.
DuckDB is sandboxed: it cannot open files, change anything permanent, or load extensions.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import duckdb
import pyarrow as pa
from pyarrow import dataset as ds

from headgate.adapters.object_store import FolderObjectStore
from headgate.archive.parquet import SCHEMA, EventWriter
from headgate.archive.part import Month
from headgate.core.units import SECOND
from headgate.errors import ArchiveError, InvalidRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence
    from datetime import datetime
    from pathlib import Path

    from headgate.adapters.object_store import ObjectStore
    from headgate.archive.event_archive import EventArchive
    from headgate.archive.part import PartFile

_WARM: Final = "warm"
_FORMAT: Final = ds.ParquetFileFormat(
    default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True)
)
# Errors of the query itself. All others are faults of files.
_QUERY_ERRORS: Final = (
    duckdb.ParserException,
    duckdb.BinderException,
    duckdb.CatalogException,
    duckdb.ConversionException,
    duckdb.OutOfRangeException,
    duckdb.PermissionException,
    duckdb.SyntaxException,
)
_ALLOWED_STATEMENTS: Final = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)
# "at" is a keyword of DuckDB.
_NAMES: Final = ", ".join('"at" AS time' if name == "at" else f'"{name}"' for name in SCHEMA.names)


class EventQuery:
    """Queries over the events of a span: first `add_warm`, then `open`."""

    def __init__(self, archive: EventArchive, folder: Path, since: datetime, before: datetime) -> None:
        """`folder` holds temporary files."""
        self._archive = archive
        self._folder = folder
        self._span = since, before
        self._warm: list[PartFile] = []
        self._connection = duckdb.connect(":memory:")

    async def add_warm(self, blocks: AsyncIterator[bytes], progress: Callable[[int], None]) -> None:
        """Add the events of the database, as CSV; they go to files, so that memory is bounded."""
        writer = EventWriter(FolderObjectStore(self._folder), _WARM)
        try:
            async for block in blocks:
                await asyncio.to_thread(writer.add, block)
                progress(writer.digest.rows)
            self._warm = await asyncio.to_thread(writer.finish)
        finally:
            writer.close()

    async def open(self) -> None:
        """Prepare the view `events`."""
        parts = await self._archive.parts()
        since, before = self._span
        files = [
            (f"{part.folder}/{file.name}", file)
            for part in parts
            for file in part.files
            if file.last >= since and file.first < before
        ]
        warm = [(f"{_WARM}/{file.name}", file) for file in self._warm]
        connection = self._connection
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("archived", _dataset(self._archive.store, files))
        connection.register("recent", _dataset(FolderObjectStore(self._folder), warm))
        connection.execute(_view(self._span, _shared([file for _, file in files], self._warm)))
        temporary = str(self._folder / "spilled").replace("'", "''")
        connection.execute(f"SET temp_directory = '{temporary}'")
        connection.execute("SET python_enable_replacements = false")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")

    def run(self, sql: str) -> pa.RecordBatchReader:
        """The result of a query, batch by batch. Blocks; read it with `read`."""
        try:
            statements = self._connection.extract_statements(sql)
            if len(statements) != 1 or statements[0].type not in _ALLOWED_STATEMENTS:
                msg = "write one statement that starts with SELECT"
                raise InvalidRequest(msg)
            return pa.RecordBatchReader.from_stream(self._connection.sql(statements[0]))
        except duckdb.Error as error:
            raise _translated(error) from error

    def interrupt(self) -> None:
        """Interrupt the running query, from another thread: its reader gets `ArchiveError`."""
        self._connection.interrupt()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def read(result: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """The batches of a result. `InvalidRequest` if the query is wrong, `ArchiveError` if files fail."""
    try:
        yield from result
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        raise _translated(error) from error


def _translated(error: Exception) -> Exception:
    lines = [line.strip() for line in str(error).partition("LINE 1:")[0].splitlines()]
    text = " ".join(line for line in lines if line)
    if isinstance(error, _QUERY_ERRORS):
        return InvalidRequest(f"the query is rejected: {text}")
    return ArchiveError(f"the query failed: {text}")


def _dataset(store: ObjectStore, files: Sequence[tuple[str, PartFile]]) -> ds.Dataset:
    """Files with their time spans: files outside a query's span are not opened."""
    if not files:
        return ds.dataset(pa.table({field.name: pa.array([], field.type) for field in SCHEMA}, schema=SCHEMA))
    system, _ = store.arrow(files[0][0])
    return ds.FileSystemDataset.from_paths(
        [store.arrow(name)[1] for name, _ in files],
        schema=SCHEMA,
        format=_FORMAT,
        filesystem=system,
        partitions=[
            (ds.field("at") >= _instant(file.first)) & (ds.field("at") <= _instant(file.last)) for _, file in files
        ],
    )


def _instant(time: datetime) -> Any:  # noqa: ANN401 (pyarrow's)
    return pa.scalar(time, SCHEMA.field("at").type)


def _shared(archived: Sequence[PartFile], warm: Sequence[PartFile]) -> tuple[datetime, datetime] | None:
    """The span of months that are in both archive and database: restored, or not dropped yet."""
    both = _months(archived) & _months(warm)
    return (min(both).start, max(both).end) if both else None


def _months(files: Sequence[PartFile]) -> set[Month]:
    found: set[Month] = set()
    for file in files:
        month, last = _month_of(file.first), _month_of(file.last)
        while month <= last:
            found.add(month)
            month = month.later(1)
    return found


def _month_of(time: datetime) -> Month:
    return Month.of(int(time.timestamp()) * SECOND)


def _view(span: tuple[datetime, datetime], shared: tuple[datetime, datetime] | None) -> str:
    """The view `events`. An event in both archive and database appears once."""

    def within(bounds: tuple[datetime, datetime]) -> str:
        first, last = (time.isoformat() for time in bounds)
        return f"\"at\" >= TIMESTAMPTZ '{first}' AND \"at\" < TIMESTAMPTZ '{last}'"

    archived = f"SELECT {_NAMES} FROM archived WHERE {within(span)}"  # noqa: S608 (our own constants)
    view = f"CREATE VIEW events AS {archived} UNION ALL SELECT {_NAMES} FROM recent"  # noqa: S608 (as above)
    if shared is None:
        return view
    known = f'SELECT "at", id FROM archived WHERE {within(shared)}'  # noqa: S608 (as above)
    new = f'SELECT {_NAMES} FROM recent ANTI JOIN ({known}) USING ("at", id) WHERE {within(shared)}'  # noqa: S608 (as above)
    return f"{view} WHERE NOT ({within(shared)}) UNION ALL {new}"
