"""The archive: Parquet files of events, with a manifest for each part of a month.

    events/2026-05/1-5f0c2a9e-9b1d44c0/0001.parquet, 0002.parquet, …, manifest.json

The digits are the start of the database's origin, and random: no two runs write to one folder, so several databases
can share one object store, even at the same time. Files are read and written in threads.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import tempfile
from contextlib import aclosing
from hashlib import sha256
from typing import IO, TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
from pyarrow import parquet as pq

from headgate.adapters.object_store import chunks_of
from headgate.archive.parquet import COLUMNS, Digest, EventWriter, from_csv, to_csv
from headgate.archive.part import Part, PartFolder, part_folder, part_of
from headgate.errors import ArchiveError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
    from datetime import datetime

    from headgate.adapters.object_store import ObjectStore
    from headgate.archive.part import Month, PartFile

_ALL: Final = "events"
_MANIFEST: Final = "manifest.json"
_READ_AT_ONCE: Final = 2**15
_RANDOM: Final = 4  # bytes


class Found(NamedTuple):
    """The content of an archive."""

    parts: list[Part]
    """Of all databases, by month and number."""
    faults: list[tuple[PartFolder, str]]
    """Parts with an unusable manifest, and why."""


class EventArchive:
    """Events in an object store. Raises `ArchiveError`, and nothing else."""

    def __init__(self, store: ObjectStore, written_by: str, origin: str = "") -> None:
        """`written_by` is the name of this program and its version.

        `origin` is the id of the database that the archive is filled from. Without it only `found` is of use.
        """
        self.store = store
        self.url = store.url
        self.origin = origin
        self._written_by = written_by

    def of_database(self, origin: str) -> EventArchive:
        """The same archive, as the database with this id fills it."""
        return EventArchive(self.store, self._written_by, origin)

    async def found(self) -> Found:
        """All complete parts, of all databases."""
        return await asyncio.to_thread(self._found)

    async def parts(self, month: Month | None = None) -> list[Part]:
        """All complete parts of this database, or those of a month, by month and number."""
        found = await self.found()
        for folder, sentence in found.faults:
            if folder.may_be_of(self.origin) and (month is None or folder.month == str(month)):
                raise ArchiveError(sentence)
        return [part for part in found.parts if part.origin in {"", self.origin} and month in {None, part.month}]

    async def write(
        self, month: Month, number: int, blocks: AsyncIterator[bytes], at: datetime, progress: Callable[[int], None]
    ) -> Part | None:
        """Write the files of a part and read them back; None if there are no events.

        `progress` gets the number of written events. The part counts only after `complete`.
        """
        folder = part_folder(month, number, self.origin, secrets.token_hex(_RANDOM))
        writer = EventWriter(self.store, folder)
        try:
            async for block in blocks:
                await asyncio.to_thread(writer.add, block)
                progress(writer.digest.rows)
            files = await asyncio.to_thread(writer.finish)
        finally:
            writer.close()
        if not files:
            return None
        digest = writer.digest.hexdigest()
        part = Part(
            month=month,
            number=number,
            folder=folder,
            origin=self.origin,
            rows=writer.digest.rows,
            first=files[0].first,
            last=files[-1].last,
            digest=digest,
            columns=COLUMNS,
            files=tuple(files),
            written_at=at,
            written_by=self._written_by,
        )
        await self.check(part)
        return part

    async def complete(self, part: Part) -> None:
        """Write the manifest, which makes the part count, and check that all of it exists."""
        await asyncio.to_thread(self._complete, part)

    async def check(self, part: Part) -> None:
        """Raise `ArchiveError` with the name of a damaged or missing file."""
        await asyncio.to_thread(self._check, part)

    async def keys(self, part: Part) -> AsyncGenerator[bytes]:
        """Time and id of all its events, as CSV; only from intact files."""
        async with aclosing(self._tables(part, ["at", "id"])) as tables:
            async for table in tables:
                yield await asyncio.to_thread(to_csv, table)

    async def blocks(self, part: Part) -> AsyncGenerator[bytes]:
        """All its events, as CSV; only from intact files."""
        async with aclosing(self._tables(part)) as tables:
            async for table in tables:
                yield await asyncio.to_thread(to_csv, table)

    async def digest(self, blocks: AsyncIterator[bytes]) -> tuple[int, str]:
        """The number of events in CSV as of `EventReading.blocks`, and the digest that a part of them has."""
        digest = Digest()
        async for block in blocks:
            digest.add(await asyncio.to_thread(from_csv, block))
        return digest.rows, digest.hexdigest()

    async def delete(self, part: Part) -> None:
        """Delete a part, its manifest first: without it the files are no part."""
        for name in (_MANIFEST, *(file.name for file in part.files)):
            await asyncio.to_thread(self.store.delete, f"{part.folder}/{name}")

    async def tidy(self) -> None:
        """Delete files of this database that belong to no part, left by killed runs."""
        await asyncio.to_thread(self._tidy)

    def _found(self) -> Found:
        parts, faults = [], []
        for name in self.store.names(_ALL):
            folder, _, file = name.rpartition("/")
            about = PartFolder.parse(folder)
            if about is not None and file == _MANIFEST:
                try:
                    parts.append(self._manifest(folder))
                except ArchiveError as error:
                    faults.append((about, str(error)))
        return Found(sorted(parts, key=lambda part: (part.month, part.number, part.folder)), faults)

    def _manifest(self, folder: str) -> Part:
        content = self.store.read(f"{folder}/{_MANIFEST}")
        try:
            data = json.loads(content)
        except (ValueError, RecursionError):
            data = None
        try:
            return part_of(data, folder)
        except ArchiveError as error:
            msg = f"{self.url}: {error}"
            raise ArchiveError(msg) from error

    def _complete(self, part: Part) -> None:
        text = json.dumps(part.as_data(), indent=2).encode()
        self.store.write(f"{part.folder}/{_MANIFEST}", text)
        sizes = [self.store.size(f"{part.folder}/{file.name}") for file in part.files]
        if self._manifest(part.folder) != part or sizes != [file.size for file in part.files]:
            msg = f"{self.url}/{part.folder} differs from what was written; nothing was dropped"
            raise ArchiveError(msg)

    def _check(self, part: Part) -> None:
        digest = Digest()
        for file in part.files:
            with self._fetched(part, file) as content:
                rows = digest.rows
                for table in self._tables_in(content, part, file):
                    digest.add(table)
            if digest.rows - rows != file.rows:
                msg = f"{self._path(part, file)} is damaged: its events differ from its manifest"
                raise ArchiveError(msg)
        if digest.hexdigest() != part.digest:
            msg = f"{self.url}/{part.folder} is damaged: its events differ from its manifest"
            raise ArchiveError(msg)

    async def _tables(self, part: Part, columns: list[str] | None = None) -> AsyncGenerator[pa.Table]:
        for file in part.files:
            with await asyncio.to_thread(self._fetched, part, file) as content:
                tables = self._tables_in(content, part, file, columns)
                while (table := await asyncio.to_thread(next, tables, None)) is not None:
                    yield table

    def _fetched(self, part: Part, file: PartFile) -> IO[bytes]:
        """A temporary copy of a file, checked against its manifest; closing deletes it."""
        path = self._path(part, file)
        hashed, size = sha256(), 0
        content = tempfile.TemporaryFile()  # noqa: SIM115 (the caller closes it)
        try:
            with self.store.open_input(f"{part.folder}/{file.name}") as source:
                for chunk in chunks_of(source):
                    content.write(chunk)
                    hashed.update(chunk)
                    size += len(chunk)
            content.seek(0)
        except (pa.ArrowException, OSError) as error:
            content.close()
            msg = f"{path} cannot be read: {getattr(error, 'strerror', None) or error}"
            raise ArchiveError(msg) from error
        except BaseException:
            content.close()
            raise
        if (size, hashed.hexdigest()) != (file.size, file.sha256):
            content.close()
            msg = f"{path} is damaged: it is not the file of its manifest"
            raise ArchiveError(msg)
        return content

    def _tables_in(
        self, content: IO[bytes], part: Part, file: PartFile, columns: list[str] | None = None
    ) -> Iterator[pa.Table]:
        try:
            read = pq.ParquetFile(content)
            for batch in read.iter_batches(_READ_AT_ONCE, columns=columns, use_threads=False):
                yield pa.Table.from_batches([batch])
        except (pa.ArrowException, OSError) as error:
            msg = f"{self._path(part, file)} cannot be read: {error}"
            raise ArchiveError(msg) from error

    def _tidy(self) -> None:
        self.store.tidy(_ALL, self._is_own)
        names = self.store.names(_ALL)
        parts = {name.rpartition("/")[0] for name in names if name.endswith(f"/{_MANIFEST}")}
        for name in names:
            folder = name.rpartition("/")[0]
            # Checked again: a copy of this database may be archived at the same time.
            if folder not in parts and self._is_own(name) and f"{folder}/{_MANIFEST}" not in self.store.names(folder):
                self.store.delete(name)

    def _is_own(self, name: str) -> bool:
        about = PartFolder.parse(name.rpartition("/")[0])
        return about is not None and about.may_be_of(self.origin)

    def _path(self, part: Part, file: PartFile) -> str:
        return f"{self.url}/{part.folder}/{file.name}"
