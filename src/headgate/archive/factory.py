"""Opens the archive that the settings name, with the database that it is filled from."""

from __future__ import annotations

from contextlib import aclosing, asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.adapters.clock import wall_clock
from headgate.adapters.embedded import open_database
from headgate.adapters.object_store import open_object_store
from headgate.archive.archiver import ArchivePolicy, Archiver, Progress
from headgate.archive.retention import Retention
from headgate.errors import ArchiveError, InvalidSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from datetime import datetime

    from headgate.adapters.object_store import ObjectStore
    from headgate.archive.event_archive import EventArchive
    from headgate.archive.event_query import EventQuery
    from headgate.archive.event_table import EventTable
    from headgate.core.units import Micros
    from headgate.settings import Settings

_SECONDS: Final = 24 * 3_600.0  # asyncpg has no "as long as it takes"


class OpenedArchive(NamedTuple):
    """The archive, the events table, and the archiver between them."""

    archiver: Archiver
    events: EventTable
    archive: EventArchive


def archive_store(settings: Settings) -> ObjectStore:
    """The object store of archives and backups."""
    return open_object_store(settings.archive_url or str(settings.data_dir / "archive"), settings.s3_endpoint)


def event_archive(settings: Settings) -> EventArchive:
    """The archived events."""
    try:
        from headgate.archive.event_archive import EventArchive  # noqa: PLC0415 (an extra)
    except ModuleNotFoundError as error:
        msg = f"the archive needs {error.name}, which is not installed: pip install 'headgate[archive]'"
        raise InvalidSettings(msg) from error
    return EventArchive(archive_store(settings), f"headgate {version('headgate')}")


@asynccontextmanager
async def open_archive(settings: Settings, clock: Callable[[], Micros] | None = None) -> AsyncIterator[OpenedArchive]:
    """The archive and the database that it is filled from. `clock`, if given, replaces all clocks."""
    archive = event_archive(settings)
    url = settings.database_url
    if url is None and (settings.data_dir / "postgres").is_dir():
        url = "embedded://"
    if url is None:
        msg = "the archive is filled from the database; set HEADGATE_DATABASE_URL"
        raise InvalidSettings(msg)
    opened = open_database(url, settings.data_dir)
    from headgate.archive.event_table import EventTable  # noqa: PLC0415 (an extra, installed by now)

    retention = Retention(opened.database, clock or wall_clock)
    events = EventTable(opened.another(_SECONDS), (lambda: retention.now) if clock else None)
    bounds = ArchivePolicy(settings.archive_days, settings.archive_years)
    try:
        await opened.start()
        archive = archive.of_database(await events.origin())
        yield OpenedArchive(Archiver(events, archive, retention, bounds), events, archive)
    finally:
        await opened.close()


@asynccontextmanager
async def open_query(
    settings: Settings, since: datetime, before: datetime, progress: Progress
) -> AsyncIterator[EventQuery]:
    """SQL queries over all events of a span, archived or not."""
    async with open_archive(settings) as opened:
        try:
            from headgate.archive.event_query import EventQuery  # noqa: PLC0415 (an extra)
        except ModuleNotFoundError as error:
            msg = f"archive queries need {error.name}, which is not installed: pip install 'headgate[archive]'"
            raise InvalidSettings(msg) from error
        with TemporaryDirectory(prefix="headgate-query-") as folder:
            query = EventQuery(opened.archive, Path(folder), since, before)
            # First the database, then the archive: an event that is moved meanwhile is seen twice and counted once.
            async with opened.events.reading(since, before) as reading:
                progress.begin("reading the database", reading.number)
                async with aclosing(reading.blocks()) as blocks:
                    await query.add_warm(blocks, progress.advance)
            await query.open()
            try:
                yield query
            except ArchiveError:
                for part in await opened.archive.parts():  # names the damaged file
                    await opened.archive.check(part)
                raise
            finally:
                query.close()
