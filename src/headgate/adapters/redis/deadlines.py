"""Giving up on calls that get no answer: one timer for all of them, since all wait equally long."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

from headgate.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

_STALLED_SECONDS: Final = 0.005
"""A timer that comes so late tells of a busy event loop, not of a silent server."""


class Call:
    """Something asked of a server. It is settled once: by its answer, or by nobody's answering in time."""

    __slots__ = ("_answered", "expires")

    def __init__(self, answered: Callable[[object], None]) -> None:
        """`answered` gets the answer, or a `StoreError`."""
        self._answered: Callable[[object], None] | None = answered
        self.expires = 0.0

    @property
    def is_settled(self) -> bool:
        """Whether nobody waits any more."""
        return self._answered is None

    def settle(self, answer: object) -> None:
        """Hand the answer over; a later one is dropped."""
        answered, self._answered = self._answered, None
        if answered is not None:
            answered(answer)


class Deadlines:
    """Calls in the order of their deadlines."""

    def __init__(self, seconds: float, missed: Callable[[Call, StoreError], None]) -> None:
        """`missed` gets each call that was not answered after so many seconds."""
        self.seconds = seconds
        self._missed = missed
        self._calls: deque[Call] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._planned = 0.0
        self._was_late = False

    def watch(self, call: Call) -> None:
        """Give up on a call once its time is over."""
        loop = asyncio.get_running_loop()
        call.expires = loop.time() + self.seconds
        self._calls.append(call)
        if self._timer is None:
            self._look_at(call.expires)

    def _look_at(self, instant: float) -> None:
        self._planned = instant
        self._timer = asyncio.get_running_loop().call_at(instant, self._look)

    def _look(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._planned > _STALLED_SECONDS and not self._was_late:
            # We could not look earlier, so the answer may lie in the socket: read that first.
            # But once: in a program that is always busy we would never give up.
            self._was_late = True
            self._look_at(now + _STALLED_SECONDS / 2)
            return
        self._was_late = False
        calls = self._calls
        while calls and (calls[0].is_settled or calls[0].expires <= now):
            call = calls.popleft()
            if not call.is_settled:
                msg = f"no answer within {self.seconds * 1000:g} ms"
                self._missed(call, StoreError(msg, transient=True))
        self._timer = None
        if calls:
            self._look_at(calls[0].expires)

    def close(self) -> None:
        """Watch nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._calls.clear()
