"""What leases do in the background: a task on the event loop of an asynchronous store, a thread beside a blocking one.

Both run `tend` whenever there is something to do, and end when nothing is held.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, Any, Final, Protocol

from headgate.dataplane.limiter import run_now

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Tend = Callable[[], Coroutine[Any, Any, float | None]]

log = logging.getLogger("headgate")

_SECONDS_TO_STOP: Final = 5.0


class LeaseWorker(Protocol):
    """Runs `tend`, which returns how many seconds later it has to run again; None if it has nothing to wait for."""

    def wake(self) -> None:
        """Run it soon."""

    async def stop(self) -> None:
        """Let what is running end, and do not begin anew until `wake`."""

    def reset_after_fork(self) -> None:
        """In a forked child: task and thread are its parent's."""


class LoopWorker:
    """A task on the event loop that uses the store."""

    def __init__(self, tend: Tend) -> None:
        """Nothing is started yet."""
        self._tend = tend
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """See `LeaseWorker.wake`; called on the event loop."""
        task, loop = self._task, asyncio.get_running_loop()
        if task is None or task.done() or loop is not self._loop:
            self._loop, self._woken = loop, asyncio.Event()
            self._task = loop.create_task(self._run(loop, self._woken))
        self._woken.set()

    async def _run(self, loop: asyncio.AbstractEventLoop, woken: asyncio.Event) -> None:
        while True:
            woken.clear()
            seconds = await _tended(self._tend)
            if seconds is None and not woken.is_set():
                return
            timer = None if seconds is None else loop.call_later(seconds, woken.set)
            await woken.wait()
            if timer is not None:
                timer.cancel()

    async def stop(self) -> None:
        """See `LeaseWorker.stop`."""
        task, self._task = self._task, None
        if task is not None and self._loop is asyncio.get_running_loop():
            self._woken.set()
            await asyncio.wait([task], timeout=_SECONDS_TO_STOP)
            task.cancel()

    def reset_after_fork(self) -> None:
        """See `LeaseWorker.reset_after_fork`."""
        self._task = self._loop = None


class ThreadWorker:
    """A thread, while there is something to do. It does not end the process's life, nor prolong it."""

    def __init__(self, tend: Tend) -> None:
        """Nothing is started yet."""
        self._tend = tend
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._woken = threading.Event()

    def wake(self) -> None:
        """See `LeaseWorker.wake`."""
        self._woken.set()
        if self._thread is None and self._lock.acquire(blocking=False):
            try:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="headgate-leases", daemon=True)
                    self._thread.start()
            except RuntimeError as error:  # no more threads, or the interpreter is about to exit
                self._thread = None
                log.debug("leases are not renewed: %s", error)
            finally:
                self._lock.release()

    def _run(self) -> None:
        seconds: float | None = 0.0
        while seconds is not None or self._woken.is_set():
            self._woken.wait(seconds)
            self._woken.clear()
            seconds = run_now(_tended(self._tend))
        self._thread = None
        if self._woken.is_set():  # by a thread that still saw this one
            self.wake()

    async def stop(self) -> None:
        """See `LeaseWorker.stop`."""
        thread = self._thread
        self._woken.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(_SECONDS_TO_STOP)

    def reset_after_fork(self) -> None:
        """See `LeaseWorker.reset_after_fork`."""
        self._thread = None
        self._lock = threading.Lock()
        self._woken = threading.Event()


async def _tended(tend: Tend) -> float | None:
    try:
        return await tend()
    except Exception:
        log.exception("leases: renewal failed, the next check tries again")  # what is held is spent, and ends by itself
        return None
