"""Requests to a running service at a steady rate, over a few connections, and what each caller waited."""

from __future__ import annotations

import asyncio
import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_TICK: Final = 0.001
_CONNECTIONS: Final = 16


class Answer(NamedTuple):
    """One check: when it was asked, how long its caller waited, and what came back."""

    asked: float
    wait: float
    queued: float
    """How much of the wait the machine ran other programs while one of ours was ready to go on."""
    status: int
    source: str


class Queues:
    """How long the threads of some processes were ready and the machine ran something else. Use it in ``with``."""

    def __init__(self, *processes: int) -> None:
        """By the numbers of the processes, which have all their threads already."""
        places = [place for process in processes for place in Path(f"/proc/{process}/task").iterdir()]
        self._files = {os.open(place / "schedstat", os.O_RDONLY): 0 for place in places}
        """With what each said last: threads of Kafka's client come and go."""

    def __enter__(self) -> Self:
        """Look."""
        return self

    def __exit__(self, *_exc: object) -> None:
        """Look no more."""
        for file in self._files:
            os.close(file)

    def seconds(self) -> float:
        """All of them together, so far."""
        for file in self._files:
            with suppress(ProcessLookupError):
                self._files[file] = int(os.pread(file, 100, 0).split()[1])
        return sum(self._files.values()) / 1e9


class HttpLoad:
    """An open loop of checks. Leave its block to stop it; checks that are still in flight are awaited."""

    def __init__(self, url: str, body: Callable[[int], Mapping[str, object]], per_second: int, queues: Queues) -> None:
        """`body` is what the check of a number asks; `queues` are of all who take part in an answer."""
        self._place = urlsplit(url)
        self._queues = queues
        self._body = body
        self._per_second = per_second
        # In turn, so that none is idle for so long that the service closes it.
        self._free: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped = False
        self.answers: list[Answer] = []
        self.errors: list[BaseException] = []

    async def __aenter__(self) -> Self:
        """Connect and begin."""
        for _ in range(_CONNECTIONS):
            self._free.put_nowait(await asyncio.open_connection(self._place.hostname, self._place.port))
        self._running = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_exc: object) -> None:
        """Stop."""
        self._stopped = True
        await self._running
        await asyncio.gather(*self._tasks)
        while not self._free.empty():
            _, writer = self._free.get_nowait()
            writer.close()
            await writer.wait_closed()
        self.answers.sort()

    def between(self, start: float, end: float) -> list[Answer]:
        """What was asked in a span of time."""
        return [answer for answer in self.answers if start <= answer.asked < end]

    async def _run(self) -> None:
        began, number = time.perf_counter(), 0
        while not self._stopped:
            await asyncio.sleep(_TICK)
            while number < (time.perf_counter() - began) * self._per_second:
                task = asyncio.create_task(self._one(number))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                number += 1

    async def _one(self, number: int) -> None:
        body = json.dumps(self._body(number)).encode()
        head = f"POST /v1/check HTTP/1.1\r\nHost: {self._place.netloc}\r\nContent-Length: {len(body)}\r\n\r\n"
        asked, queued = time.perf_counter(), self._queues.seconds()
        reader, writer = await self._free.get()
        try:
            writer.write(head.encode() + body)
            status, source = await _answer(reader)
        except (OSError, ValueError, asyncio.IncompleteReadError) as error:
            self.errors.append(error)
            writer.close()
            return
        self._free.put_nowait((reader, writer))
        wait = time.perf_counter() - asked
        self.answers.append(Answer(asked, wait, self._queues.seconds() - queued, status, source))


async def _answer(reader: asyncio.StreamReader) -> tuple[int, str]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("ascii").lower()
    (length,) = [int(line.partition(":")[2]) for line in head.split("\r\n") if line.startswith("content-length:")]
    body = json.loads(await reader.readexactly(length))
    return int(head.split(" ", 2)[1]), str(body.get("source", ""))
