"""Requests to a running service as fast as it answers, over a few connections, until it is gone."""

from __future__ import annotations

import asyncio
import re
import time
from typing import Final, NamedTuple, Self
from urllib.parse import urlsplit

_CONNECTIONS: Final = 32
_ID: Final = re.compile(rb'"id": ?"([0-9a-f]+)"')
_BODY: Final = b'{"user":"u%d","path":"/api"}'


class Decided(NamedTuple):
    """An answer: when it came, and the id of the decision."""

    at: float
    id: str


class Hammer:
    """A closed loop on each connection. Leave its block once the service was told to end."""

    def __init__(self, url: str, users: int = 50) -> None:
        """So many users take turns."""
        self._place = urlsplit(url)
        self._users = users
        self._tasks: list[asyncio.Task[None]] = []
        self._is_enough = False
        self.answers: list[Decided] = []
        self.unanswered = 0
        """Requests that were sent and never answered: it is unknown whether they were counted."""

    async def __aenter__(self) -> Self:
        """Begin."""
        self._tasks = [asyncio.create_task(self._one(number)) for number in range(_CONNECTIONS)]
        return self

    async def __aexit__(self, *_exc: object) -> None:
        """Wait until all connections are gone."""
        await asyncio.gather(*self._tasks)

    def stop(self) -> None:
        """Ask nothing more, though the service goes on."""
        self._is_enough = True

    async def until(self, many: int) -> None:
        """Wait until there are so many answers."""
        while len(self.answers) < many:  # noqa: ASYNC110 (nothing tells)
            await asyncio.sleep(0.01)

    async def _one(self, number: int) -> None:
        reader, writer = await asyncio.open_connection(self._place.hostname, self._place.port)
        body = _BODY % (number % self._users)
        request = b"POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        is_asked = False
        try:
            while not self._is_enough:
                writer.write(request)
                is_asked = True
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
                found = _ID.search(await reader.readexactly(length))
                assert found is not None
                is_asked = False
                self.answers.append(Decided(time.monotonic(), found[1].decode("ascii")))
        except (OSError, asyncio.IncompleteReadError):
            self.unanswered += is_asked
        finally:
            writer.close()
