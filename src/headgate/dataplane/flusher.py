"""The flusher: brings what the recorder holds in memory to the spool, every few seconds, and once more at the end.

The event loop only takes what the recorder holds. A thread encodes and writes it, one flush at a time.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import zip_longest
from operator import sub
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from headgate.core.counts import CacheUse, Count, CountBatch, cut
from headgate.core.event import EventBatch, EventKind
from headgate.core.ids import new_id

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Self

    from headgate.core.counts import KeyCount, LatencyBucket
    from headgate.core.event import Event
    from headgate.core.units import Micros

log = logging.getLogger("headgate")

EVENTS: Final = "events"
COUNTS: Final = "counts"
_EVENTS_PER_BATCH: Final = 2_000
_COUNTS_PER_BATCH: Final = 20_000
"""Users, and times: more than events, because only the users with most requests of a batch get rows by the minute."""
_ALLOWED: Final = EventKind.ALLOWED.value
_FLUSH_AT: Final = 10_000
_SECONDS_BETWEEN_LOOKS: Final = (0.01, 0.25)


class Recorder(Protocol):
    """Events and counts in memory."""

    @property
    def emitted(self) -> int:
        """How many events there were so far."""

    @property
    def dropped(self) -> int:
        """How many of them were pushed out of memory."""

    @property
    def waiting(self) -> int:
        """How many of them were not taken yet."""

    @property
    def left_out(self) -> int:
        """How many refusals and sampled admissions became no event, because there were too many."""

    def take_events(self, *, is_last: bool = False) -> list[Event]:
        """All events since the last time; also those that are held back for a while, where it is the last time."""

    def take_counts(self) -> tuple[list[Count], list[LatencyBucket]]:
        """All counts since the last time."""

    def take_keys(self) -> Mapping[str, Micros]:
        """The API keys that were used since the last time, and when."""

    def take_key_counts(self) -> list[KeyCount]:
        """How many requests came with each API key since the last time."""


class RecordCache(Protocol):
    """What knows users and API keys."""

    @property
    def hits(self) -> int:
        """How often a record was known already, so far."""

    @property
    def misses(self) -> int:
        """How often it had to be looked up, so far."""


class Counted(NamedTuple):
    """What was counted since the last flush, for observers in this process."""

    counts: Sequence[Count]
    latencies: Sequence[LatencyBucket]
    keys: Mapping[str, Micros]


class Journal(Protocol):
    """Where batches are written. Its methods block, never raise, and are called by one thread at a time."""

    def append(self, stream: str, batch: EventBatch | CountBatch) -> None:
        """Take a batch."""

    def skip(self, stream: str, many: int) -> None:
        """Note events of a stream that were lost before they reached the journal."""

    def write(self) -> None:
        """Write to disk what was taken, and what could not be written before."""

    def close(self) -> None:
        """Write what is left, and close."""

    def waiting(self, stream: str) -> int:
        """How many were taken and are not on the disk."""

    def dropped(self, stream: str) -> int:
        """How many of them are lost, because the disk took nothing for too long."""


class BatchOrigin(NamedTuple):
    """Where it was decided."""

    server: str
    region: str


class Recorded(NamedTuple):
    """How many events one process has recorded."""

    emitted: int
    waiting: int
    """Those that are not on disk yet."""
    dropped: int
    """Those that were lost in memory."""
    left_out: int = 0
    """Refusals and sampled admissions that no event stands for. They are counted, and were never events."""


class Flusher:
    """Writes what one process decides to its journal. Use it in ``async with``."""

    def __init__(
        self,
        recorder: Recorder,
        journal: Journal | None,
        origin: BatchOrigin,
        every: float,
        *,
        counts: bool,
        observers: Sequence[Callable[[Counted], None]] = (),
        records: RecordCache | None = None,
    ) -> None:
        """Flush every `seconds`. Without `counts`, because no sink stores them, only `observers` get them.

        Without a journal nothing is kept. With `records` it is counted how often they were known.
        """
        self._records = records
        self._record_use = (0, 0)
        self._recorder = recorder
        self._observers = observers
        self._journal = journal
        self._origin = origin
        self._every = every
        self._has_counts = counts
        self._dropped = 0
        self._in_hand = 0
        self._stopping = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "headgate-flusher")
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Begin."""
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_exc: object) -> None:
        """Flush what is left, and end."""
        self._stopping.set()
        if self._task is not None:
            await self._task
        await self.flush(is_last=True)
        if self._journal is not None:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._journal.close)
        self._thread.shutdown()

    def state(self) -> Recorded:
        """How much there was, and where it is."""
        recorder, journal = self._recorder, self._journal
        if journal is None:
            return Recorded(recorder.emitted, recorder.waiting, recorder.dropped, recorder.left_out)
        waiting = recorder.waiting + self._in_hand + journal.waiting(EVENTS)
        return Recorded(recorder.emitted, waiting, recorder.dropped + journal.dropped(EVENTS), recorder.left_out)

    async def flush(self, *, is_last: bool = False) -> None:
        """Write everything that was recorded by now."""
        events = self._recorder.take_events(is_last=is_last)
        counts, latencies = self._take_counts()
        keys = self._recorder.take_key_counts()
        if self._journal is None:
            return
        dropped, self._dropped = self._recorder.dropped - self._dropped, self._recorder.dropped
        self._in_hand = len(events)
        if self._has_counts:
            counts += self._use_of_records(counts)
        else:
            counts, latencies, keys = [], [], []
        writing = partial(self._write, self._journal, events, (counts, latencies, keys), dropped)
        await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._thread, writing))

    def _take_counts(self) -> tuple[list[Count], list[LatencyBucket]]:
        counts, latencies = self._recorder.take_counts()
        counted = Counted(counts, latencies, self._recorder.take_keys())
        for observe in self._observers:
            try:
                observe(counted)
            except Exception:
                log.exception("counts: an observer failed; the counts are kept")  # no reason to lose the counts
        return counts, latencies

    def _use_of_records(self, counts: Sequence[Count]) -> list[Count]:
        """How often records were known since the last time, in the minute of the last requests; later, without any."""
        if self._records is None or not counts:
            return []
        before, self._record_use = self._record_use, (self._records.hits, self._records.misses)
        hits, misses = map(sub, self._record_use, before)
        minute = max(count.minute for count in counts)
        use = CacheUse(record_hits=hits, record_misses=misses)
        return [Count(minute, {}, None, None, is_degraded=False, charged=(), kind=_ALLOWED, rule=None, caches=use)]

    async def _run(self) -> None:
        least, most = _SECONDS_BETWEEN_LOOKS
        now = asyncio.get_running_loop().time
        due = now() + self._every
        while not self._stopping.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), max(least, min(most, due - now())))
            if now() >= due or self._recorder.waiting >= _FLUSH_AT:
                due = now() + self._every  # from the beginning of one flush to that of the next, however long it takes
                await self.flush()

    def _write(
        self,
        journal: Journal,
        events: list[Event],
        counted: tuple[list[Count], list[LatencyBucket], list[KeyCount]],
        dropped: int,
    ) -> None:
        """In the thread. What was dropped is older than the batch."""
        counts, latencies, keys = counted
        server, region = self._origin
        if dropped:
            journal.skip(EVENTS, dropped)
        for start in range(0, len(events), _EVENTS_PER_BATCH):
            journal.append(EVENTS, EventBatch(new_id(), server, region, events[start : start + _EVENTS_PER_BATCH]))
        self._in_hand = 0
        times = [latencies[start : start + _COUNTS_PER_BATCH] for start in range(0, len(latencies), _COUNTS_PER_BATCH)]
        of_keys = [keys[start : start + _COUNTS_PER_BATCH] for start in range(0, len(keys), _COUNTS_PER_BATCH)]
        for some, beside, also in zip_longest(cut(counts, _COUNTS_PER_BATCH), times, of_keys):
            journal.append(COUNTS, CountBatch(new_id(), server, region, some or [], beside or [], tuple(also or ())))
        journal.write()
