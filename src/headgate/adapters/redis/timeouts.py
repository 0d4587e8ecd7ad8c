"""When a call to Redis times out: calls are in flight, no reply arrived for the deadline, and none is unread.

A reply that waits in our own process is not the server's fault, so only time that this process was awake counts
(`headgate.core.silence`). Any reply on the connection starts the deadline again: a server that replies, however many
calls queue behind, is overloaded and not unavailable. Before a call times out, the socket is checked for unread data.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.adapters.clock import cpu_wait_seconds
from headgate.core.silence import Silence

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from headgate.adapters.redis.call import RedisCall

log = logging.getLogger("headgate")

_CHECKS: Final = 5
"""In one deadline. Each is an iteration of the event loop of its own, which reads from all sockets in between."""
_SLACK_SECONDS: Final = 0.01
"""How late a check may be; anything beyond is a delay of this process, not of the server."""
_MIN_SHARE: Final = 0.5
"""Of the time between two checks that always counts: a dead server times out on any machine."""
_MIN_SECONDS: Final = 0.001
"""Between two checks; event loops count in milliseconds."""
_TICKS: Final = 10


class Timeouts(NamedTuple):
    """How long to wait for a server."""

    deadline: float = 0.05
    """Seconds without any reply after which the calls in flight time out."""
    probe_every: float = 1.0
    """Seconds between two probes of a server whose circuit is open."""


class TimeoutWatch:
    """Watches the calls to one server, oldest first, with one timer for all of them."""

    def __init__(
        self,
        deadline: float,
        last_reply_at: Callable[[], float],
        has_unread: Callable[[], bool],
        on_timeout: Callable[[RedisCall], None],
        cpu_wait: Callable[[], float] = cpu_wait_seconds,
    ) -> None:
        """`on_timeout` gets each call without a reply after `deadline` seconds of silence.

        `last_reply_at` gives when the server last replied or connecting made progress, on the clock of the event loop;
        `has_unread` whether a reply is in the socket at this moment; `cpu_wait` how many seconds this thread has waited
        for a CPU so far.
        """
        self._deadline = deadline
        self._last_reply_at = last_reply_at
        self._has_unread = has_unread
        self._on_timeout = on_timeout
        self._cpu_wait = cpu_wait
        self._calls: deque[tuple[RedisCall, int, float]] = deque()
        """Each call with the attempt that is watched, and when it was sent by the clock of `_silence`."""
        self._timer: asyncio.TimerHandle | None = None
        self._silence = Silence(_MIN_SHARE, _SLACK_SECONDS)
        self._pause = 0.0
        """After how many seconds the next check is due."""

    def watch(self, call: RedisCall) -> None:
        """Time out this attempt of a call when the server has been silent for the deadline."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        if self._timer is None:
            self._calls.clear()
            self._check_after(loop, self._deadline / _CHECKS)
            self._silence.begin(now, self._cpu_wait())
        # No later than the next check is due: the delay of a late check does not count for calls sent meanwhile either.
        silence = self._silence
        sent_at = silence.clock + min(now - silence.checked_at, self._pause + _SLACK_SECONDS)
        self._calls.append((call, call.attempts, sent_at))

    def _check_after(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._pause = max(_MIN_SECONDS, seconds)
        self._timer = loop.call_later(self._pause, self._check)

    def _check(self) -> None:
        loop = asyncio.get_running_loop()
        calls, silence = self._calls, self._silence
        silence.advance(loop.time(), self._cpu_wait(), self._pause, self._last_reply_at())
        while calls:
            call, attempt, sent_at = calls[0]
            if not call.is_concluded and call.attempts == attempt:
                left = self._deadline - min(silence.lasts, silence.clock - sent_at)
                if left > 0:
                    self._check_after(loop, min(left, self._deadline / _CHECKS))
                    return
                if self._has_unread():  # the event loop reads it before the next check
                    self._check_after(loop, _MIN_SECONDS)
                    return
                calls.popleft()
                self._time_out(call)
            else:
                calls.popleft()
        self._timer = None

    def _time_out(self, call: RedisCall) -> None:
        try:
            self._on_timeout(call)
        except Exception:  # one fault must not leave all other calls waiting
            log.exception("redis: a timeout could not be reported to the check that waits")

    def close(self) -> None:
        """Watch no call any more."""
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
