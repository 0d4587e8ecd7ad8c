"""From the recorder to the journal: everything, in batches, without blocking, and once more at the end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.support.spool import AT, count_batch, event

from headgate.core.counts import CacheUse, CountBatch, KeyCount
from headgate.core.event import EventBatch
from headgate.dataplane import flusher
from headgate.dataplane.flusher import COUNTS, EVENTS, BatchOrigin, Counted, Flusher, Recorded

if TYPE_CHECKING:
    import pytest

    from headgate.core.counts import Count, LatencyBucket
    from headgate.core.event import Event

ORIGIN = BatchOrigin("host-1", "eu")


class _Recorder:
    """A memory that is filled by hand."""

    def __init__(self) -> None:
        self.emitted = 0
        self.dropped = 0
        self.left_out = 0
        self.is_last = False
        self._events: list[Event] = []
        self.counts: tuple[list[Count], list[LatencyBucket]] = ([], [])
        self.key_counts: list[KeyCount] = []

    @property
    def waiting(self) -> int:
        return len(self._events)

    def emit(self, many: int) -> None:
        self._events += [event(self.emitted + number) for number in range(many)]
        self.emitted += many

    def drop(self, many: int) -> None:
        del self._events[:many]
        self.dropped += many

    def take_events(self, *, is_last: bool = False) -> list[Event]:
        self.is_last = is_last
        taken, self._events = self._events, []
        return taken

    def take_counts(self) -> tuple[list[Count], list[LatencyBucket]]:
        taken, self.counts = self.counts, ([], [])
        return taken

    def take_keys(self) -> dict[str, int]:
        return {"key": AT}

    def take_key_counts(self) -> list[KeyCount]:
        taken, self.key_counts = self.key_counts, []
        return taken


class _Journal:
    """Remembers what it was given, in order; it never gets anything to the disk."""

    def __init__(self) -> None:
        self.given: list[EventBatch | CountBatch | int] = []
        self.written = asyncio.Event()
        self.is_closed = False
        self._loop = asyncio.get_running_loop()

    def append(self, stream: str, batch: EventBatch | CountBatch) -> None:
        assert stream == (EVENTS if isinstance(batch, EventBatch) else COUNTS)
        self.given.append(batch)

    def skip(self, stream: str, many: int) -> None:
        assert stream == EVENTS
        self.given.append(many)

    def write(self) -> None:
        if self.given:
            self._loop.call_soon_threadsafe(self.written.set)

    def close(self) -> None:
        self.is_closed = True

    def waiting(self, stream: str) -> int:
        assert stream == EVENTS
        return sum(len(each.events) for each in self.given if isinstance(each, EventBatch))

    def dropped(self, stream: str) -> int:
        assert stream == EVENTS
        return 0


def test_everything_is_brought_over_in_batches_of_bounded_size() -> None:
    """Each batch has an id of its own, and says who decided; events keep their order."""

    async def run() -> None:
        recorder, journal = _Recorder(), _Journal()
        async with Flusher(recorder, journal, ORIGIN, 3600.0, counts=True) as bringing:
            recorder.emit(4_500)
            recorder.counts = count_batch(15_000, groups=3)[3:5]
            assert bringing.state() == Recorded(4_500, 4_500, 0)
            await bringing.flush()
            assert bringing.state() == Recorded(4_500, 4_500, 0)
        events = [each for each in journal.given if isinstance(each, EventBatch)]
        counts = [each for each in journal.given if isinstance(each, CountBatch)]
        assert [len(each.events) for each in events] == [2_000, 2_000, 500]
        assert [one.sequence for each in events for one in each.events] == list(range(4_500))
        assert [(len(each.counts), each.size, len(each.latencies)) for each in counts] == [
            (2, 20_001, 1),
            (2, 20_000, 0),
            (1, 5_000, 0),
        ]
        assert len({each[0] for each in (*events, *counts)}) == 6
        assert {each[1:3] for each in (*events, *counts)} == {ORIGIN}
        assert journal.is_closed

    asyncio.run(run())


def test_what_was_pushed_out_of_memory_is_told_once() -> None:
    """The journal knows of every event, also of those that never came to it."""

    async def run() -> None:
        recorder, journal = _Recorder(), _Journal()
        async with Flusher(recorder, journal, ORIGIN, 3600.0, counts=True) as bringing:
            recorder.emit(10)
            recorder.drop(4)
            await bringing.flush()
            await bringing.flush()
            assert bringing.state() == Recorded(10, 6, 4)
        assert [each if isinstance(each, int) else len(each[3]) for each in journal.given] == [4, 6]

    asyncio.run(run())


def test_counts_without_a_sink_are_forgotten() -> None:
    """They do not pile up in the recorder either."""

    async def run() -> None:
        recorder, journal = _Recorder(), _Journal()
        recorder.counts = count_batch()[3:5]
        async with Flusher(recorder, journal, ORIGIN, 3600.0, counts=False) as bringing:
            await bringing.flush()
        assert journal.given == []
        assert recorder.counts == ([], [])

    asyncio.run(run())


def test_it_is_brought_over_every_so_many_seconds() -> None:
    """And without being asked to."""

    async def run() -> None:
        recorder, journal = _Recorder(), _Journal()
        async with Flusher(recorder, journal, ORIGIN, 0.02, counts=True):
            recorder.emit(1)
            await asyncio.wait_for(journal.written.wait(), 60)

    asyncio.run(run())


def test_a_memory_that_is_rather_full_is_emptied_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long events may wait otherwise."""
    monkeypatch.setattr(flusher, "_SECONDS_BETWEEN_LOOKS", (0.01, 0.01))

    async def run() -> None:
        recorder, journal = _Recorder(), _Journal()
        async with Flusher(recorder, journal, ORIGIN, 3600.0, counts=True):
            recorder.emit(10)
            await asyncio.sleep(0.1)
            assert journal.given == []
            recorder.emit(10_000)
            await asyncio.wait_for(journal.written.wait(), 60)

    asyncio.run(run())


def test_the_last_events_are_brought_over_at_the_end() -> None:
    """Also where it ends before it has begun to look."""

    async def run() -> None:
        recorder, journal = _Recorder(), _Journal()
        async with Flusher(recorder, journal, ORIGIN, 3600.0, counts=True):
            recorder.emit(3)
        assert [each.at for batch in journal.given if isinstance(batch, EventBatch) for each in batch.events] == [
            AT,
            AT + 1,
            AT + 2,
        ]

    asyncio.run(run())


def test_nothing_needs_to_begin_to_end() -> None:
    """A start that fails elsewhere ends what has not begun; nothing that was recorded is lost for it."""

    async def run() -> None:
        recorder, journal = _Recorder(), _Journal()
        recorder.emit(1)
        await Flusher(recorder, journal, ORIGIN, 3600.0, counts=True).__aexit__()
        assert len(journal.given) == 1
        assert journal.is_closed

    asyncio.run(run())


def test_observers_are_told_what_was_counted_also_where_nothing_is_kept() -> None:
    """An observer receives every count once; without a journal there is nothing else."""

    async def run() -> None:
        recorder = _Recorder()
        heard: list[Counted] = []
        batch = count_batch(2)
        async with Flusher(recorder, None, ORIGIN, 3600.0, counts=False, observers=[heard.append]) as counting:
            recorder.counts = (batch.counts, batch.latencies)
            await counting.flush()
            assert counting.state() == Recorded(0, 0, 0)
        assert [len(each.counts) for each in heard] == [len(batch.counts), 0]
        assert heard[0] == Counted(batch.counts, batch.latencies, {"key": AT})

    asyncio.run(run())


def test_an_observer_that_fails_costs_no_event(caplog: pytest.LogCaptureFixture) -> None:
    """What happened is kept, and the fault is said in full."""

    def fail(_counted: object) -> None:
        msg = "a fault"
        raise ZeroDivisionError(msg)

    async def run() -> None:
        recorder, journal = _Recorder(), _Journal()
        async with Flusher(recorder, journal, ORIGIN, 3600.0, counts=True, observers=[fail]):
            recorder.emit(1)
        assert len(journal.given) == 1

    asyncio.run(run())
    assert caplog.messages == ["counts: an observer failed; the counts are kept"]


class _Records:
    hits = misses = 0


def test_requests_by_key_and_the_use_of_records_go_with_the_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys are cut into batches too; how often records were known is in the last minute, once there are requests."""
    monkeypatch.setattr(flusher, "_COUNTS_PER_BATCH", 2)

    async def run() -> None:
        recorder, journal, records = _Recorder(), _Journal(), _Records()
        keys = [KeyCount(AT, str(number), 2, 1) for number in range(3)]
        flushing = Flusher(recorder, journal, ORIGIN, 60, counts=True, records=records)
        records.hits, records.misses = 5, 1
        recorder.key_counts = keys
        await flushing.flush()
        batches = [batch for batch in journal.given if isinstance(batch, CountBatch)]
        assert [[*batch.keys] for batch in batches] == [keys[:2], keys[2:]]
        assert not any(batch.counts for batch in batches)
        recorder.counts = (count_batch().counts, [])
        records.hits = 7
        await flushing.flush()
        last = journal.given[-1]
        assert isinstance(last, CountBatch)
        assert last.counts[-1].caches == CacheUse(record_hits=7, record_misses=1)
        assert last.counts[-1].requests == 0
        recorder.counts = (count_batch().counts, [])
        await flushing.flush()
        last = journal.given[-1]
        assert isinstance(last, CountBatch)
        assert last.counts[-1].caches == CacheUse()

    asyncio.run(run())
