"""Creates a backup."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from dataclasses import replace
from datetime import UTC
from typing import TYPE_CHECKING

from headgate.backup import manifest as manifests
from headgate.backup.manifest import COUNTERS, EVENTS, File, Manifest
from headgate.backup.streams import write_stream
from headgate.backup.table_copies import kept_tables, reading
from headgate.errors import ArchiveError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from headgate.adapters.object_store import ObjectStore
    from headgate.adapters.postgres import Database
    from headgate.adapters.redis import CounterCopies
    from headgate.backup.streams import Sink
    from headgate.backup.table_copies import TableReader

    Progress = Callable[[int, int], None]


async def create(
    database: Database,
    store: ObjectStore,
    counters: CounterCopies | None,
    progress: Progress,
    *,
    version: str,
    with_events: bool = True,
) -> Manifest:
    """Copy the database as of one moment, and the counters if given, to an object store.

    `progress` gets the number of rows and the estimated total; `version` is that of this headgate. A failed backup
    leaves no files; a killed one leaves files without a manifest, which are not a backup.
    """
    tables = [table for table in kept_tables() if with_events or table != EVENTS]
    async with reading(database, tables) as reader:
        moment = await reader.moment()
        files = _BackupFiles(store, _name(moment.at), progress, await reader.estimate(tables))
        try:
            span = await reader.events() if with_events else None
            for table in tables:
                await files.table(reader, table)
            if counters is not None:
                await files.counters(counters)
            made = Manifest(
                name=files.name,
                at=_iso(moment.at),
                headgate=version,
                postgres=moment.server,
                schema=moment.schema,
                lineage=moment.lineage,
                origin=moment.origin,
                change=moment.change,
                events=None if span is None else (_iso(span[0]), _iso(span[1])),
                files=tuple(files.files),
            )
            await files.finish(made)
        except BaseException:
            files.discard()
            raise
    return made


class _BackupFiles:
    """Writes the files of one backup, one after another."""

    def __init__(self, store: ObjectStore, name: str, progress: Progress, estimate: int) -> None:
        self.name = name
        self.files: list[File] = []
        self._store = store
        self._folder = manifests.folder_of(name)
        self._progress = progress
        self._estimate = estimate
        self._seen = 0

    async def table(self, reader: TableReader, table: str) -> None:
        columns = await reader.columns(table)

        async def produce(sink: Sink) -> int:
            async def counting(piece: bytes) -> None:
                self._seen += piece.count(b"\n")
                self._progress(self._seen, max(self._seen, self._estimate))
                await sink(piece)

            return await reader.copy(table, columns, counting)

        await self._keep(table, tuple(columns), produce)

    async def counters(self, counters: CounterCopies) -> None:
        await self._keep(COUNTERS, (), counters.read)

    async def _keep(self, holds: str, columns: tuple[str, ...], produce: Callable[[Sink], Awaitable[int]]) -> None:
        file = File(holds, columns, 0, 0, 0, "")
        kept = await write_stream(self._store, f"{self._folder}/{file.name}", produce)
        self.files.append(replace(file, count=kept.items, text=kept.text, **kept.file._asdict()))

    async def finish(self, manifest: Manifest) -> None:
        """Write the manifest, which completes the backup, unless a file was deleted since it was written."""
        there = await asyncio.to_thread(self._store.names, self._folder)
        for file in self.files:
            if f"{self._folder}/{file.name}" not in there:
                msg = f"the backup {self.name} is not complete: {file.name} was deleted while others were written"
                raise ArchiveError(msg)
        content = manifests.encode(manifest)
        await asyncio.to_thread(self._store.write, f"{self._folder}/{manifests.NAME}", content)

    def discard(self) -> None:
        """Delete the files that were written."""
        for file in self.files:
            with suppress(ArchiveError):
                self._store.delete(f"{self._folder}/{file.name}")


def _name(at: datetime) -> str:
    """A name that sorts by time and differs for two backups of one second."""
    return f"{at.astimezone(UTC):%Y-%m-%dT%H%M%SZ}-{secrets.token_hex(2)}"


def _iso(at: datetime) -> str:
    return at.astimezone(UTC).isoformat()
