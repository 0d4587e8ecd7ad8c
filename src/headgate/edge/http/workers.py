"""Several processes that answer on one port, and the one that keeps them: it answers nothing itself.

Each process has a listening socket of its own on the shared port, and the system deals connections out to
them. One that dies is started again.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from headgate.edge.http.server import Stops
from headgate.errors import HeadgateError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

    from headgate.edge.http.server import Ending

log = logging.getLogger("headgate")

_SECONDS_BEFORE_THE_NEXT: Final = 0.5
_SECONDS_TO_CLOSE: Final = 15.0
"""Beyond notice and drain, for what a process does at its end."""


class Workers:
    """So many processes, each of which runs `work(number, started)` until SIGTERM."""

    def __init__(self, many: int, work: Callable[[int, Connection], None]) -> None:
        """`work` can be pickled; it sends anything to `started` once it answers."""
        self._many = many
        self._work = work
        # Nothing of this process's loop, threads and connections may leak into a child, as it would by a fork.
        self._context = multiprocessing.get_context("spawn")
        self._processes: dict[int, BaseProcess] = {}
        self._stopping = False

    async def run(self, ending: Ending, started: Callable[[], None]) -> None:
        """Keep them running until SIGTERM or SIGINT, then end them in order; `started` is called once all answer."""
        stops = Stops()
        answering = [asyncio.Event() for _ in range(self._many)]
        keeping = [asyncio.create_task(self._keep(number, event)) for number, event in enumerate(answering, 1)]
        announcing = asyncio.create_task(_when_all(answering, started))
        asked, hurried = (asyncio.create_task(event.wait()) for event in (stops.asked, stops.hurried))
        try:
            await asyncio.wait({asked, *keeping}, return_when=asyncio.FIRST_COMPLETED)
            self._end(signal.SIGTERM)
            all_ended = asyncio.create_task(asyncio.wait(keeping))
            await asyncio.wait({hurried, all_ended}, timeout=ending.notice, return_when=asyncio.FIRST_COMPLETED)
            if stops.hurried.is_set():
                self._end(signal.SIGINT)
            await asyncio.wait({all_ended}, timeout=ending.drain + _SECONDS_TO_CLOSE)
            self._end(signal.SIGKILL)
            await asyncio.gather(*keeping)
        finally:
            for task in (announcing, asked, hurried, *keeping):
                task.cancel()

    def _end(self, how: signal.Signals) -> None:
        self._stopping = True
        for number, process in self._processes.items():
            if process.is_alive() and process.pid is not None:
                if how is signal.SIGKILL:
                    log.warning("worker %d did not end in time and was killed", number)
                with suppress(ProcessLookupError):
                    os.kill(process.pid, how)

    async def _keep(self, number: int, answering: asyncio.Event) -> None:
        """Start one process, and again whenever it has ended."""
        while not self._stopping:
            process = await self._ended(number, answering)
            if self._stopping:
                return
            if not answering.is_set():
                msg = f"worker {number} could not start; the log says why"
                raise HeadgateError(msg)
            log.error("worker %d (process %s) ended with %s and is started again", number, *process)
            await asyncio.sleep(_SECONDS_BEFORE_THE_NEXT)

    async def _ended(self, number: int, answering: asyncio.Event) -> tuple[int | None, int | None]:
        """Run one process to its end; returns its number and its exit code."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        telling, told = self._context.Pipe(duplex=False)
        process = self._context.Process(target=self._work, args=(number, told), name=f"headgate-{number}")
        process.start()
        told.close()
        self._processes[number] = process
        loop.add_reader(process.sentinel, ended.set)
        loop.add_reader(telling.fileno(), _heard, loop, telling, answering)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(process.sentinel)
            loop.remove_reader(telling.fileno())
            telling.close()
        process.join()
        return process.pid, process.exitcode


def _heard(loop: asyncio.AbstractEventLoop, telling: Connection, answering: asyncio.Event) -> None:
    """A process says that it answers, or has ended without a word."""
    loop.remove_reader(telling.fileno())
    with suppress(EOFError):
        telling.recv_bytes()
        answering.set()


async def _when_all(events: Sequence[asyncio.Event], call: Callable[[], None]) -> None:
    for event in events:
        await event.wait()
    call()
