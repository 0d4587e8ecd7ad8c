"""From the spool to the sinks. Each sink reads at its own pace; one that is away disturbs no other.

Of all processes that share a spool one ships at a time, for all of them, the dead included.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

from headgate.dataplane.courier import Courier, SinkState, reason, waited

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Self

    from headgate.core.units import Micros
    from headgate.dataplane.courier import Source
    from headgate.ports import CountSink, EventSink

log = logging.getLogger("headgate")
T = TypeVar("T")

_SECONDS_BETWEEN_TRIES: Final = 1.0


class Lock(Protocol):
    """What the process holds that ships."""

    def release(self) -> None:
        """Let another one ship."""


class Route(NamedTuple):
    """A stream, and the sinks that store it."""

    stream: str
    source: Source
    sinks: Sequence[EventSink | CountSink]
    every: float | None = None
    """How many seconds there are between two looks at what is new; None: few."""


class Shipping:
    """Brings everything from the spool to the sinks. Use it in ``async with``."""

    def __init__(
        self,
        routes: Sequence[Route],
        lock: Callable[[], Lock | None],
        clock: Callable[[], Micros],
        seconds_to_end: float = 5.0,
    ) -> None:
        """`lock` is taken by the process that ships. At the end there are so many seconds for what is left."""
        self._couriers = [
            Courier(route.stream, route.source, sink, clock, self._aside, route.every)
            for route in routes
            for sink in route.sinks
        ]
        self._lock = lock
        self._seconds_to_end = seconds_to_end
        self._thread = ThreadPoolExecutor(1, "headgate-shipping")
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
        await asyncio.gather(*(courier.sink.close() for courier in self._couriers), return_exceptions=True)
        self._thread.shutdown()
        for courier in self._couriers:
            if courier.account.emitted:
                log.info("%s to %s: %s", courier.stream, courier.sink.name, courier.account)

    def state(self) -> Mapping[tuple[str, str], SinkState]:
        """How each sink is doing, by stream and name. Where another process ships, all is as at the start."""
        return {(courier.stream, courier.sink.name): courier.state() for courier in self._couriers}

    async def _run(self) -> None:
        lock = await self._locked()
        if lock is None:
            return
        try:
            await asyncio.gather(*(courier.run(self._stopping) for courier in self._couriers))
        finally:
            with suppress(OSError):
                for courier in self._couriers:
                    await courier.look()  # for the account
            lock.release()

    async def _locked(self) -> Lock | None:
        """The lock, once nobody else has it; None if it is time to end and somebody does."""
        while True:
            is_last, lock = self._stopping.is_set(), None
            try:
                lock = await self._aside(self._lock)
            except OSError as error:
                self._nothing_is_shipped(f"the spool cannot be locked: {reason(error)}")
            else:
                self._nothing_is_shipped(None)
            if lock is not None or is_last:
                return lock
            await waited(self._stopping, _SECONDS_BETWEEN_TRIES)

    def _nothing_is_shipped(self, error: str | None) -> None:
        """Say it once, and to whoever asks for the state of the sinks; None is the end of it."""
        before = {courier.error for courier in self._couriers}
        if error is not None and before == {None}:
            log.error("nothing is stored, %s", error)
        elif error is None and before != {None}:
            log.info("the spool can be locked again")
        for courier in self._couriers:
            courier.error = error

    async def _aside(self, work: Callable[..., T], *arguments: Any) -> T:  # noqa: ANN401 (those of the work)
        """In the thread, to its end."""
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments))
