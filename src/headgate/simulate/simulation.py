"""What a simulation is put together from: rule sets on virtual time, and traffic from wherever it is."""

from __future__ import annotations

import gc
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from headgate.adapters import zones
from headgate.adapters.embedded import open_database
from headgate.adapters.memory import MemoryStore
from headgate.adapters.object_store import FolderObjectStore
from headgate.archive.factory import event_archive, open_archive
from headgate.core.meter import Calendars
from headgate.dataplane.bare_keys import BareKeys
from headgate.dataplane.limiter import Limiter
from headgate.dataplane.snapshots import Snapshots
from headgate.errors import ArchiveError, InvalidSettings, shown
from headgate.settings import complete
from headgate.simulate.log_file import LogFile
from headgate.simulate.replay import Replay, VirtualClock
from headgate.simulate.stored_events import StoredEvents
from headgate.simulate.trial import Trial, without_slots

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping
    from typing import Any

    from headgate.adapters.object_store import ObjectStore
    from headgate.core.rule import RuleSet
    from headgate.core.units import Micros
    from headgate.settings import Settings
    from headgate.simulate.traffic import Call, Skipped

EVENTS: Final = "events"
ARCHIVE: Final = "archive"
MOST_COUNTERS: Final = 5_000_000
"""Of each rule set at the same time."""
_PARQUET: Final = ".parquet"
_SECONDS_FOR_A_PAGE: Final = 120.0


class Span(NamedTuple):
    """Which traffic is meant."""

    start: Micros
    """What lies before it is left out."""
    since: Micros
    """What lies before it fills the counters and is not reported."""
    until: Micros


class _Source(Protocol):
    """Where calls come from."""

    skipped: Skipped
    has_whole_seconds: bool

    @property
    def share(self) -> float:
        """How much was read."""


class Traffic(NamedTuple):
    """Calls, a page at a time, and the source that they come from."""

    source: _Source
    pages: AsyncIterator[list[Call]]


class Simulation:
    """A draft, maybe beside other rules, on traffic that has been."""

    def __init__(
        self, draft: tuple[str, RuleSet], against: tuple[str, RuleSet] | None, span: Span, most: int = MOST_COUNTERS
    ) -> None:
        """Compile both; each has a limiter and counters of its own, and the same virtual clock."""
        self._span = span
        self.clock = VirtualClock()
        self._most = most
        self._stores: list[MemoryStore] = []
        self.replay = Replay(
            self.clock, self._trial(*draft), None if against is None else self._trial(*against), span.since
        )
        self.ran_full = False
        """Whether there was no room for a counter, so that some were shared."""

    async def run(self, traffic: Traffic, progress: Callable[[int, float], None]) -> Replay:
        """Decide everything; `progress` is told how many were decided and what share of the source was read."""
        start, _, until = self._span
        replay, read = self.replay, 0
        # Counters live long and know of no cycles. Looking for some again and again took 3 % more processor time with
        # few counters, and 8 % with 140,000 of them.
        collects = gc.isenabled()
        gc.disable()
        try:
            async for page in traffic.pages:
                replay.take([call for call in page if start <= call[0] < until])
                read += len(page)
                progress(read, traffic.source.share)
                self.ran_full |= any(len(store.table) >= self._most for store in self._stores)
        finally:
            if collects:
                gc.enable()
        return replay

    def _trial(self, name: str, rule_set: RuleSet) -> Trial:
        decided, slots = without_slots(rule_set)
        store = MemoryStore(self.clock, self._most)
        self._stores.append(store)
        snapshots = Snapshots(zones.zone, self.clock)
        snapshots.publish(decided)
        limiter = Limiter(store, snapshots, BareKeys(Calendars(zones.zone, self.clock)))
        assert limiter.check_now is not None  # noqa: S101 (the store is in this process)
        return Trial(name, decided, slots, limiter.check_now)


@asynccontextmanager
async def open_traffic(
    settings: Settings, origin: str, span: Span, fields: Mapping[str, str] | None = None
) -> AsyncIterator[Traffic]:
    """The traffic in the table of events, in the archive, or in a file or folder."""
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


async def _pages(pages: Iterator[list[Call]]) -> AsyncIterator[list[Call]]:
    for page in pages:
        yield page


def _files(origin: str, span: Span, fields: Mapping[str, str] | None) -> Any:  # noqa: ANN401 (one of two, of which one is in an extra)
    path = Path(origin)
    if path.is_dir():
        return _parquet(_in_folder(path), span)
    if not path.exists():
        msg = f"there is no {shown(origin)}; write 'events', 'archive', a log file, or a folder of Parquet files"
        raise InvalidSettings(msg)
    if path.suffix == _PARQUET:
        return _parquet([(FolderObjectStore(path.parent), path.name)], span)
    return LogFile(path, fields)


async def _archived(settings: Settings) -> list[tuple[ObjectStore, str]]:
    """The files of the archive; if it has those of several databases, of the one in the settings."""
    archive = event_archive(settings)
    parts, faults = await archive.found()
    if len({part.origin[:8] for part in parts} | {folder.tag for folder, _ in faults}) > 1:
        async with open_archive(settings) as opened:
            parts = await opened.archive.parts()
    elif faults:
        raise ArchiveError(faults[0][1])
    return [(archive.place, f"{part.folder}/{file.name}") for part in parts for file in part.files]


def _in_folder(folder: Path) -> list[tuple[ObjectStore, str]]:
    """All Parquet files in a folder and below."""
    place = FolderObjectStore(folder)
    return [(place, name) for name in place.names() if name.endswith(_PARQUET)]


def _parquet(files: list[tuple[ObjectStore, str]], span: Span) -> Any:  # noqa: ANN401 (the class is in an extra)
    try:
        from headgate.simulate.parquet_events import ParquetEvents  # noqa: PLC0415 (an extra)
    except ModuleNotFoundError as error:
        msg = "Parquet files need pyarrow, which is not installed: pip install 'headgate[archive]'"
        raise InvalidSettings(msg) from error
    if not files:
        msg = "there are no Parquet files"
        raise InvalidSettings(msg)
    return ParquetEvents([place.arrow(name) for place, name in files], span.start, span.until)
