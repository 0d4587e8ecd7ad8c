"""Worker processes that answer on one port, and the supervisor that runs them and answers nothing itself.

Each worker has a listening socket of its own on the shared port, and the kernel distributes connections among them. A
worker that exits is started again.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from headgate.edge.http.server import StopSignals
from headgate.errors import HeadgateError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

    from headgate.edge.http.server import ShutdownTimes

log = logging.getLogger("headgate")

_RESTART_SECONDS: Final = 0.5
_SECONDS_TO_CLOSE: Final = 15.0
"""After notice and drain, for what a worker does at its end."""


class Workers:
    """A number of processes, each of which runs `work(number, started)` until SIGTERM."""

    def __init__(self, count: int, work: Callable[[int, Connection], None]) -> None:
        """`work` can be pickled; it sends anything to `started` once it answers."""
        self._count = count
        self._work = work
        # With a fork, this process's loop, threads and connections would leak into the workers.
        self._context = multiprocessing.get_context("spawn")
        self._processes: dict[int, BaseProcess] = {}
        self._stopping = False

    async def run(self, shutdown: ShutdownTimes, started: Callable[[], None]) -> None:
        """Run the workers until SIGTERM or SIGINT, then stop them; `started` is called once all of them answer."""
        signals = StopSignals()
        ready = [asyncio.Event() for _ in range(self._count)]
        supervising = [asyncio.create_task(self._supervise(number, event)) for number, event in enumerate(ready, 1)]
        starting = asyncio.create_task(_when_all(ready, started))
        stop, stop_now = (asyncio.create_task(event.wait()) for event in (signals.stop, signals.stop_now))
        try:
            await asyncio.wait({stop, *supervising}, return_when=asyncio.FIRST_COMPLETED)
            self._kill(signal.SIGTERM)
            all_ended = asyncio.create_task(asyncio.wait(supervising))
            await asyncio.wait({stop_now, all_ended}, timeout=shutdown.notice, return_when=asyncio.FIRST_COMPLETED)
            if signals.stop_now.is_set():
                self._kill(signal.SIGINT)
            await asyncio.wait({all_ended}, timeout=shutdown.drain + _SECONDS_TO_CLOSE)
            self._kill(signal.SIGKILL)
            await asyncio.gather(*supervising)
        finally:
            for task in (starting, stop, stop_now, *supervising):
                task.cancel()

    def _kill(self, how: signal.Signals) -> None:
        self._stopping = True
        for number, process in self._processes.items():
            if process.is_alive() and process.pid is not None:
                if how is signal.SIGKILL:
                    log.warning("worker %d did not stop in time and was killed", number)
                with suppress(ProcessLookupError):
                    os.kill(process.pid, how)

    async def _supervise(self, number: int, ready: asyncio.Event) -> None:
        """Start one worker, and again whenever it has exited."""
        while not self._stopping:
            pid, code = await self._run_once(number, ready)
            if self._stopping:
                return
            if not ready.is_set():
                msg = f"worker {number} could not start; the log has the reason"
                raise HeadgateError(msg)
            log.error("worker %d (process %s) exited with code %s and is restarted", number, pid, code)
            await asyncio.sleep(_RESTART_SECONDS)

    async def _run_once(self, number: int, ready: asyncio.Event) -> tuple[int | None, int | None]:
        """Run one process to its end; returns its pid and its exit code."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        receiver, sender = self._context.Pipe(duplex=False)
        process = self._context.Process(target=self._work, args=(number, sender), name=f"headgate-{number}")
        process.start()
        sender.close()
        self._processes[number] = process
        loop.add_reader(process.sentinel, ended.set)
        loop.add_reader(receiver.fileno(), _receive_ready, loop, receiver, ready)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(process.sentinel)
            loop.remove_reader(receiver.fileno())
            receiver.close()
        process.join()
        return process.pid, process.exitcode


def _receive_ready(loop: asyncio.AbstractEventLoop, receiver: Connection, ready: asyncio.Event) -> None:
    """The worker answers, or has exited before."""
    loop.remove_reader(receiver.fileno())
    with suppress(EOFError):
        receiver.recv_bytes()
        ready.set()


async def _when_all(events: Sequence[asyncio.Event], call: Callable[[], None]) -> None:
    for event in events:
        await event.wait()
    call()
