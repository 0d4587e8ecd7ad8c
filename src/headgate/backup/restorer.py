"""Restoring a backup: verified before anything is changed, then in one transaction."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from headgate.adapters.postgres import known
from headgate.backup import manifest as manifests
from headgate.backup.manifest import EVENTS
from headgate.backup.streams import taken
from headgate.backup.table_copies import LOOKED_UP, NEVER_EMPTY, kept_tables, writing
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
    """Whether the backup was of an older schema."""
    lineage: str
    """The one that begins with it."""


def check_version(manifest: Manifest) -> None:
    """Raise `ArchiveError` for a backup of a schema that is newer than this program."""
    newest = known()[-1].number
    if manifest.schema > newest:
        msg = (
            f"the backup {manifest.name} is of schema {manifest.schema}, and this headgate knows {newest}; "
            f"install headgate {manifest.headgate} or a newer one"
        )
        raise ArchiveError(msg)
    if unknown := {file.holds for file in manifest.tables} - set(kept_tables()):
        msg = f"the backup {manifest.name} has a table {min(unknown)}, which this headgate does not know"
        raise ArchiveError(msg)


async def origin_of(database: Database) -> str | None:
    """Which database it is; None if there is nothing in it, so that it is none yet."""
    async with writing(database) as writer:
        has_one = await writer.schema() >= next(step.number for step in known() if step.name == "origin")
        return await writer.origin() if has_one and await _in_use(writer) else None


async def in_use(database: Database) -> bool:
    """Whether there is something in a database that a restore would take away."""
    async with writing(database) as writer:
        return await _in_use(writer)


async def restore(
    database: Database, store: ObjectStore, manifest: Manifest, progress: Progress, *, replace: bool = False
) -> Outcome:
    """Make the database what it was when the backup was made; it was verified already.

    Without `replace` only a database in which there is nothing. Raises `Conflict` if it cannot be
    done as things stand. Whatever goes wrong, the database is as it was.
    """
    check_version(manifest)
    async with writing(database) as writer:
        await _make_room(writer, manifest, replace=replace)
        if manifest.events is not None:
            await writer.make_partitions(*map(datetime.fromisoformat, manifest.events))
        rows = await _load(writer, store, manifest, progress)
        lineage = await writer.finish()
    return Outcome(rows, manifest.schema < known()[-1].number, lineage)


async def restore_counters(
    counters: CounterCopies, store: ObjectStore, manifest: Manifest, file: File, progress: Progress
) -> Restored:
    """Put the counters of a backup back into Redis, except those that there are."""
    source = taken(store, f"{manifests.folder_of(manifest.name)}/{file.name}", file, _through(progress, file.text))
    return await counters.write(source)


async def _make_room(writer: TableWriter, manifest: Manifest, *, replace: bool) -> None:
    schema = await writer.schema()
    if schema != 0 and not replace and await _in_use(writer):
        msg = "there is something in the database already; --replace puts the backup in its place"
        raise Conflict(msg)
    held = [table for table in kept_tables() if table in {file.holds for file in manifest.tables}]
    if schema != manifest.schema:
        if schema != 0 and EVENTS not in held and await writer.in_use([EVENTS]):
            msg = (
                f"the backup {manifest.name} is of schema {manifest.schema}, the database of {schema}, and it has "
                "events that the backup has not, which would be lost; restore it into an empty database"
            )
            raise Conflict(msg)
        await writer.rebuild(manifest.schema)
    # What the backup does not have, stays: events, if it was made without them.
    looked_up = [table for table in held if table in LOOKED_UP]
    await writer.clear(looked_up, [table for table in held if table not in LOOKED_UP])


async def _in_use(writer: TableWriter) -> bool:
    if await writer.schema() == 0:
        return False
    return bool(await writer.in_use([table for table in kept_tables() if table not in NEVER_EMPTY]))


async def _load(writer: TableWriter, store: ObjectStore, manifest: Manifest, progress: Progress) -> int:
    total = 0
    through = _through(progress, sum(file.text for file in manifest.tables))
    files = {file.holds: file for file in manifest.tables}
    for table in [table for table in kept_tables() if table in files]:
        file = files[table]
        await writer.check_columns(table, file.columns)
        source = taken(store, f"{manifests.folder_of(manifest.name)}/{file.name}", file, through)
        try:
            count = await writer.load(table, file.columns, source)
        except (InvalidRequest, Conflict) as error:  # rows that no backup of ours has
            msg = f"the backup {manifest.name} cannot be restored, because of {table}: {error}"
            raise ArchiveError(msg) from error
        if count != file.count:
            msg = f"the backup {manifest.name} cannot be used: {table} had {file.count} rows, and has {count}"
            raise ArchiveError(msg)
        total += count
    return total


def _through(progress: Progress, total: int) -> Callable[[int], None]:
    done = 0

    def read(size: int) -> None:
        nonlocal done
        done += size
        progress(done, total)

    return read
