"""What all processes have spooled of one stream, for the sinks that read it. Blocking, for one thread at a time."""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from headgate.adapters.spool import batches
from headgate.adapters.spool.folder import folders, is_written_to, remove_stream
from headgate.adapters.spool.log import VERSION, delete, segment, segments
from headgate.adapters.spool.reader import Cursor, Reader, sink_names
from headgate.core.counts import CountBatch
from headgate.core.delivery_ledger import NOTHING, DeliveryLedger
from headgate.core.event import EventBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from headgate.adapters.spool.reader import SpooledFrame

log = logging.getLogger("headgate")
B = TypeVar("B", EventBatch, CountBatch)

EVENTS: Final = "events"
COUNTS: Final = "counts"


COUNTS_TOGETHER: Final = 40
"""Batches of counts that a sink gets at once, of one process: where their users are the same, they are hardly more than
one of them."""
ENOUGH_AT_ONCE: Final = 400_000
"""Users or events of all batches, after which a sink gets no further one: all may be different, and take memory."""


class TakenBatches(NamedTuple, Generic[B]):
    """Batches that a sink has in hand, and where they are from."""

    batches: list[B]
    folder: Path
    found: list[SpooledFrame]


class _Spooled:
    """One process's log, with a reader for each sink; sinks that are not configured now keep their offsets."""

    def __init__(self, path: Path, sinks: Sequence[str]) -> None:
        self._path = path
        self._absent = {name: Reader(path, name) for name in sink_names(path) if name not in sinks}
        self.readers = {sink: Reader(path, sink) for sink in sinks}
        for reader in self.readers.values():  # once all of them know where to begin
            reader.save_offset()
        least = min(self._all, key=lambda reader: reader.number)
        self._end = Cursor(path, *least.offset[:3])
        self.is_gone = False
        """Whether it was deleted. Its process goes on under the same name, and with the numbers it had reached."""

    def look(self) -> None:
        """See how far it goes by now, and delete what all have read."""
        was_gone, self.is_gone = self.is_gone, not self._path.is_dir()
        if was_gone and not self.is_gone:
            for reader in self._all:
                reader.save_offset()
        self._end.go_to_end()
        done = min(reader.number for reader in self._all)
        there = segments(self._path)
        for first, next_first in pairwise(there):
            if next_first <= done:
                delete(self._path, first)

    @property
    def _all(self) -> list[Reader]:
        return [*self.readers.values(), *self._absent.values()]

    @property
    def unread(self) -> int:
        """How many events the slowest reader has still to read."""
        return self._end.number - min(reader.number for reader in self._all)

    def waiting_for_absent(self) -> dict[str, int]:
        """How many events wait for sinks that are not configured now."""
        waiting = {name: self._end.number - reader.number for name, reader in self._absent.items()}
        return {name: many for name, many in waiting.items() if many > 0 and not self.is_gone}

    def ledger(self, sink: str) -> DeliveryLedger:
        reader = self.readers[sink]
        ledger = DeliveryLedger(*reader.ledger, spooled=max(0, self._end.number - reader.number))
        return ledger.ended if self.is_gone else ledger


def spooled_events(root: Path, sinks: Sequence[str]) -> SpooledStream[EventBatch]:
    """All events in the spool at `root`."""
    return SpooledStream(root, EVENTS, batches.events_from, sinks)


def spooled_counts(root: Path, sinks: Sequence[str]) -> SpooledStream[CountBatch]:
    """All counts in the spool at `root`."""
    return SpooledStream(root, COUNTS, batches.counts_from, sinks, COUNTS_TOGETHER)


class SpooledStream(Generic[B]):
    """The logs of one stream below the spool's folder; batches come in the order of their process."""

    def __init__(
        self, root: Path, name: str, decode: Callable[[bytes], B], sinks: Sequence[str], batches_at_once: int = 1
    ) -> None:
        """Each of `sinks` takes up to `batches_at_once` batches; what all of them are done with is deleted."""
        self._root = root
        self._name = name
        self._decode: Callable[[bytes], B] = decode
        self._sinks = sinks
        self._batches_at_once = batches_at_once
        self._logs: dict[Path, _Spooled] = {}
        self._turns: dict[str, Path] = {}
        self._past = dict.fromkeys(sinks, NOTHING)
        self._warned: set[str] = set()
        self._unreadable: set[Path] = set()
        self._newer: set[Path] = set()

    def take(self, sink: str) -> TakenBatches[B] | None:
        """The next batches for a sink, from the folders in turn; None if there are none yet."""
        last = self._turns.get(sink)
        in_turn = sorted(self._logs, key=lambda folder: (last is not None and folder <= last, folder))
        for folder in in_turn:
            try:
                taken = self._next(folder, sink)
            except OSError as error:
                self._warn_of_unreadable(folder, error)
                continue
            if taken is not None:
                self._turns[sink] = folder
                return taken
        return None

    def _next(self, folder: Path, sink: str) -> TakenBatches[B] | None:
        """The next batches in a folder; None if there are none yet."""
        reader = self._logs[folder].readers[sink]
        while found := self._find(folder, sink):
            decoded: list[B] = []
            try:
                for each in found:
                    decoded.append(self._decode(each.payload or b""))  # noqa: PERF401 (those before an error are kept)
            except ValueError as error:
                if not decoded:
                    log.error("spool %s: a batch cannot be read and is lost: %s", folder, error)  # noqa: TRY400 (a sentence)
                    reader.lose(found[0])
                    continue
            return TakenBatches(decoded, folder, found[: len(decoded)])
        return None

    def _find(self, folder: Path, sink: str) -> list[SpooledFrame]:
        reader = self._logs[folder].readers[sink]
        found = reader.find(self._batches_at_once, ENOUGH_AT_ONCE)
        self._report_damage(folder, self._logs[folder], sink)
        if reader.newer is not None and folder not in self._newer:
            self._newer.add(folder)
            words = "spool: %s has %s in format %d, and this headgate reads format %d; they wait for a newer one"
            log.warning(words, folder, self._name, reader.newer, VERSION)
        return found

    def _report_damage(self, folder: Path, spooled: _Spooled, sink: str) -> None:
        for first, offset, size in spooled.readers[sink].new_damage():
            words = "spool file %s is damaged: %d bytes from byte %d on are lost for the sink %s and count as dropped"
            log.error(words, segment(folder / self._name, first), size, offset, sink)

    def keep(self, sink: str, taken: TakenBatches[B], refused: int) -> None:
        """A sink is done with batches, and can never take so many of their events."""
        spooled = self._logs.get(taken.folder)
        if spooled is not None:
            spooled.readers[sink].keep(taken.found, refused)

    def look(self) -> None:
        """Find new logs, and remove what is done with. A folder that cannot be read keeps no other one waiting."""
        for folder in {*folders(self._root), *self._logs}:
            try:
                self._look_into(folder)
            except OSError as error:
                self._warn_of_unreadable(folder, error)
        self._warn_of_absent()

    def _look_into(self, folder: Path) -> None:
        if folder not in self._logs and (folder / self._name).is_dir():
            self._logs[folder] = _Spooled(folder / self._name, self._sinks)
        spooled = self._logs.get(folder)
        if spooled is not None:
            is_finished = not is_written_to(folder)  # before looking: it may be written to until then
            spooled.look()
            if is_finished and spooled.unread <= 0 and not spooled.is_gone:
                self._finish(folder)

    def _warn_of_unreadable(self, folder: Path, error: OSError) -> None:
        """Log once that a folder cannot be read; every `look` tries it again."""
        if folder not in self._unreadable:
            words = "spool: %s cannot be read, its events are not stored: %s: %s"
            log.error(words, folder, error.filename or "it", error.strerror or error)
            self._unreadable.add(folder)

    def ledger(self, sink: str) -> DeliveryLedger:
        """What became of everything that this sink was to store, since this object looks after it."""
        return sum((spooled.ledger(sink) for spooled in self._logs.values()), start=self._past[sink])

    def _warn_of_absent(self) -> None:
        """Warn once that events wait for a sink that is not configured any more."""
        waiting: Counter[str] = Counter()
        for spooled in self._logs.values():
            waiting.update(spooled.waiting_for_absent())
        for name in waiting.keys() - self._warned:
            words = "spool: %d %s in %s wait for the sink %s, which is not configured; configure it again to store them"
            log.warning(words, waiting[name], self._name, self._root, name)
            self._warned.add(name)

    def _finish(self, folder: Path) -> None:
        """Forget a log that is read to its end."""
        spooled = self._logs.pop(folder)
        for sink in self._sinks:
            spooled.readers[sink].give_up_tail()
            self._report_damage(folder, spooled, sink)
        with suppress(OSError):
            remove_stream(folder, self._name)
        for sink in self._sinks:
            self._past[sink] += spooled.ledger(sink).ended
