"""Long work cut into slices: one slice in each turn of the event loop, in rotation, whoever's it is.

A batch of a thousand checks takes tens of milliseconds. Carried out at once, it would keep all other clients waiting.
"""

from __future__ import annotations

import asyncio
from collections import deque


class Slices:
    """The queue of those who have another slice to do."""

    def __init__(self) -> None:
        """Nobody waits."""
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def turn(self) -> None:
        """Wait until it is this caller's turn to do one slice, of about a millisecond."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # the first one, or the queue of a loop that has ended
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
