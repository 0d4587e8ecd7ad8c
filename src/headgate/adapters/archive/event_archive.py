"""Events in Parquet files, with a manifest for each part of a month.

    events/2026-05/1/0001.parquet, 0002.parquet, …, manifest.json

See `headgate.controlplane.archive_ports.EventArchive`. Work on files is done in threads.
"""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from contextlib import aclosing
from hashlib import sha256
from typing import IO, TYPE_CHECKING, Final

import pyarrow as pa
from pyarrow import parquet as pq

from headgate.adapters.archive.event_columns import COLUMNS, Digest, from_csv, to_csv
from headgate.adapters.archive.parquet_writing import EventWriter
from headgate.adapters.archive.places import chunks_of
from headgate.core.archive_part import Part, part_folder, part_of
from headgate.errors import ArchiveError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
    from datetime import datetime

    from headgate.adapters.archive.places import Place
    from headgate.core.archive_part import Month, PartFile

_ALL: Final = "events"
_MANIFEST: Final = "manifest.json"
_MANIFESTS: Final = re.compile(r"(events/[0-9]{4}-[0-9]{2}/[0-9]+)/manifest\.json")
_READ_AT_ONCE: Final = 2**15


class EventArchive:
    """Events at one place."""

    def __init__(self, place: Place, written_by: str) -> None:
        """`written_by` is the name of this program and its version."""
        self.place = place
        self.url = place.url
        self._written_by = written_by

    async def parts(self) -> list[Part]:
        """All parts that are complete."""
        return await asyncio.to_thread(self._parts)

    async def write(
        self, month: Month, number: int, blocks: AsyncIterator[bytes], at: datetime, progress: Callable[[int], None]
    ) -> Part | None:
        """Write files and read them back."""
        writer = EventWriter(self.place, part_folder(month, number))
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
        """Write the manifest."""
        text = json.dumps(part.as_data(), indent=2).encode()
        await asyncio.to_thread(self.place.write, f"{part.folder}/{_MANIFEST}", text)

    async def check(self, part: Part) -> None:
        """Read all of it."""
        await asyncio.to_thread(self._check, part)

    async def keys(self, part: Part) -> AsyncGenerator[bytes]:
        """Time and id of all its events."""
        async with aclosing(self._tables(part, ["at", "id"])) as tables:
            async for table in tables:
                yield await asyncio.to_thread(to_csv, table)

    async def blocks(self, part: Part) -> AsyncGenerator[bytes]:
        """All its events."""
        async with aclosing(self._tables(part)) as tables:
            async for table in tables:
                yield await asyncio.to_thread(to_csv, table)

    async def digest(self, blocks: AsyncIterator[bytes]) -> tuple[int, str]:
        """How many events there are, and their digest."""
        digest = Digest()
        async for block in blocks:
            digest.add(await asyncio.to_thread(from_csv, block))
        return digest.rows, digest.hexdigest()

    async def delete(self, part: Part) -> None:
        """Take a part away; without its manifest it is none, so that goes first."""
        for name in (_MANIFEST, *(file.name for file in part.files)):
            await asyncio.to_thread(self.place.delete, f"{part.folder}/{name}")

    async def tidy(self) -> None:
        """Take files away that belong to no part."""
        await asyncio.to_thread(self._tidy)

    def _parts(self) -> list[Part]:
        found = []
        for name in self.place.names(_ALL):
            if folder := _MANIFESTS.fullmatch(name):
                try:
                    data = json.loads(self.place.read(name))
                except (ValueError, RecursionError):
                    data = None
                try:
                    found.append(part_of(data, folder[1]))
                except ArchiveError as error:
                    msg = f"{self.url}: {error}"
                    raise ArchiveError(msg) from error
        return sorted(found, key=lambda part: (part.month, part.number))

    def _check(self, part: Part) -> None:
        digest = Digest()
        for file in part.files:
            with self._fetched(part, file) as content:
                rows = digest.rows
                for table in self._tables_in(content, part, file):
                    digest.add(table)
            if digest.rows - rows != file.rows:
                msg = f"{self._path(part, file)} is damaged: it has other events than its manifest says"
                raise ArchiveError(msg)
        if digest.hexdigest() != part.digest:
            msg = f"{self.url}/{part.folder} is damaged: it has other events than its manifest says"
            raise ArchiveError(msg)

    async def _tables(self, part: Part, columns: list[str] | None = None) -> AsyncGenerator[pa.Table]:
        for file in part.files:
            with await asyncio.to_thread(self._fetched, part, file) as content:
                tables = self._tables_in(content, part, file, columns)
                while (table := await asyncio.to_thread(next, tables, None)) is not None:
                    yield table

    def _fetched(self, part: Part, file: PartFile) -> IO[bytes]:
        """A copy of a file that is what its manifest says; it goes when it is closed."""
        path = self._path(part, file)
        hashed, size = sha256(), 0
        content = tempfile.TemporaryFile()  # noqa: SIM115 (whoever asks closes it)
        try:
            with self.place.open_input(f"{part.folder}/{file.name}") as source:
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
            msg = f"{path} is damaged: it is not the file that its manifest was written for"
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
        self.place.tidy(_ALL)
        parts = {name.removesuffix(_MANIFEST) for name in self.place.names(_ALL) if _MANIFESTS.fullmatch(name)}
        for name in self.place.names(_ALL):
            if name.rpartition("/")[0] + "/" not in parts:
                self.place.delete(name)

    def _path(self, part: Part, file: PartFile) -> str:
        return f"{self.url}/{part.folder}/{file.name}"
