"""From the spool to the sinks: in order, again where a sink fails, and one sink is no other's business."""

from __future__ import annotations

import asyncio
import errno
import logging
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest
from tests.support.spool import batch
from tests.support.waiting import wait_until_async

from headgate.core.delivery_ledger import DeliveryLedger
from headgate.core.units import SECOND
from headgate.dataplane import exporter
from headgate.dataplane.exporter import Exporter, Route
from headgate.errors import SinkError
from headgate.ports import SinkResult

if TYPE_CHECKING:
    from headgate.core.event import EventBatch

_PATIENCE: Final = 60.0


@pytest.fixture(autouse=True)
def _in_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {"_FIRST_PAUSE": 0.001, "_MAX_PAUSE": 0.002, "_SECONDS_BETWEEN_LOOKS": 0.001}.items():
        monkeypatch.setattr(exporter, name, seconds)
    monkeypatch.setattr(exporter, "_SECONDS_BETWEEN_TRIES", 0.001)


class _Taken(NamedTuple):
    batches: list[EventBatch]


class _Source:
    """Batches in memory, with a place for each sink."""

    def __init__(self, *batches: EventBatch) -> None:
        self.batches = list(batches)
        self.places: dict[str, int] = {}
        self.refused: dict[str, int] = {}
        self.error: OSError | None = None

    def look(self) -> None:
        if self.error is not None:
            raise self.error

    def take(self, sink: str) -> _Taken | None:
        place = self.places.get(sink, 0)
        return _Taken([self.batches[place]]) if place < len(self.batches) else None

    def keep(self, sink: str, taken: _Taken, refused: int) -> None:
        assert taken.batches == [self.batches[self.places.get(sink, 0)]]
        self.places[sink] = self.places.get(sink, 0) + 1
        self.refused[sink] = self.refused.get(sink, 0) + refused

    def ledger(self, sink: str) -> DeliveryLedger:
        place, refused = self.places.get(sink, 0), self.refused.get(sink, 0)
        done = sum(len(each.events) for each in self.batches[:place])
        return DeliveryLedger(done - refused, refused, 0, sum(len(each.events) for each in self.batches[place:]))


class _Sink:
    """Stores in memory, unless it is told to fail."""

    def __init__(self, name: str, *failures: Exception) -> None:
        self.name = name
        self.stored: list[EventBatch] = []
        self.failures = list(failures)
        self.refuses = 0
        self.is_closed = False
        self.is_down = False
        self.tried = asyncio.Event()

    async def store(self, batch: EventBatch) -> SinkResult:
        self.tried.set()
        if self.is_down:
            msg = "no answer"
            raise SinkError(msg)
        if self.failures:
            raise self.failures.pop(0)
        self.stored.append(batch)
        return SinkResult(len(batch.events) - self.refuses, self.refuses)

    async def close(self) -> None:
        self.is_closed = True


class _Lock:
    """Counts who has it."""

    def __init__(self) -> None:
        self.holders = 0
        self.is_taken = False
        self.tries = 0
        self.error: OSError | None = None

    def take(self) -> _Lock | None:
        self.tries += 1
        if self.error is not None:
            raise self.error
        if self.is_taken:
            return None
        self.is_taken = True
        self.holders += 1
        return self

    def release(self) -> None:
        self.is_taken = False


def _shipping(source: _Source, *sinks: _Sink, lock: _Lock | None = None, now: int = 0, seconds: float = 60) -> Exporter:
    return Exporter([Route("events", source, sinks)], (lock or _Lock()).take, lambda: now, seconds)


def test_every_sink_stores_everything_in_order() -> None:
    """What is there at the end is stored too, before the sinks are closed."""

    async def run() -> None:
        source = _Source(*(batch(number, 1) for number in range(40)))
        one, two = _Sink("one"), _Sink("two")
        async with _shipping(source, one, two) as shipped:
            await wait_until_async(lambda: len(one.stored) == len(two.stored) == 40)
            source.batches.append(batch(40, 2))
        assert one.stored == two.stored == source.batches
        assert one.is_closed
        assert two.is_closed
        assert shipped.state()["events", "one"] == (DeliveryLedger(stored=42), None, 0.0)

    asyncio.run(run())


def test_a_sink_that_fails_is_tried_again_and_spoken_of_once(caplog: pytest.LogCaptureFixture) -> None:
    """The other one goes on meanwhile; a fault of ours is treated alike, and said in full."""
    caplog.set_level(logging.INFO, "headgate")

    async def run() -> None:
        source = _Source(batch(0, 3), batch(3, 3))
        away = _Sink("away", *(SinkError("no answer") for _ in range(5)), ZeroDivisionError("a fault"))
        there = _Sink("there")
        async with _shipping(source, away, there):
            await wait_until_async(lambda: len(away.stored) == len(there.stored) == 2)
        assert away.stored == there.stored == source.batches

    asyncio.run(run())
    lines = [record.getMessage() for record in caplog.records]
    assert lines.count("events wait in the spool: away unavailable: no answer") == 1
    assert lines.count("events are stored again: away recovered") == 1
    assert lines.count("sink away: a batch failed with an unexpected error") == 1
    assert "events to there: 6 emitted = 6 stored + 0 spooled + 0 dropped + 0 refused" in lines


def test_a_sink_that_stays_down_is_tried_ever_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses double up to ten seconds, each by chance between half of it and all."""
    pauses: list[float] = []

    async def waited(stopping: asyncio.Event, seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 11:
            stopping.set()
        await asyncio.sleep(0)

    async def run() -> None:
        sink = _Sink("down", *(SinkError("no answer") for _ in range(9)))
        async with _shipping(_Source(batch(0, 1)), sink):
            await wait_until_async(lambda: len(pauses) >= 11)

    monkeypatch.setattr(exporter, "waited", waited)
    monkeypatch.setattr(exporter, "_FIRST_PAUSE", 0.1)
    monkeypatch.setattr(exporter, "_MAX_PAUSE", 10.0)
    asyncio.run(run())
    tops = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10]
    assert all(top / 2 <= pause <= top for pause, top in zip(pauses, tops, strict=False))
    assert pauses[9] == exporter._SECONDS_BETWEEN_LOOKS


def test_a_spool_that_cannot_be_read_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    """A disk that fails stops nothing for good, and no sink is blamed for it."""

    async def run() -> None:
        source, sink = _Source(batch(0, 1)), _Sink("one")
        source.error = OSError("the disk is gone")
        async with _shipping(source, sink) as shipped:
            await wait_until_async(lambda: shipped.state()["events", "one"].error is not None)
            assert shipped.state()["events", "one"].error == "the spool cannot be read: the disk is gone"
            source.error = None
            await wait_until_async(lambda: sink.stored != [])

    asyncio.run(run())
    assert caplog.messages == ["events wait in the spool: the spool cannot be read: the disk is gone"]


def test_an_end_waits_for_sinks_only_so_long(caplog: pytest.LogCaptureFixture) -> None:
    """What is left is in the spool, and in the account."""
    caplog.set_level(logging.INFO, "headgate")

    async def run() -> None:
        source, sink = _Source(batch(0, 4)), _Sink("one")
        sink.is_down = True
        async with _shipping(source, sink, seconds=0.1) as shipped:
            await wait_until_async(sink.tried.is_set)
        assert source.places == {}
        assert shipped.state()["events", "one"].ledger == DeliveryLedger(spooled=4)

    asyncio.run(run())
    assert "events to one: 4 emitted = 0 stored + 4 spooled + 0 dropped + 0 refused" in caplog.messages


def test_a_sink_that_comes_back_at_the_end_gets_everything() -> None:
    """As long as there is time it is tried again."""

    async def run() -> None:
        source, sink = _Source(batch(0, 4)), _Sink("one")
        sink.is_down = True
        async with _shipping(source, sink):
            await wait_until_async(sink.tried.is_set)
            asyncio.get_running_loop().call_later(0.05, setattr, sink, "is_down", False)  # noqa: FBT003 (setattr's)
        assert sink.stored == source.batches

    asyncio.run(run())


def test_refused_events_are_accounted_for() -> None:
    """They are neither stored nor lost without a word."""

    async def run() -> None:
        source, sink = _Source(batch(0, 4)), _Sink("one")
        sink.refuses = 1
        async with _shipping(source, sink) as shipped:
            await wait_until_async(lambda: sink.stored != [])
        assert shipped.state()["events", "one"].ledger == DeliveryLedger(stored=3, refused=1)

    asyncio.run(run())


def test_one_process_ships_at_a_time() -> None:
    """Another one takes over when it ends, and one that never came to it ends without shipping."""

    async def run() -> None:
        lock, source = _Lock(), _Source()
        first, second, third = (_Sink("sink") for _ in range(3))
        async with _shipping(source, third, lock=lock):
            await wait_until_async(lambda: lock.holders == 1)
            async with _shipping(source, first, lock=lock):
                await asyncio.sleep(0.02)
            assert lock.holders == 1
        source.batches.append(batch(0, 1))
        async with _shipping(source, second, lock=lock):
            await wait_until_async(lambda: second.stored != [])
        assert first.stored == third.stored == []

    asyncio.run(run())


def test_a_lock_that_cannot_be_taken_is_said_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    """A folder in its place, for example. Meanwhile no sink counts as up, and the log says so once."""
    caplog.set_level(logging.INFO, "headgate")

    async def run() -> None:
        lock, source, one, two = _Lock(), _Source(batch(0, 1)), _Sink("one"), _Sink("two")
        lock.error = IsADirectoryError(errno.EISDIR, "Is a directory", "shipping.lock")
        async with _shipping(source, one, two, lock=lock) as shipped:
            await wait_until_async(lambda: lock.tries > 3)
            words = "the spool cannot be locked: shipping.lock: Is a directory"
            assert [state.error for state in shipped.state().values()] == [words, words]
            lock.error = None
            await wait_until_async(lambda: one.stored != [] and two.stored != [])
            await wait_until_async(lambda: {state.error for state in shipped.state().values()} == {None})

    asyncio.run(run())
    assert caplog.messages[:2] == [
        "events and counts wait in the spool: the spool cannot be locked: shipping.lock: Is a directory",
        "events and counts are stored again",
    ]


def test_the_lag_is_for_how_long_a_sink_has_not_had_everything() -> None:
    """None, where it has."""

    async def run() -> None:
        time = [10 * SECOND]
        source, sink = _Source(), _Sink("one")
        sink.is_down = True
        async with Exporter([Route("events", source, [sink])], _Lock().take, lambda: time[0], 0.01) as shipped:
            assert shipped.state()["events", "one"].lag == 0
            source.batches.append(batch(0, 1))
            await wait_until_async(sink.tried.is_set)
            await wait_until_async(lambda: shipped.state()["events", "one"].ledger.spooled == 1)
            time[0] += 3 * SECOND
            assert shipped.state()["events", "one"].lag == 3

    asyncio.run(run())


def test_nothing_needs_to_begin_to_end() -> None:
    """A start that fails elsewhere ends what has not begun."""

    async def run() -> None:
        sink = _Sink("one")
        await _shipping(_Source(), sink).__aexit__()
        assert sink.is_closed

    asyncio.run(run())
