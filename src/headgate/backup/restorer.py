"""Restores a backup in one transaction."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from headgate.adapters.postgres import known
from headgate.backup import manifest as manifests
from headgate.backup.manifest import EVENTS
from headgate.backup.streams import read_stream
from headgate.backup.table_copies import CONFIGURATION, KEPT_BEFORE, NEVER_EMPTY, kept_tables, writing
from headgate.errors import ArchiveError, Conflict, InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.adapters.object_store import ObjectStore
    from headgate.adapters.postgres import Database
    from headgate.adapters.redis import CounterCopies
    from headgate.adapters.redis.counter_copies import Restored
    from headgate.backup.manifest import File, Manifest
    from headgate.backup.table_copies import TableWriter

    Progress = Callable[[int, int], None]


class Outcome(NamedTuple):
    """What was restored."""

    rows: int
    migrated: bool
    """Whether the backup had an older schema."""
    lineage: str
    """The new lineage that starts with it."""


def check_version(manifest: Manifest) -> None:
    """Raise `ArchiveError` for a backup with a newer schema than this program."""
    newest = known()[-1].number
    if manifest.schema > newest:
        msg = (
            f"the backup {manifest.name} has schema {manifest.schema}, and this headgate knows {newest}; "
            f"install headgate {manifest.headgate} or newer"
        )
        raise ArchiveError(msg)
    if unknown := {file.holds for file in manifest.tables} - KEPT_BEFORE.union(kept_tables()):
        msg = f"the backup {manifest.name} has a table {min(unknown)}, which this headgate does not know"
        raise ArchiveError(msg)


async def origin_of(database: Database) -> str | None:
    """The id of a database; None if it has no data."""
    async with writing(database) as writer:
        has_one = await writer.schema() >= next(step.number for step in known() if step.name == "origin")
        return await writer.origin() if has_one and await _in_use(writer) else None


async def in_use(database: Database) -> bool:
    """Whether a database has data that a restore would delete."""
    async with writing(database) as writer:
        return await _in_use(writer)


async def restore(
    database: Database, store: ObjectStore, manifest: Manifest, progress: Progress, *, replace: bool = False
) -> Outcome:
    """Restore a verified backup into the database.

    Without `replace`, the database must have no data. Raises `Conflict` if the state of the database forbids it.
    If anything fails, the database is unchanged.
    """
    check_version(manifest)
    async with writing(database) as writer:
        await _clear(writer, manifest, replace=replace)
        if manifest.events is not None:
            await writer.make_partitions(*map(datetime.fromisoformat, manifest.events))
        rows = await _load(writer, store, manifest, progress)
        lineage = await writer.finish()
    return Outcome(rows, manifest.schema < known()[-1].number, lineage)


async def restore_counters(
    counters: CounterCopies, store: ObjectStore, manifest: Manifest, file: File, progress: Progress
) -> Restored:
    """Restore the counters of a backup into Redis, except those that exist."""
    source = read_stream(
        store, f"{manifests.folder_of(manifest.name)}/{file.name}", file, _byte_counter(progress, file.text)
    )
    return await counters.write(source)


async def _clear(writer: TableWriter, manifest: Manifest, *, replace: bool) -> None:
    schema = await writer.schema()
    if schema != 0 and not replace and await _in_use(writer):
        msg = "the database already has data; --replace replaces it by the backup"
        raise Conflict(msg)
    held = [table for table in kept_tables() if table in {file.holds for file in manifest.tables}]
    if schema != manifest.schema:
        if schema != 0 and EVENTS not in held and await writer.in_use([EVENTS]):
            msg = (
                f"the backup {manifest.name} has schema {manifest.schema} and the database has {schema}, with "
                "events that are not in the backup and would be lost; restore into an empty database"
            )
            raise Conflict(msg)
        await writer.rebuild(manifest.schema)
    # Tables that are not in the backup keep their rows: events, if it was made without them.
    configuration = [table for table in held if table in CONFIGURATION]
    await writer.clear(configuration, [table for table in held if table not in CONFIGURATION])


async def _in_use(writer: TableWriter) -> bool:
    if await writer.schema() == 0:
        return False
    return bool(await writer.in_use([table for table in kept_tables() if table not in NEVER_EMPTY]))


async def _load(writer: TableWriter, store: ObjectStore, manifest: Manifest, progress: Progress) -> int:
    total = 0
    files = {file.holds: file for file in manifest.tables if file.holds not in KEPT_BEFORE}
    count_bytes = _byte_counter(progress, sum(file.text for file in files.values()))
    for table in [table for table in kept_tables() if table in files]:
        file = files[table]
        await writer.check_columns(table, file.columns)
        source = read_stream(store, f"{manifests.folder_of(manifest.name)}/{file.name}", file, count_bytes)
        try:
            count = await writer.load(table, file.columns, source)
        except (InvalidRequest, Conflict) as error:  # rows that no backup of headgate has
            msg = f"the backup {manifest.name} cannot be restored: {table}: {error}"
            raise ArchiveError(msg) from error
        if count != file.count:
            msg = f"the backup {manifest.name} is damaged: {table} has {count} rows instead of {file.count}"
            raise ArchiveError(msg)
        total += count
    return total


def _byte_counter(progress: Progress, total: int) -> Callable[[int], None]:
    done = 0

    def read(size: int) -> None:
        nonlocal done
        done += size
        progress(done, total)

    return read
