"""Of many concurrent callers with the same question, one asks the store and the others wait for its answer."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.core.decision import Key


class SingleFlight:
    """The questions in flight, by counter."""

    def __init__(self, *, blocks: bool) -> None:
        """`blocks` says that the callers are threads, which block instead of waiting on an event loop."""
        self._blocks = blocks
        self._open: dict[Key, threading.Event | asyncio.Event] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        """The event loop of the questions in flight."""

    def begin(self, key: Key) -> tuple[threading.Event | asyncio.Event, bool]:
        """The end of the question about a counter, and whether the caller is the one to ask it."""
        if not self._blocks and self._loop is not (loop := _running_loop()):
            self._loop, self._open = loop, {}  # a question on a loop that has ended is never answered
        mine = threading.Event() if self._blocks else asyncio.Event()
        flight = self._open.setdefault(key, mine)
        return flight, flight is mine

    def end(self, key: Key, mine: threading.Event | asyncio.Event) -> None:
        """The question was answered, or given up."""
        if self._open.get(key) is mine:
            del self._open[key]
        mine.set()

    def forget(self) -> None:
        """In a forked child: the questions in flight are the parent's."""
        self._open.clear()


async def wait_for(flight: threading.Event | asyncio.Event) -> None:
    """Wait for the end of a question."""
    if isinstance(flight, asyncio.Event):
        await flight.wait()
    else:
        flight.wait()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:  # a store that never waits needs none
        return None
