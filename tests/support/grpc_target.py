"""A gRPC server to attack: ``python -m tests.support.grpc_target CONNECTIONS``.

It prints its port, then its figures for each line it reads.
It measures the turns of its event loop in processor time, so that a busy machine does not matter.
"""

from __future__ import annotations

import asyncio
import json
import selectors
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from tests.support.addresses import free_address

from headgate import Limiter
from headgate.edge.acceptor import ClosedConnections
from headgate.edge.grpc.methods import methods
from headgate.edge.grpc.server import serving_grpc
from headgate.edge.http.server import freeze_gc
from headgate.edge.rls.decisions import RateLimits

if TYPE_CHECKING:
    from collections.abc import Iterator

RULES = [
    {"name": "web", "match": {"attributes": {"domain": "web"}}, "per": ["ip"], "limits": "100000000/hour"},
    {"name": "few", "match": {"attributes": {"domain": "few"}}, "limits": "3/day", "algorithm": "fixed_window"},
]


class TimedSelector(selectors.DefaultSelector):
    """Knows how long the longest turn of an event loop was, in seconds of processor time."""

    longest = 0.0
    _began = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self._began:
            self.longest = max(self.longest, time.thread_time() - self._began)
        ready = super().select(timeout)
        self._began = time.thread_time()
        return ready


async def _serve(selector: TimedSelector, most: int) -> None:
    address = free_address("127.0.0.1", 0)
    closed = ClosedConnections("grpc")
    async with (
        Limiter.open("memory://", rules=RULES) as limiter,
        serving_grpc(methods(RateLimits(limiter), lambda: True), address, 0, max_connections=most, closed=closed),
    ):
        freeze_gc()
        sys.stdout.write(f"{address.port}\n")
        sys.stdout.flush()
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        selector.longest = 0.0
        while await reader.readline():
            sys.stdout.write(json.dumps([selector.longest, _resident(), closed.totals]) + "\n")
            sys.stdout.flush()
            selector.longest = 0.0


def _resident() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 (no file on a disk)
        return int(file.read().split()[1]) * 4_096


class Figures(NamedTuple):
    """What the target says of itself since it was asked last."""

    longest_turn: float
    resident: int
    closed: dict[str, int]
    """Connections by the reason why they were closed, since the start."""


class Target:
    """The server, in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.port = int(self._line())

    def figures(self) -> Figures:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return Figures(*json.loads(self._line()))

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


@contextmanager
def target(most: int = 1_024) -> Iterator[Target]:
    """A server with at most so many connections, until the end of the block."""
    command = [sys.executable, "-m", "tests.support.grpc_target", str(most)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: S603 (ourselves)
    try:
        yield Target(process)
    finally:
        process.kill()
        process.communicate()


if __name__ == "__main__":
    timed = TimedSelector()
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(timed)) as runner:
        runner.run(_serve(timed, int(sys.argv[1])))
