"""A time limit for very many short waits: a dictionary entry for each, where `asyncio.timeout` sets a timer.

A timer costs a tenth of a whole check, and next to no body is ever late.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable

T = TypeVar("T")

_LOOKS_PER_LIMIT: Final = 4


class Late(TimeoutError):
    """A wait took too long."""


class Patience:
    """Lets waits take `seconds`, and up to a quarter more."""

    def __init__(self, seconds: float) -> None:
        """Nothing is watched yet."""
        self.seconds = seconds
        self._since: dict[asyncio.Task[object] | None, int] = {}
        self._looks = 0
        """The clock by which waits are measured."""
        self._looking = False
        self._loop: asyncio.AbstractEventLoop | None = None

    async def wait(self, step: Awaitable[T]) -> T:
        """Await something; `Late` if it takes too long."""
        # To be told the loop spares a system call, which finding it out takes each time (Python asks for its process).
        task = asyncio.current_task(self._loop) if self._looking else None
        if task is None:
            self._loop = loop = asyncio.get_running_loop()
            task = asyncio.current_task(loop)
            self._looking = True
            loop.call_later(self.seconds / _LOOKS_PER_LIMIT, self._look, loop)
        self._since[task] = self._looks
        try:
            return await step
        except asyncio.CancelledError:
            if task is None or task in self._since:  # somebody else's doing
                raise
            task.uncancel()
            raise Late from None
        finally:
            self._since.pop(task, None)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """End the waits that have taken too long; look again as long as there are others."""
        self._looks += 1
        latest = self._looks - _LOOKS_PER_LIMIT - 1  # a wait that began just before a look has seen one too many
        for task in [task for task, since in self._since.items() if since <= latest]:
            del self._since[task]
            if task is not None:
                task.cancel()
        self._looking = bool(self._since)
        if self._looking:
            loop.call_later(self.seconds / _LOOKS_PER_LIMIT, self._look, loop)
