"""Events as Parquet files of a bounded size: schema, CSV from and to the database, digest, and writer.

Memory use does not grow with the size of a month.
"""

from __future__ import annotations

import tempfile
from hashlib import sha256
from io import BytesIO
from typing import IO, TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow import compute, csv
from pyarrow import parquet as pq

from headgate.adapters.object_store import chunks_of
from headgate.archive.part import EVENT_COLUMNS, PartFile
from headgate.errors import ArchiveError

if TYPE_CHECKING:
    from datetime import datetime

    from headgate.adapters.object_store import ObjectStore

_INSTANT: Final = pa.timestamp("us", "UTC")
_NUMBERS: Final = {"sequence", "count", "limit", "cost"}
_FRACTIONS: Final = {"retry_after", "latency"}


def _type_of(name: str) -> pa.DataType:
    if name in _NUMBERS:
        return pa.int64()
    if name in _FRACTIONS:
        return pa.float64()
    return {"at": _INSTANT, "status": pa.int32()}.get(name, pa.string())


SCHEMA: Final = pa.schema([pa.field(name, _type_of(name), nullable=name not in {"at", "id"}) for name in EVENT_COLUMNS])
COLUMNS: Final = tuple((field.name, str(field.type)) for field in SCHEMA)

_READ: Final = csv.ReadOptions(column_names=list(EVENT_COLUMNS), use_threads=False, block_size=2**26)
_PARSE: Final = csv.ParseOptions(newlines_in_values=True)
# An empty cell is null; "" in quotes is an empty text.
_CONVERT: Final = csv.ConvertOptions(
    column_types={field.name: pa.int64() if field.name == "at" else field.type for field in SCHEMA},
    null_values=[""],
    strings_can_be_null=True,
    quoted_strings_can_be_null=False,
    check_utf8=True,
)
_WRITE: Final = csv.WriteOptions(include_header=False, quoting_style="all_valid")


def from_csv(block: bytes) -> pa.Table:
    """A table from CSV of the database; its times are in microseconds."""
    try:
        table = csv.read_csv(BytesIO(block), _READ, _PARSE, _CONVERT)
    except (pa.ArrowException, OSError) as error:
        msg = f"the CSV from the database cannot be read: {error}"
        raise ArchiveError(msg) from error
    return table.set_column(0, SCHEMA.field(0), table.column(0).cast(_INSTANT)).cast(SCHEMA)


def to_csv(table: pa.Table) -> bytes:
    """CSV for the database from a table; times are ISO 8601 texts."""
    sink = pa.BufferOutputStream()
    csv.write_csv(table, sink, _WRITE)
    return sink.getvalue().to_pybytes()


class Digest:
    """The SHA-256 of events in order, independent of blocks and file format.

    Two streams of each column are hashed: per event, 4 bytes with the length of a text, or −1 for null (for
    numbers: 1 byte, whether it is null); and the texts in UTF-8, or the numbers in 4 or 8 bytes, 0 for null. Numbers
    are little-endian. The result is the digest of all these digests, in the order of the columns.
    """

    def __init__(self) -> None:
        """Start empty."""
        self.rows = 0
        self._streams = [(sha256(), sha256()) for _ in SCHEMA]

    def add(self, table: pa.Table) -> None:
        """Add these events."""
        self.rows += table.num_rows
        for column, (shapes, values) in zip(table.columns, self._streams, strict=True):
            for chunk in column.chunks:
                for stream, data in zip((shapes, values), _streams_of(chunk), strict=True):
                    stream.update(data)

    def hexdigest(self) -> str:
        """The digest of all added events."""
        return sha256(b"".join(one.digest() for pair in self._streams for one in pair)).hexdigest()


# pyarrow's compute functions have no types.
def _streams_of(array: Any) -> tuple[pa.Buffer, pa.Buffer]:  # noqa: ANN401 (see above)
    """The two streams of a chunk of a column."""
    if pa.types.is_string(array.type):
        texts: Any = compute.fill_null(array, "")
        return _numbers(compute.fill_null(compute.binary_length(array), -1)), _letters(texts)
    plain: Any = array.cast(pa.int64()) if pa.types.is_timestamp(array.type) else array
    return _numbers(compute.is_null(array).cast(pa.uint8())), _numbers(compute.fill_null(plain, 0))


def _numbers(array: Any) -> pa.Buffer:  # noqa: ANN401 (see above)
    """The bytes of the numbers of an array without nulls."""
    width = array.type.bit_width // 8
    numbers: pa.Buffer = array.buffers()[1][array.offset * width : (array.offset + len(array)) * width]
    return numbers


def _letters(array: Any) -> pa.Buffer:  # noqa: ANN401 (see above)
    """The bytes of the texts of an array without nulls."""
    _, starts, letters = array.buffers()
    if letters is None or not len(array):
        return pa.py_buffer(b"")
    offsets = memoryview(starts).cast("i")
    start, end = offsets[array.offset], offsets[array.offset + len(array)]
    found: pa.Buffer = letters[start:end]
    return found


_GROUP: Final = 2**17
_GROUPS: Final = 8
# Times and sequences increase, so differences are small; ids are random and unique.
_ENCODINGS: Final = {"at": "DELTA_BINARY_PACKED", "sequence": "DELTA_BINARY_PACKED", "id": "PLAIN"}
_OPTIONS: Final[dict[str, Any]] = {
    "compression": "zstd",
    "compression_level": 3,
    "use_dictionary": [name for name in SCHEMA.names if name not in _ENCODINGS],
    "column_encoding": _ENCODINGS,
    "write_statistics": True,
    "write_page_checksum": True,
    "sorting_columns": [pq.SortingColumn(0)],
}


class EventWriter:
    """Writes one part. Its methods block."""

    def __init__(self, store: ObjectStore, folder: str, group: int = _GROUP, groups: int = _GROUPS) -> None:
        """Write into a folder of a store: `group` events per row group, `groups` row groups per file."""
        self.digest = Digest()
        self._store = store
        self._folder = folder
        self._group = group
        self._groups = groups
        self._waiting: list[pa.Table] = []
        self._files: list[PartFile] = []
        self._spool: IO[bytes] | None = None
        self._writer: pq.ParquetWriter | None = None
        self._written = 0
        self._first: datetime | None = None
        self._last: datetime | None = None

    def add(self, block: bytes) -> None:
        """Add events, as CSV."""
        table = from_csv(block)
        self.digest.add(table)
        self._waiting.append(table)
        while sum(each.num_rows for each in self._waiting) >= self._group:
            waiting = pa.concat_tables(self._waiting)
            self._write(waiting.slice(0, self._group))
            self._waiting = [waiting.slice(self._group)]

    def finish(self) -> list[PartFile]:
        """Write the remaining events; returns all files."""
        if rest := [table for table in self._waiting if table.num_rows]:
            self._write(pa.concat_tables(rest))
        self._waiting = []
        self._end_file()
        return self._files

    def close(self) -> None:
        """Discard what is unfinished."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
        spool, self._spool = self._spool, None
        if spool is not None:
            spool.close()

    def _write(self, table: pa.Table) -> None:
        try:
            if self._writer is None:
                self._spool = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the file)
                self._writer = pq.ParquetWriter(self._spool, SCHEMA, **_OPTIONS)
                self._first, self._written = table["at"][0].as_py(), 0
            self._writer.write_table(table, row_group_size=self._group)
        except OSError as error:
            msg = f"the temporary folder cannot be written: {error.strerror or error}"
            raise ArchiveError(msg) from error
        self._last = table["at"][-1].as_py()
        self._written += table.num_rows
        if self._written >= self._group * self._groups:
            self._end_file()

    def _end_file(self) -> None:
        if self._writer is None or self._spool is None or self._first is None or self._last is None:
            return
        try:
            self._writer.close()
            self._writer = None
            self._spool.seek(0)
        except OSError as error:
            msg = f"the temporary folder cannot be written: {error.strerror or error}"
            raise ArchiveError(msg) from error
        name = f"{len(self._files) + 1:04}.parquet"
        written = self._store.write(f"{self._folder}/{name}", chunks_of(self._spool))
        self._spool.close()
        self._spool = None
        self._files.append(PartFile(name, self._written, written.size, written.sha256, self._first, self._last))
