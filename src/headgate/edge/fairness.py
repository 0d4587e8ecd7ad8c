"""Fair shares of the event loop, so that no client keeps the others waiting.

A server that reads everything it finds lets one client with a megabyte of calls, or a thousand clients with one call
each, delay the replies of Redis and all other clients. So the work on connections comes in time slices: after two
milliseconds the rest is queued, the event loop polls every socket once, and the queue continues, one connection after
the other. Batches are cut into pieces, and `RoundRobin` runs one piece in each loop iteration.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

from headgate.adapters.clock import monotonic

if TYPE_CHECKING:
    from collections.abc import Callable

SLICE_SECONDS: Final = 0.002


class TimeSlice:
    """The time slice that all connections of one event loop share.

    A connection checks `is_over` before each piece of work. If it is, the connection stops, and gives `defer` the
    function that continues. A quiet server needs no timer and no callback for it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None, clock: Callable[[], float] = monotonic) -> None:
        """`clock` is in seconds and never steps back."""
        self._loop = loop or asyncio.get_running_loop()
        self._clock = clock
        self._queue: deque[Callable[[], None]] = deque()
        self.ends = 0.0
        """By the clock. Work that is started now and runs later may be subtracted."""
        self._is_scheduled = False
        self._has_polled = True
        """Whether the event loop has polled its sockets since this slice began."""

    def may_start(self) -> bool:
        """Whether a connection with new input may be served at once, in this slice or in a new one.

        If the loop has polled its sockets since the last slice began, that slice delayed nothing. To queue and poll
        once more would cost each input of a quiet server as much as a tenth of a decision.
        """
        if self._queue:
            return False
        now = self._clock()
        if now >= self.ends:
            if not self._has_polled:
                return False
            self._begin(now)
        return True

    def _begin(self, now: float) -> None:
        self.ends = now + SLICE_SECONDS
        self._has_polled = False
        self._loop.call_soon(self._polled)

    def _polled(self) -> None:
        self._has_polled = True

    @property
    def is_over(self) -> bool:
        """Whether work has to wait: the slice has used its time, or other connections are queued."""
        return bool(self._queue) or self._clock() >= self.ends

    @property
    def has_time(self) -> bool:
        """Whether the connection that is being served may continue: queued connections do not count."""
        return self._clock() < self.ends

    def defer(self, serve: Callable[[], None]) -> None:
        """Call `serve` after those that were deferred before. It may defer itself again."""
        self._queue.append(serve)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._serve_queue)

    def _serve_queue(self) -> None:
        self._is_scheduled = False
        clock, queue = self._clock, self._queue
        self._begin(clock())
        try:
            while queue:
                queue.popleft()()
                if clock() >= self.ends:
                    break
        finally:  # also if one of them fails: the others wait
            if queue and not self._is_scheduled:
                self._is_scheduled = True
                self._loop.call_soon(self._serve_queue)


class RoundRobin:
    """Long jobs take turns: one piece of one job in each loop iteration.

    A batch of a thousand checks takes tens of milliseconds. Done at once, it would delay all other clients.
    """

    def __init__(self) -> None:
        """Start without jobs."""
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def wait_turn(self) -> None:
        """Wait until the caller may do one piece, of about a millisecond."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # the first job, or the queue of a loop that has ended
            self._waiting.clear()
            self._loop = loop
        if not self._waiting:
            loop.call_soon(self._next)
        future: asyncio.Future[None] = loop.create_future()
        self._waiting.append(future)
        await future

    def _next(self) -> None:
        waiting = self._waiting
        while waiting:
            future = waiting.popleft()
            if not future.done():  # it was cancelled
                future.set_result(None)
                break
        if waiting and self._loop is not None:
            self._loop.call_soon(self._next)
