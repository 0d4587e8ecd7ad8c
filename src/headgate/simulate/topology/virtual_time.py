"""An event loop whose time does not pass by itself: when nothing is ready, it goes on to the next timer at once.

So the real stores, which wait and set timers, run through a minute of a large deployment in seconds.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from headgate.core.units import SECOND

if TYPE_CHECKING:
    from headgate.core.denial import Nanos
    from headgate.core.units import Micros

_NANOS = 1_000


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs tasks and timers; it has no sockets, threads or signals."""

    def __init__(self, start: Micros) -> None:
        """`start` is the wall clock at time 0."""
        super().__init__()
        self._selector = self  # what BaseEventLoop asks for events when nothing is ready
        self._now = 0.0
        self._start = start

    def time(self) -> float:
        """Seconds since the start."""
        return self._now

    def micros(self) -> Micros:
        """The wall clock."""
        return self._start + int(self._now * SECOND)

    def nanos(self) -> Nanos:
        """The same, as monotonic clocks have it."""
        return self.micros() * _NANOS

    def select(self, timeout: float | None) -> list[Any]:
        """Let time pass until the next timer."""
        if timeout is None:
            msg = "everything waits, and no timer is set"
            raise RuntimeError(msg)
        self._now += max(0.0, timeout)
        return []

    def _process_events(self, event_list: list[Any]) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nothing has to be woken up."""
