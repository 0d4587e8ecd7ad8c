"""The frameworks part: a small FastAPI application on Redis, with headgate, with slowapi, and without limits."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import uvloop
from bench.measure import guard, race
from bench.rows import Outcome, Row
from bench.server import free_port, programs, running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.measure import Timing, Watch

PART = "frameworks"
CONNECTIONS = 64
PLENTY = 1_000_000
_REQUEST = b"GET /items/%d HTTP/1.1\r\nHost: localhost\r\n\r\n"


def run(watch: Watch, *, quick: bool = False) -> Outcome:
    """Measure everything of this part; `quick` only shows that it works."""
    calls, rounds = (64, 1) if quick else (3_200, 3)
    names = ("headgate", "headgate without headers", "slowapi", "slowapi without headers", "plain")
    outcome = Outcome(PART)
    with running(programs()[0]) as server:
        for name in names[:-1]:
            server.flush()
            with _serving(name, server.url, 5) as ask:
                guard(name, ask(CONNECTIONS), 5)
        server.flush()
        with ExitStack() as stack:
            apps = {name: stack.enter_context(_serving(name, server.url, PLENTY)) for name in names}
            runs = {name: _guarded(name, ask, calls) for name, ask in apps.items()}
            timings = race(f"FastAPI, {CONNECTIONS} connections", runs, calls, rounds, watch)
    outcome.figures["fastapi"] = [
        {"name": name, "best": 1 / timing.best, "median": 1 / timing.median} for name, timing in timings.items()
    ]
    outcome.rows.append(_pace("fastapi_redis", timings["headgate"], timings["slowapi"], "slowapi"))
    bare = [timings[f"{name} without headers"] for name in ("headgate", "slowapi")]
    outcome.rows.append(_pace("fastapi_redis_without_headers", *bare, "slowapi"))
    outcome.rows.append(_pace("fastapi_redis_plain", timings["headgate"], timings["plain"], "no limits at all"))
    return outcome


def _pace(name: str, ours: Timing, reference: Timing, against: str) -> Row:
    ratio = reference.median / ours.median
    return Row(name, 1 / ours.best, 1 / reference.best, "requests/s", against, median_ratio=ratio)


def _guarded(name: str, ask: Callable[[int], int], calls: int) -> Callable[[], None]:
    return lambda: guard(name, ask(calls), calls)


@contextmanager
def _serving(name: str, url: str, amount: int) -> Iterator[Callable[[int], int]]:
    """An application in a process of its own; the function calls it so often and says how many calls passed."""
    port = free_port()
    command = [sys.executable, "-m", "bench.framework_app", name, str(port), url, str(amount)]
    process = subprocess.Popen(command)  # noqa: S603 (our own)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            clients = runner.run(_connected(port))
            yield lambda calls: runner.run(_called(clients, calls))
            for client in clients:
                client.close()
    finally:
        process.terminate()
        process.wait()


class _Client(asyncio.Protocol):
    """One connection that calls again as soon as it was answered."""

    def __init__(self) -> None:
        self.passed = 0
        self._left = 0
        self._answer = b""
        self._done: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._transport = transport

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        if self._done is not None and not self._done.done():
            self._done.set_exception(error or ConnectionResetError("the application hung up"))

    def call(self, calls: int) -> asyncio.Future[None]:
        """Call so often, one after the other."""
        self.passed, self._left = 0, calls
        self._done = asyncio.get_running_loop().create_future()
        self._send()
        return self._done

    def _send(self) -> None:
        self._left -= 1
        self._transport.write(_REQUEST % self._left)  # type: ignore[attr-defined] # it is a transport

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self._answer += data
        head, end, body = self._answer.partition(b"\r\n\r\n")
        if not end:
            return
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        if len(body) < length:
            return
        self.passed += self._answer.startswith(b"HTTP/1.1 200")
        self._answer = b""
        if self._left:
            self._send()
        elif self._done is not None:
            self._done.set_result(None)


async def _connected(port: int) -> list[_Client]:
    loop = asyncio.get_running_loop()
    for _ in range(2_000):
        try:
            return [(await loop.create_connection(_Client, "127.0.0.1", port))[1] for _ in range(CONNECTIONS)]
        except ConnectionError:
            await asyncio.sleep(0.01)  # until its port is there; nothing else tells
    msg = "the application did not start"
    raise RuntimeError(msg)


async def _called(clients: list[_Client], calls: int) -> int:
    await asyncio.gather(*(client.call(calls // len(clients)) for client in clients))
    return sum(client.passed for client in clients)
