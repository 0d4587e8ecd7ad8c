"""Turns of the event loop: how long a process works on what clients sent before it looks at its sockets again.

A server that reads everything it finds lets one client with a megabyte of calls, or a thousand clients with one call
each, keep the answers of Redis and all other clients waiting. So work on connections is bounded in time: after two
milliseconds what is left is queued, the event loop looks at every socket once, and then the queue goes on, one
connection after the other.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

from headgate.adapters.clock import monotonic

if TYPE_CHECKING:
    from collections.abc import Callable

TURN_SECONDS: Final = 0.002


class Turns:
    """The turns that all connections of one event loop share.

    A connection asks `is_over` before each piece of work. Where it is, the connection stops, and hands `later` the
    function that goes on with it. No timer and no callback is needed while there is little to do: a turn that began
    long ago is over too, which costs one connection one look at the sockets every two milliseconds.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None, clock: Callable[[], float] = monotonic) -> None:
        """`clock` is in seconds and never steps back."""
        self._loop = loop or asyncio.get_running_loop()
        self._clock = clock
        self._queue: deque[Callable[[], None]] = deque()
        self._ends = 0.0
        self._is_scheduled = False
        self._has_come_round = True
        """Whether the event loop has looked at its sockets since this turn began."""

    def may_begin(self) -> bool:
        """Whether a connection with new input may be served at once, in this turn or in one that begins with it.

        Where the loop has come round since the last turn began, nothing was held up by it: to queue and come round
        once more would cost each input of a quiet service as much as a tenth of a decision.
        """
        if self._queue:
            return False
        now = self._clock()
        if now >= self._ends:
            if not self._has_come_round:
                return False
            self._begin(now)
        return True

    def _begin(self, now: float) -> None:
        self._ends = now + TURN_SECONDS
        self._has_come_round = False
        self._loop.call_soon(self._come_round)

    def _come_round(self) -> None:
        self._has_come_round = True

    @property
    def is_over(self) -> bool:
        """Whether work has to wait: this turn has used its time, or others wait already."""
        return bool(self._queue) or self._clock() >= self._ends

    @property
    def has_time(self) -> bool:
        """Whether a connection that is being served may go on: only this turn's time counts, not who waits."""
        return self._clock() < self._ends

    def later(self, serve: Callable[[], None]) -> None:
        """Serve a connection once those before it were served. One that still has work then queues itself again."""
        self._queue.append(serve)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._next)

    def _next(self) -> None:
        self._is_scheduled = False
        clock, queue = self._clock, self._queue
        self._begin(clock())
        ends = self._ends
        try:
            while queue:
                queue.popleft()()
                if clock() >= ends:
                    break
        finally:  # also if one of them fails: the others wait
            if queue and not self._is_scheduled:
                self._is_scheduled = True
                self._loop.call_soon(self._next)
