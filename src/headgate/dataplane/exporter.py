"""The exporter: reads the spool and hands batches to the sinks.

Each sink reads at its own pace; one that is unavailable delays no other. Of all processes that share a spool one
exports at a time, for all of them, including those that have ended.

A `SinkWorker` serves one sink and one stream: read a batch, have it stored, save the offset, until nothing is left. A
sink that fails is tried again after a pause, which grows while it is unavailable. The batch in hand is never given up.
"""

from __future__ import annotations

import asyncio
import logging
import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

from headgate.core.delivery_ledger import NOTHING, DeliveryLedger
from headgate.core.units import SECOND
from headgate.errors import SinkError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from typing import Self

    from headgate.core.units import Micros
    from headgate.ports import CountSink, EventSink

if TYPE_CHECKING:
    RunInThread = Callable[..., Awaitable[Any]]

_chance: Final = random.SystemRandom()
"""Without a state that a fork copies, and separate from the generator of the program around us."""

_FIRST_PAUSE: Final = 0.1
_MAX_PAUSE: Final = 10.0
_SECONDS_BETWEEN_LOOKS: Final = 0.5
_BATCHES_BETWEEN_LOOKS: Final = 16


class Source(Protocol):
    """The spool of one stream. Its methods block and may raise `OSError`; one thread at a time calls them."""

    def look(self) -> None:
        """Find what is new, and delete what all sinks are done with."""

    def take(self, sink: str) -> Any:  # noqa: ANN401 (of the source's own; it has `batches`)
        """The next batches for a sink, or None; of events always one."""

    def keep(self, sink: str, taken: Any, refused: int) -> None:  # noqa: ANN401 (what `take` gave)
        """A sink is done with what it was given; `refused` of it can never be stored there."""

    def ledger(self, sink: str) -> DeliveryLedger:
        """What became of everything that a sink was to store."""


class _UnreadableSpool(OSError):
    """The spool cannot be read now."""


class SinkState(NamedTuple):
    """The state of a sink."""

    ledger: DeliveryLedger
    error: str | None
    """Why it does not store at the moment."""
    lag: float
    """For how many seconds it has not had everything."""


class SinkWorker:
    """Exports one stream to one sink."""

    def __init__(
        self,
        stream: str,
        source: Source,
        sink: EventSink | CountSink,
        clock: Callable[[], Micros],
        run_in_thread: RunInThread,
        every: float | None = None,
    ) -> None:
        """`run_in_thread` runs blocking work in the one thread that may. `every` is in seconds, between looks."""
        self.stream = stream
        self.sink = sink
        self.ledger = NOTHING
        self._source = source
        self._clock = clock
        self._run_in_thread = run_in_thread
        self._every = every
        self.error: str | None = None
        """Why the sink gets nothing now; `Exporter` sets it for all sinks while the spool cannot be locked."""
        self._had_everything = clock()

    def state(self) -> SinkState:
        """The state of the sink at the last look."""
        lag = (self._clock() - self._had_everything) / SECOND if self.ledger.spooled else 0.0
        return SinkState(self.ledger, self.error, max(0.0, lag))

    async def run(self, stopping: asyncio.Event) -> None:
        """Export until `stopping` is set, and then until nothing is left."""
        pause = _FIRST_PAUSE
        while True:
            is_last = stopping.is_set()
            try:
                await self._export_all()
            except _UnreadableSpool as error:
                self._failed(f"the spool cannot be read: {error}")
            except (SinkError, OSError) as error:
                self._failed(f"{self.sink.name} unavailable: {error}")
            except Exception as error:  # a defect of ours must not end it either
                log.exception("sink %s: a batch failed with an unexpected error", self.sink.name)
                self._failed(f"{self.sink.name} unavailable: {type(error).__name__}: {error}")
            else:
                self._recovered()
                if is_last:
                    return
                pause = _FIRST_PAUSE
                await waited(stopping, self._every or _SECONDS_BETWEEN_LOOKS)
                continue
            if stopping.is_set():  # there is little time
                await asyncio.sleep(_FIRST_PAUSE)
            else:
                await waited(stopping, _chance.uniform(pause / 2, pause))
            pause = min(_MAX_PAUSE, 2 * pause)

    async def _export_all(self) -> None:
        """Export everything that is in the spool now."""
        number = 0
        while True:
            if number % _BATCHES_BETWEEN_LOOKS == 0:
                await self.look()
            taken = await self._spool(self._source.take, self.sink.name)
            if taken is None:
                break
            done = await self.sink.store(*taken.batches)
            await self._spool(self._source.keep, self.sink.name, taken, done.refused)
            self._recovered()
            number += 1
        await self.look()

    async def look(self) -> None:
        """See what is in the spool, and update the ledger."""
        await self._spool(self._source.look)
        self.ledger = await self._spool(self._source.ledger, self.sink.name)
        if not self.ledger.spooled:
            self._had_everything = self._clock()

    async def _spool(self, work: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401 (what the work gives)
        try:
            return await self._run_in_thread(work, *arguments)
        except OSError as error:
            raise _UnreadableSpool(reason(error)) from error

    def _failed(self, error: str) -> None:
        if self.error is None:
            log.warning("%s wait in the spool: %s", self.stream, error)
        self.error = error

    def _recovered(self) -> None:
        if self.error is not None:
            log.info("%s are stored again: %s recovered", self.stream, self.sink.name)
        self.error = None


def reason(error: OSError) -> str:
    """What the system says, and of which file."""
    return str(error) if error.strerror is None else f"{error.filename or 'it'}: {error.strerror}"


async def waited(event: asyncio.Event, seconds: float) -> None:
    """Wait for an event for at most `seconds`."""
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)


log = logging.getLogger("headgate")
T = TypeVar("T")

_SECONDS_BETWEEN_TRIES: Final = 1.0


class Lock(Protocol):
    """Held by the process that exports."""

    def release(self) -> None:
        """Let another process export."""


class Route(NamedTuple):
    """A stream, and the sinks that store it."""

    stream: str
    source: Source
    sinks: Sequence[EventSink | CountSink]
    every: float | None = None
    """Seconds between two looks at what is new; None: few."""


class Exporter:
    """Exports everything from the spool to the sinks. Use it in ``async with``."""

    def __init__(
        self,
        routes: Sequence[Route],
        lock: Callable[[], Lock | None],
        clock: Callable[[], Micros],
        seconds_to_end: float = 5.0,
    ) -> None:
        """`lock` is taken by the process that exports. At the end what is left has `seconds_to_end` to be stored."""
        self._workers = [
            SinkWorker(route.stream, route.source, sink, clock, self._run_in_thread, route.every)
            for route in routes
            for sink in route.sinks
        ]
        self._lock = lock
        self._seconds_to_end = seconds_to_end
        self._thread = ThreadPoolExecutor(1, "headgate-exporter")
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Begin."""
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_exc: object) -> None:
        """Go on until everything is stored, or time is up; what is left is stored after the next start."""
        self._stopping.set()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=self._seconds_to_end)
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await asyncio.gather(*(worker.sink.close() for worker in self._workers), return_exceptions=True)
        self._thread.shutdown()
        for worker in self._workers:
            if worker.ledger.emitted:
                log.info("%s to %s: %s", worker.stream, worker.sink.name, worker.ledger)

    def state(self) -> Mapping[tuple[str, str], SinkState]:
        """The state of each sink, by stream and name. If another process exports, all is as at the start."""
        return {(worker.stream, worker.sink.name): worker.state() for worker in self._workers}

    async def _run(self) -> None:
        lock = await self._locked()
        if lock is None:
            return
        try:
            await asyncio.gather(*(worker.run(self._stopping) for worker in self._workers))
        finally:
            with suppress(OSError):
                for worker in self._workers:
                    await worker.look()  # for the ledger
            lock.release()

    async def _locked(self) -> Lock | None:
        """The lock, once no other process has it; None at shutdown while another process holds it."""
        while True:
            is_last, lock = self._stopping.is_set(), None
            try:
                lock = await self._run_in_thread(self._lock)
            except OSError as error:
                self._set_error(f"the spool cannot be locked: {reason(error)}")
            else:
                self._set_error(None)
            if lock is not None or is_last:
                return lock
            await waited(self._stopping, _SECONDS_BETWEEN_TRIES)

    def _set_error(self, error: str | None) -> None:
        """Why no sink gets anything: in the state of all sinks, and in the log once; None is the end of it."""
        before = {worker.error for worker in self._workers}
        if error is not None and before == {None}:
            log.error("events and counts wait in the spool: %s", error)
        elif error is None and before != {None}:
            log.info("events and counts are stored again")
        for worker in self._workers:
            worker.error = error

    async def _run_in_thread(self, work: Callable[..., T], *arguments: Any) -> T:  # noqa: ANN401 (those of the work)
        """In the thread, to its end."""
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments))
