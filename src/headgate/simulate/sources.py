"""Where past requests come from: the events in the database, the archive, Parquet files, or a log file."""

from __future__ import annotations

from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from headgate.adapters.embedded import open_database
from headgate.adapters.object_store import FolderObjectStore
from headgate.archive.factory import event_archive, open_archive
from headgate.errors import ArchiveError, InvalidSettings, short_repr
from headgate.settings import complete
from headgate.simulate.log_file import LogFile
from headgate.simulate.traffic import COLUMNS, EventParser, Skipped

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping
    from typing import Any

    from headgate.adapters.object_store import ObjectStore
    from headgate.core.units import Micros
    from headgate.ports import Statements
    from headgate.settings import Settings
    from headgate.simulate.traffic import LoggedRequest, Span

EVENTS: Final = "events"
ARCHIVE: Final = "archive"
PAGE: Final = 10_000
_PARQUET: Final = ".parquet"
_SECONDS_FOR_A_PAGE: Final = 120.0
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_columns: Final = itemgetter(*COLUMNS)


class _Source(Protocol):
    """Progress and problems of a source."""

    skipped: Skipped
    has_whole_seconds: bool
    decided: int | None
    """How many requests there were, if that is counted apart from what is recorded."""

    @property
    def share(self) -> float:
        """The share that was read, from 0 to 1."""


class Traffic(NamedTuple):
    """Past requests, a page at a time, and their source."""

    source: _Source
    pages: AsyncIterator[list[LoggedRequest]]


@asynccontextmanager
async def open_traffic(
    settings: Settings, origin: str, span: Span, fields: Mapping[str, str] | None = None
) -> AsyncIterator[Traffic]:
    """The traffic in the events table, in the archive, or in a file or folder."""
    if origin == EVENTS:
        opened = open_database(complete(settings).database_url or "", settings.data_dir)
        try:
            events = StoredEvents(opened.another(_SECONDS_FOR_A_PAGE), span.start, span.until)
            yield Traffic(events, events.pages())
        finally:
            await opened.close()
        return
    source = _parquet(await _archived(settings), span) if origin == ARCHIVE else _files(origin, span, fields)
    yield Traffic(source, _pages(source.pages()))


class StoredEvents:
    """The events of a time span in the database, a page at a time."""

    def __init__(self, database: Statements, since: Micros, until: Micros) -> None:
        """The first query is made by `pages`."""
        self._database = database
        self._since = since
        self._until = until
        self._reached = since
        self.skipped = Skipped()
        self.has_whole_seconds = False
        self.decided: int | None = None

    @property
    def share(self) -> float:
        """The share of the span that was read."""
        return (self._reached - self._since) / max(1, self._until - self._since)

    async def pages(self) -> AsyncIterator[list[LoggedRequest]]:
        """All requests by time; at equal times, in the order in which their process decided them."""
        parser = EventParser()
        # Whole minutes of the span: no more than there were, so a replay of everything never looks like a sample.
        counted = await self._database.row("events.counted", _time(self._since), _time(self._until))
        self.decided = None if counted is None else counted["total"]
        after, until = (_time(self._since), "", -1, ""), _time(self._until)
        while True:
            rows = await self._database.rows("events.replay", after[0], until, *after[1:], PAGE)
            events = (((row["at"] - _EPOCH) // _MICROSECOND, _columns(row)) for row in rows)
            yield parser.page(events, self.skipped)
            if len(rows) < PAGE:
                self._reached = self._until
                return
            last = rows[-1]
            after = last["at"], last["server"], last["sequence"], last["id"]
            self._reached = (last["at"] - _EPOCH) // _MICROSECOND


def _time(at: Micros) -> datetime:
    return _EPOCH + at * _MICROSECOND


async def _pages(pages: Iterator[list[LoggedRequest]]) -> AsyncIterator[list[LoggedRequest]]:
    for page in pages:
        yield page


def _files(origin: str, span: Span, fields: Mapping[str, str] | None) -> Any:  # noqa: ANN401 (one of two, of which one is in an extra)
    path = Path(origin)
    if path.is_dir():
        return _parquet(_in_folder(path), span)
    if not path.exists():
        msg = f"there is no {short_repr(origin)}; write 'events', 'archive', a log file, or a folder of Parquet files"
        raise InvalidSettings(msg)
    if path.suffix == _PARQUET:
        return _parquet([(FolderObjectStore(path.parent), path.name)], span)
    return LogFile(path, fields)


async def _archived(settings: Settings) -> list[tuple[ObjectStore, str]]:
    """The files of the archive; if it holds those of several databases, only those of the configured one."""
    archive = event_archive(settings)
    parts, faults = await archive.found()
    if len({part.origin[:8] for part in parts} | {folder.tag for folder, _ in faults}) > 1:
        async with open_archive(settings) as opened:
            parts = await opened.archive.parts()
    elif faults:
        raise ArchiveError(faults[0][1])
    return [(archive.store, f"{part.folder}/{file.name}") for part in parts for file in part.files]


def _in_folder(folder: Path) -> list[tuple[ObjectStore, str]]:
    """All Parquet files in a folder and below."""
    store = FolderObjectStore(folder)
    return [(store, name) for name in store.names() if name.endswith(_PARQUET)]


def _parquet(files: list[tuple[ObjectStore, str]], span: Span) -> Any:  # noqa: ANN401 (the class is in an extra)
    try:
        from headgate.simulate.parquet_events import ParquetEvents  # noqa: PLC0415 (an extra)
    except ModuleNotFoundError as error:
        msg = "Parquet files need pyarrow, which is not installed: pip install 'headgate[archive]'"
        raise InvalidSettings(msg) from error
    if not files:
        msg = "there is nothing to replay: the folder or archive has no Parquet file"
        raise InvalidSettings(msg)
    return ParquetEvents([store.arrow(name) for store, name in files], span.start, span.until)
