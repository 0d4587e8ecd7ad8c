"""Events as they come, into Parquet files of a bounded size: what is in memory does not grow with a month."""

from __future__ import annotations

import tempfile
from typing import IO, TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow import parquet as pq

from headgate.adapters.object_store import chunks_of
from headgate.archive.event_columns import SCHEMA, Digest, from_csv
from headgate.archive.part import PartFile
from headgate.errors import ArchiveError

if TYPE_CHECKING:
    from datetime import datetime

    from headgate.adapters.object_store import ObjectStore

_GROUP: Final = 2**17
_GROUPS: Final = 8
# Times and sequences grow, so differences are small; ids are random, and no two are alike.
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
        """Write into a folder of a store: row groups of so many events, so many of them in each file."""
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
        """Go on with these events, as CSV."""
        table = from_csv(block)
        self.digest.add(table)
        self._waiting.append(table)
        while sum(each.num_rows for each in self._waiting) >= self._group:
            waiting = pa.concat_tables(self._waiting)
            self._write(waiting.slice(0, self._group))
            self._waiting = [waiting.slice(self._group)]

    def finish(self) -> list[PartFile]:
        """Write the rest; returns all files."""
        if rest := [table for table in self._waiting if table.num_rows]:
            self._write(pa.concat_tables(rest))
        self._waiting = []
        self._end_file()
        return self._files

    def close(self) -> None:
        """Let go of what is unfinished."""
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
            msg = f"the folder for temporary files cannot be written: {error.strerror or error}"
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
            msg = f"the folder for temporary files cannot be written: {error.strerror or error}"
            raise ArchiveError(msg) from error
        name = f"{len(self._files) + 1:04}.parquet"
        written = self._store.write(f"{self._folder}/{name}", chunks_of(self._spool))
        self._spool.close()
        self._spool = None
        self._files.append(PartFile(name, self._written, written.size, written.sha256, self._first, self._last))
