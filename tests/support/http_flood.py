"""An attack on a service in another process, with a normal client beside it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests.support.http_attacks import ATTACKS, HOST, ON_ADMIN

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[2]
MAX_TURN: Final = 0.020
"""Seconds of processor time."""
_PATIENCE: Final = 10.0
_PAUSE: Final = 0.02
_BODY: Final = b'{"user":"normal","path":"/api/search"}'
_CHECK: Final = b"POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(_BODY), _BODY)
_LIVEZ: Final = b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


class FloodServer:
    """See `tests/support/http_target.py`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        """It has just been started."""
        self._process = process
        self.ports: dict[str, int] = self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        answered: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answered

    def figures(self) -> dict[str, Any]:
        """What it has measured since the last time."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self._read()


@contextmanager
def flood_server(connections: int = 4_096, **more: object) -> Iterator[FloodServer]:
    """A service in a process of its own, for as long as the block."""
    command = [sys.executable, "-m", "tests.support.http_target", json.dumps({"connections": connections, **more})]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 (our own)
        try:
            yield FloodServer(process)
        finally:
            process.kill()


class Outcome(NamedTuple):
    """What the normal client got while an attack went on, and what the server measured."""

    asked: int
    answered: int
    lived: int
    """Answers of `/livez`, each on a connection of its own."""
    looked: int
    """How often it was asked."""
    longest_turn: float
    megabytes: float
    closed: dict[str, int]

    def check(self, max_turn: float = MAX_TURN) -> None:
        """The normal client was served, and the loop was never kept for long."""
        assert self.answered >= 0.95 * self.asked > 0, self
        assert self.lived == self.looked > 0, self
        assert self.longest_turn < max_turn, self


def flooded(server: FloodServer, connections: int, seconds: float, *names: str) -> Outcome:
    """Run attacks on one port, each for so many seconds, from a process of their own, and ask beside it."""
    port = server.ports["admin" if (ATTACKS | ON_ADMIN)[names[0]].admin else "http"]
    server.figures()
    command = [
        sys.executable,
        "-m",
        "tests.support.http_attacks",
        json.dumps(names),
        str(port),
        str(connections),
        str(seconds),
    ]
    with subprocess.Popen(command, cwd=ROOT) as attacker:  # noqa: S603 (our own)
        try:
            counts = asyncio.run(_beside(attacker, server.ports["http"]))
        finally:
            attacker.kill()
    return Outcome(*counts, **server.figures())


async def _beside(attacker: subprocess.Popen[bytes], port: int) -> tuple[int, int, int, int]:
    asking, looking = _Client(port, _CHECK), _Client(port, _LIVEZ)
    while attacker.poll() is None:
        await asking.ask()
        if asking.asked % 20 == 1:
            await looking.ask()
        await asyncio.sleep(_PAUSE)
    asking.close()
    return asking.asked, asking.answered, looking.answered, looking.asked


class _Client:
    """Asks one thing after the other on one connection, and connects anew where that was closed."""

    def __init__(self, port: int, request: bytes) -> None:
        self._port = port
        self._request = request
        self._connected: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self.asked = self.answered = 0

    async def ask(self) -> None:
        """Ask once; a kept connection may have been closed since, as every client has to expect."""
        self.asked += 1
        was_connected = self._connected is not None
        try:
            async with asyncio.timeout(_PATIENCE):
                if not await self._answered() and was_connected:
                    await self._answered()
        except TimeoutError:
            self.close()

    async def _answered(self) -> bool:
        with suppress(OSError, asyncio.IncompleteReadError):
            if self._connected is None:
                self._connected = await asyncio.open_connection(HOST, self._port)
            reader, writer = self._connected
            writer.write(self._request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            await reader.readexactly(length)
            self.answered += head.startswith(b"HTTP/1.1 200 ")
            if b"connection: close" in head:
                self.close()
            return True
        self.close()
        return False

    def close(self) -> None:
        """Hang up."""
        if self._connected is not None:
            self._connected[1].transport.abort()
            self._connected = None
