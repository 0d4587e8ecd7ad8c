"""Callers of a decision service: connections that ask one thing after the other, as fast as it goes or at a pace."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import uvloop

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HOST = "127.0.0.1"
_LOOKS_EVERY = 1.0
"""Seconds between two looks whether it shall stop."""
_PASSED, _REFUSED = b"HTTP/1.1 200", b"HTTP/1.1 429"


def request(user: str, path: str = "/api/search") -> bytes:
    """A check on the wire."""
    body = f'{{"user":"{user}","tier":"free","method":"GET","path":"{path}"}}'
    return f"POST /v1/check HTTP/1.1\r\nHost: headgate\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


class _Caller(asyncio.Protocol):
    """One connection. An answer ends with a brace and a line's end, as all answers here do."""

    def __init__(self, asked: Sequence[bytes], first: int, every: float | None, *, may_refuse: bool) -> None:
        self._asked = asked
        self._answers = (_PASSED, _REFUSED) if may_refuse else (_PASSED,)
        self._next = first
        self._every = every
        self._due = 0.0
        self._transport = asyncio.Transport()
        self._stopped = False
        self.latencies: list[float] = []
        self.failed = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment] # of a stream, as all of TCP are

    def begin(self, after: float) -> None:
        """Ask for the first time after so many seconds, and then again and again."""
        asyncio.get_running_loop().call_later(after, self._first)

    def _first(self) -> None:
        self._due = time.perf_counter()
        self._ask()

    def _ask(self) -> None:
        if self._stopped:
            return
        self._transport.write(self._asked[self._next % len(self._asked)])
        self._next += 1

    def data_received(self, data: bytes) -> None:
        if not data.endswith(b"}\n"):
            return
        now = time.perf_counter()
        # From when it was due: a caller that could not ask in time has waited, too.
        self.latencies.append(now - self._due)
        self.failed += not data.startswith(self._answers)
        if self._every is None:
            self._due = now
            self._ask()
            return
        self._due += self._every
        if self._due <= now:
            self._ask()
        else:
            asyncio.get_running_loop().call_later(self._due - now, self._ask)

    def end(self) -> None:
        self._stopped = True
        self._transport.close()


def load(
    port: int,
    asked: Sequence[bytes],
    seconds: float,
    connections: int,
    pace: float | None = None,
    *,
    may_refuse: bool = False,
    is_stopped: Callable[[], bool] = lambda: False,
) -> list[float]:
    """The latency of each request in so many seconds, in seconds; `pace` is how many a second altogether."""

    async def run() -> list[float]:
        loop = asyncio.get_running_loop()
        every = None if pace is None else connections / pace
        callers = []
        for number in range(connections):
            first = number * (len(asked) // connections)
            _, caller = await loop.create_connection(
                lambda at=first: _Caller(asked, at, every, may_refuse=may_refuse),  # type: ignore[misc] # a default binds it
                HOST,
                port,
            )
            callers.append(caller)
        for number, caller in enumerate(callers):
            caller.begin(0.0 if every is None else every * number / connections)
        ends = loop.time() + seconds
        while (left := ends - loop.time()) > 0 and not is_stopped():  # noqa: ASYNC110 (a signal tells, not a task)
            await asyncio.sleep(min(left, _LOOKS_EVERY))
        for caller in callers:
            caller.end()
        assert not any(caller.failed for caller in callers), "a check was answered in no way that it should be"
        return [latency for caller in callers for latency in caller.latencies]

    return uvloop.run(run())
