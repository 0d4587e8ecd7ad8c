"""The columns of archived events: CSV as the database writes and reads it, tables in memory, and their digest."""

from __future__ import annotations

from hashlib import sha256
from io import BytesIO
from typing import Any, Final

import pyarrow as pa
from pyarrow import compute, csv

from headgate.archive.part import EVENT_COLUMNS
from headgate.errors import ArchiveError

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
# Nothing is nothing, and "" is a text without letters.
_CONVERT: Final = csv.ConvertOptions(
    column_types={field.name: pa.int64() if field.name == "at" else field.type for field in SCHEMA},
    null_values=[""],
    strings_can_be_null=True,
    quoted_strings_can_be_null=False,
    check_utf8=True,
)
_WRITE: Final = csv.WriteOptions(include_header=False, quoting_style="all_valid")


def from_csv(block: bytes) -> pa.Table:
    """A table from CSV, in which the time is in microseconds."""
    try:
        table = csv.read_csv(BytesIO(block), _READ, _PARSE, _CONVERT)
    except (pa.ArrowException, OSError) as error:
        msg = f"what the database sent cannot be read: {error}"
        raise ArchiveError(msg) from error
    return table.set_column(0, SCHEMA.field(0), table.column(0).cast(_INSTANT)).cast(SCHEMA)


def to_csv(table: pa.Table) -> bytes:
    """CSV from a table, for the database; times are written out."""
    sink = pa.BufferOutputStream()
    csv.write_csv(table, sink, _WRITE)
    return sink.getvalue().to_pybytes()


class Digest:
    """The SHA-256 of events in their order, whatever they are cut into or written in.

    Of each column, two streams are hashed: for each event 4 bytes with the length of a text, or −1 where there
    is none (for numbers: 1 byte, whether there is none); and the texts in UTF-8, or the numbers in 4 or 8 bytes,
    0 where there is none. Numbers are little-endian. The digest is that of all these digests, in the order of
    columns.
    """

    def __init__(self) -> None:
        """Nothing yet."""
        self.rows = 0
        self._streams = [(sha256(), sha256()) for _ in SCHEMA]

    def add(self, table: pa.Table) -> None:
        """Go on with these events."""
        self.rows += table.num_rows
        for column, (shapes, values) in zip(table.columns, self._streams, strict=True):
            for chunk in column.chunks:
                for stream, data in zip((shapes, values), _streams_of(chunk), strict=True):
                    stream.update(data)

    def hexdigest(self) -> str:
        """The digest of all that was added."""
        return sha256(b"".join(one.digest() for pair in self._streams for one in pair)).hexdigest()


# The types of pyarrow's computations are known to it alone.
def _streams_of(array: Any) -> tuple[pa.Buffer, pa.Buffer]:  # noqa: ANN401 (see above)
    """What is hashed of a piece of a column."""
    if pa.types.is_string(array.type):
        texts: Any = compute.fill_null(array, "")
        return _numbers(compute.fill_null(compute.binary_length(array), -1)), _letters(texts)
    plain: Any = array.cast(pa.int64()) if pa.types.is_timestamp(array.type) else array
    return _numbers(compute.is_null(array).cast(pa.uint8())), _numbers(compute.fill_null(plain, 0))


def _numbers(array: Any) -> pa.Buffer:  # noqa: ANN401 (see above)
    """The numbers of an array that has one everywhere."""
    width = array.type.bit_width // 8
    numbers: pa.Buffer = array.buffers()[1][array.offset * width : (array.offset + len(array)) * width]
    return numbers


def _letters(array: Any) -> pa.Buffer:  # noqa: ANN401 (see above)
    """The letters of an array that has a text everywhere."""
    _, places, letters = array.buffers()
    if letters is None or not len(array):
        return pa.py_buffer(b"")
    offsets = memoryview(places).cast("i")
    start, end = offsets[array.offset], offsets[array.offset + len(array)]
    found: pa.Buffer = letters[start:end]
    return found
