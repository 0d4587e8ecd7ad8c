"""When a server counts as unavailable: something is owed, nothing came for the deadline, nothing lies unread.

An answer that waits in our own process is no fault of the server. So time is counted here only as far as this
process was awake to see it: a stalled event loop or a stopped and continued process makes a look late, and what a
look is late is not counted. Nor is time for which the machine kept us waiting for a processor: a server beside us, or
a proxy before it, waits as well. Any reply on the connection starts the silence anew: a
server that replies, however many calls queue behind, is overloaded and not unavailable. And before a call is given up
the socket itself is looked at, every time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from headgate.adapters.clock import cpu_wait_seconds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

log = logging.getLogger("headgate")

_LOOKS: Final = 5
"""In one deadline. Each is a turn of the event loop of its own, which reads from all sockets in between."""
_SLACK_SECONDS: Final = 0.01
"""So late a look may come; all beyond tells of this process, not of the server."""
_MIN_SHARE: Final = 0.5
"""Of the time between two looks that always counts: a server that is gone is given up on any machine."""
_MIN_SECONDS: Final = 0.001
"""Between two looks; event loops count in milliseconds."""
_TICKS: Final = 10


class Call:
    """Something asked of a server. It is settled once: by its answer, or because the server is silent."""

    __slots__ = ("_answered", "since")

    def __init__(self, answered: Callable[[object], None]) -> None:
        """`answered` gets the answer, or a `StoreError`."""
        self._answered: Callable[[object], None] | None = answered
        self.since = 0.0
        """When it was asked, on the clock of `TimeoutWatch`."""

    @property
    def is_settled(self) -> bool:
        """Whether the caller has its answer."""
        return self._answered is None

    def settle(self, answer: object) -> None:
        """Hand the answer over; a later one is dropped."""
        answered, self._answered = self._answered, None
        if answered is not None:
            answered(answer)


class TimeoutWatch:
    """Watches the calls to one server, oldest first, with one timer for all of them."""

    def __init__(
        self,
        deadline: float,
        last_reply_at: Callable[[], float],
        has_unread: Callable[[], bool],
        silent: Callable[[Call], None],
        kept_waiting: Callable[[], float] = cpu_wait_seconds,
    ) -> None:
        """`silent` gets each call that is given up after `deadline` seconds of silence.

        `last_reply_at` says when the server last replied or the way to it got any further, on the clock of the event
        loop; `has_unread` looks whether a reply lies in the socket at this moment; `kept_waiting` says how many
        seconds the machine has kept this thread waiting for a processor so far.
        """
        self._deadline = deadline
        self._heard_at = last_reply_at
        self._has_unread = has_unread
        self._silent = silent
        self._kept_waiting = kept_waiting
        self._kept_before = 0.0
        self._calls: deque[Call] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._clock = 0.0
        """Seconds that this process was awake to see."""
        self._silence = 0.0
        """Of these, how many have passed since the server was heard last."""
        self._looked = 0.0
        """When we looked last, on the clock of the event loop, as all instants but `Call.since`."""
        self._pause = 0.0
        """After how many seconds we meant to look again."""

    def watch(self, call: Call) -> None:
        """Give up on a call when the server has been silent for the deadline."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        if self._timer is None:
            self._calls.clear()
            self._looked, self._silence, self._kept_before = now, 0.0, self._kept_waiting()
            self._look_again(loop, self._deadline / _LOOKS)
        # No later than the next look can be: what a look is late is not counted for those who came meanwhile either.
        call.since = self._clock + min(now - self._looked, self._pause + _SLACK_SECONDS)
        self._calls.append(call)

    def _look_again(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._pause = max(_MIN_SECONDS, seconds)
        self._timer = loop.call_later(self._pause, self._look)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        self._advance(loop.time())
        calls = self._calls
        while calls:
            oldest = calls[0]
            if not oldest.is_settled:
                left = self._deadline - min(self._silence, self._clock - oldest.since)
                if left > 0:
                    self._look_again(loop, min(left, self._deadline / _LOOKS))
                    return
                if self._has_unread():  # the event loop reads it before the next look
                    self._look_again(loop, _MIN_SECONDS)
                    return
                calls.popleft()
                self._give_up(oldest)
            else:
                calls.popleft()
        self._timer = None

    def _give_up(self, call: Call) -> None:
        try:
            self._silent(call)
        except Exception:  # one fault must not leave all others waiting
            log.exception("a call that was given up could not be answered")

    def _advance(self, now: float) -> None:
        """Let time pass, as far as this process saw it."""
        kept = self._kept_waiting()
        seen = min(now - self._looked, self._pause + _SLACK_SECONDS) - (kept - self._kept_before)
        seen = max(seen, _MIN_SHARE * self._pause)
        self._kept_before = kept
        last_reply_at = self._heard_at()
        self._clock += seen
        self._silence = min(seen, now - last_reply_at) if last_reply_at >= self._looked else self._silence + seen
        self._looked = now

    def close(self) -> None:
        """Watch nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._calls.clear()


@asynccontextmanager
async def awake_timeout(seconds: float) -> AsyncIterator[None]:
    """`asyncio.timeout`, but only time that this process was awake counts: a second of SIGSTOP is a tenth of it."""
    async with asyncio.timeout(None) as timeout:
        ticking = asyncio.get_running_loop().create_task(_tick(timeout, seconds))
        try:
            yield
        finally:
            ticking.cancel()


async def _tick(ends: asyncio.Timeout, seconds: float) -> None:
    for _ in range(_TICKS):
        await asyncio.sleep(seconds / _TICKS)
    ends.reschedule(asyncio.get_running_loop().time())
