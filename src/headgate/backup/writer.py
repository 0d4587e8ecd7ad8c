"""Making a backup."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from dataclasses import replace
from datetime import UTC
from typing import TYPE_CHECKING

from headgate.backup import manifest as manifests
from headgate.backup.manifest import COUNTERS, EVENTS, File, Manifest
from headgate.backup.streams import keep
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


async def make(
    database: Database,
    store: ObjectStore,
    counters: CounterCopies | None,
    progress: Progress,
    *,
    version: str,
    with_events: bool = True,
) -> Manifest:
    """Copy the database as it is at one moment, and the counters if there are to be any, to a place.

    `progress` is told of rows, and about how many there are; `version` is this headgate's. A backup that fails
    leaves nothing behind; one that is killed leaves files without a manifest, which nobody takes for a backup.
    """
    tables = [table for table in kept_tables() if with_events or table != EVENTS]
    async with reading(database, tables) as reader:
        moment = await reader.moment()
        making = _Making(store, _name(moment.at), progress, await reader.estimate(tables))
        try:
            span = await reader.events() if with_events else None
            for table in tables:
                await making.table(reader, table)
            if counters is not None:
                await making.counters(counters)
            made = Manifest(
                name=making.name,
                at=_written(moment.at),
                headgate=version,
                postgres=moment.server,
                schema=moment.schema,
                lineage=moment.lineage,
                origin=moment.origin,
                change=moment.change,
                events=None if span is None else (_written(span[0]), _written(span[1])),
                files=tuple(making.files),
            )
            await making.finish(made)
        except BaseException:
            making.give_up()
            raise
    return made


class _Making:
    """The files of one backup, one after another."""

    def __init__(self, store: ObjectStore, name: str, progress: Progress, about: int) -> None:
        self.name = name
        self.files: list[File] = []
        self._store = store
        self._folder = manifests.folder_of(name)
        self._progress = progress
        self._about = about
        self._seen = 0

    async def table(self, reader: TableReader, table: str) -> None:
        columns = await reader.columns(table)

        async def produce(sink: Sink) -> int:
            async def counting(piece: bytes) -> None:
                self._seen += piece.count(b"\n")
                self._progress(self._seen, max(self._seen, self._about))
                await sink(piece)

            return await reader.copy(table, columns, counting)

        await self._keep(table, tuple(columns), produce)

    async def counters(self, counters: CounterCopies) -> None:
        await self._keep(COUNTERS, (), counters.read)

    async def _keep(self, holds: str, columns: tuple[str, ...], produce: Callable[[Sink], Awaitable[int]]) -> None:
        file = File(holds, columns, 0, 0, 0, "")
        kept = await keep(self._store, f"{self._folder}/{file.name}", produce)
        self.files.append(replace(file, count=kept.things, text=kept.text, **kept.file._asdict()))

    async def finish(self, manifest: Manifest) -> None:
        """Write the manifest, which makes it a backup."""
        content = manifests.written(manifest)
        await asyncio.to_thread(self._store.write, f"{self._folder}/{manifests.NAME}", content)

    def give_up(self) -> None:
        """Leave nothing behind."""
        for file in self.files:
            with suppress(ArchiveError):
                self._store.delete(f"{self._folder}/{file.name}")


def _name(at: datetime) -> str:
    """A name that sorts by time, and that two backups of one second do not share."""
    return f"{at.astimezone(UTC):%Y-%m-%dT%H%M%SZ}-{secrets.token_hex(2)}"


def _written(at: datetime) -> str:
    return at.astimezone(UTC).isoformat()
