"""What a simulation is put together from: rule sets on virtual time, and traffic from wherever it is."""

from __future__ import annotations

import gc
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from headgate.adapters import zones
from headgate.adapters.archive.places import FolderPlace, open_place
from headgate.adapters.memory import MemoryStore
from headgate.adapters.traffic.log_file import LogFile
from headgate.controlplane.simulate.events import StoredEvents
from headgate.controlplane.simulate.replay import Replay, VirtualClock
from headgate.controlplane.simulate.trial import Trial, without_slots
from headgate.core.meter import Calendars
from headgate.dataplane.bare_keys import BareKeys
from headgate.dataplane.limiter import Limiter
from headgate.dataplane.snapshots import Snapshots
from headgate.errors import InvalidSettings, shown
from headgate.wiring import complete, open_database

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping
    from typing import Any

    from headgate.core.rule import RuleSet
    from headgate.core.traffic import Call, Skipped
    from headgate.core.units import Micros
    from headgate.settings import Settings

EVENTS: Final = "events"
ARCHIVE: Final = "archive"
MOST_COUNTERS: Final = 5_000_000
"""Of each rule set at the same time."""
_MANIFEST: Final = "manifest.json"
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
    source = _files(settings, origin, span, fields)
    yield Traffic(source, _pages(source.pages()))


async def _pages(pages: Iterator[list[Call]]) -> AsyncIterator[list[Call]]:
    for page in pages:
        yield page


def _files(settings: Settings, origin: str, span: Span, fields: Mapping[str, str] | None) -> Any:  # noqa: ANN401 (one of two, of which one is in an extra)
    path = Path(origin)
    if origin == ARCHIVE:
        return _parquet(lambda: _archived(settings), span)
    if path.is_dir():
        return _parquet(lambda: _in_folder(path), span)
    if not path.exists():
        msg = f"there is no {shown(origin)}; write 'events', 'archive', a log file, or a folder of Parquet files"
        raise InvalidSettings(msg)
    if path.suffix == _PARQUET:
        return _parquet(lambda: [FolderPlace(path.parent).arrow(path.name)], span)
    return LogFile(path, fields)


def _archived(settings: Settings) -> list[tuple[Any, str]]:
    """The files of the archive."""
    if settings.archive_url is None:
        msg = "there is no archive; set HEADGATE_ARCHIVE_URL, or name the folder"
        raise InvalidSettings(msg)
    place = open_place(settings.archive_url, settings.s3_endpoint)
    names = place.names("events")
    # A part is complete when its manifest is there.
    complete_parts = {name.removesuffix(_MANIFEST) for name in names if name.endswith(_MANIFEST)}
    return [
        place.arrow(name)
        for name in names
        if name.endswith(_PARQUET) and f"{name.rpartition('/')[0]}/" in complete_parts
    ]


def _in_folder(folder: Path) -> list[tuple[Any, str]]:
    """All Parquet files in a folder and below."""
    place = FolderPlace(folder)
    return [place.arrow(name) for name in place.names() if name.endswith(_PARQUET)]


def _parquet(files: Callable[[], list[tuple[Any, str]]], span: Span) -> Any:  # noqa: ANN401 (the class is in an extra)
    try:
        from headgate.adapters.traffic.parquet import ParquetEvents  # noqa: PLC0415 (an extra)
    except ModuleNotFoundError as error:
        msg = "Parquet files need pyarrow, which is not installed: pip install 'headgate[archive]'"
        raise InvalidSettings(msg) from error
    found = files()
    if not found:
        msg = "there are no Parquet files"
        raise InvalidSettings(msg)
    return ParquetEvents(found, span.start, span.until)
