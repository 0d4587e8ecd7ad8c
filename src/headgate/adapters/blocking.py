"""Asynchronous stores for threads: the callers block, and their calls run on one event loop in the background.

A thread puts its call in a queue, wakes the loop unless another thread has, and waits. The loop starts all calls in
the queue in one turn. So the checks of many threads reach a Redis store together and are sent as one script call.

Each store has a loop and a thread of its own. Stores do not share connections, so the calls of two stores could not
be sent together on one loop either, and no store has to know whether another one still needs the thread.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from headgate.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from headgate.core.decision import Decision, Hit, Key, Receipt
    from headgate.ports import CounterStore


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A loop of uvloop, which is faster, or else of asyncio."""
    try:
        from uvloop import new_event_loop as uvloop_loop  # noqa: PLC0415 (an extra; a store in memory needs no loop)
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop_loop()


class Resident(Protocol):
    """The object whose methods the loop calls, such as a store."""

    async def close(self) -> None:
        """Close all connections."""


T = TypeVar("T")
ResidentT = TypeVar("ResidentT", bound=Resident)

_SECONDS_BETWEEN_LOOKS: Final = 1.0
_SECONDS_TO_CLOSE: Final = 5.0


class BackgroundLoop(Generic[ResidentT]):
    """A resident with an event loop of its own, started by the first call.

    Safe under threads, and after a fork: the child begins with a resident, a loop and a thread
    of its own, and does not touch those of its parent.
    """

    def __init__(self, make: Callable[[], ResidentT]) -> None:
        """`make` gives the resident. Nothing is made or started before the first call."""
        self._make = make
        self._lock = threading.RLock()  # may be asked for again by a signal's handler in the same thread
        self._background: Background[ResidentT] | None = None
        self._closed = False
        _all.add(self)

    def running(self) -> Background[ResidentT]:
        """The running loop; the first call starts it."""
        background = self._background
        if background is not None and not background.ended:
            return background
        with self._lock:
            if self._closed:
                msg = "this limiter was closed; open another one"
                raise StoreError(msg, transient=False)
            if self._background is None or self._background.ended:
                self._background = Background(self._make())
            return self._background

    def close(self) -> None:
        """End the thread. Threads that still wait get a `StoreError`."""
        with self._lock:
            self._closed = True
            background, self._background = self._background, None
        if background is not None:
            background.stop()
            background.join()

    def __del__(self) -> None:
        """No caller is left, so the thread ends."""
        if self._background is not None:
            self._background.stop()

    def reset_after_fork(self) -> None:
        """Drop the inherited state in a forked child, where the thread is gone and a lock may never be released."""
        self._lock = threading.RLock()
        if self._background is not None:
            self._background.ended = True
            # Kept for ever: closing an inherited loop would take its parent's connections out of the
            # epoll set that both share, and the parent would never again hear of an answer.
            _left_to_the_parent.append(self._background)
            self._background = None


class _Call:
    """One call: method, argument, and its result or error."""

    __slots__ = ("argument", "done", "error", "method", "result")

    def __init__(self, method: Callable[[Any], Coroutine[Any, Any, Any]], argument: object) -> None:
        self.method = method
        self.argument = argument
        self.result: Any = None
        self.error: BaseException | None = None
        # Made for this call alone. A thread that a signal interrupts while it waits leaves a lock behind
        # that is released later; if another call used that lock, its wait would end too early.
        self.done = threading.Lock()
        self.done.acquire()

    def fail(self, error: BaseException) -> None:
        """Let the caller raise this."""
        self.error = error
        self.done.release()


class Background(Generic[ResidentT]):
    """A thread with an event loop, the resident that it runs, and the queue of calls to the resident."""

    def __init__(self, resident: ResidentT) -> None:
        """Start the thread. It does not end the process's life, nor prolong it."""
        self.resident = resident
        self.ended = False
        """Whether the loop will start no more calls."""
        self._calls: deque[_Call] = deque()
        self._woken = False
        self._stopping = asyncio.Event()
        self._loop = new_event_loop()
        self._thread = threading.Thread(target=self._run, name="headgate", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:  # no more threads, or the interpreter is about to exit
            self._loop.close()
            msg = f"the background thread of headgate.sync cannot start: {error}"
            raise StoreError(msg, transient=True) from error

    # In the threads that ask

    def ask(self, method: Callable[[Any], Coroutine[Any, Any, T]], argument: object) -> T:
        """Have the loop call a method of the resident; return its result, or raise what it raises."""
        if threading.get_ident() == self._thread.ident:
            msg = "headgate.sync was called on its own background thread and would wait for itself; use another thread"
            raise StoreError(msg, transient=False)
        call = _Call(method, argument)
        self._calls.append(call)
        if not self._woken:
            self._wake()
        if self.ended:
            self._refuse_calls()
        while not call.done.acquire(timeout=_SECONDS_BETWEEN_LOOKS):
            if self.ended:  # the loop broke down, or this process was forked by a signal's handler just now
                msg = "the background thread of headgate.sync has ended; open another limiter"
                raise StoreError(msg, transient=True)
            self._wake()  # a signal may have interrupted the thread that wanted to
        if call.error is not None:
            raise call.error
        result: T = call.result
        return result

    def _wake(self) -> None:
        self._woken = True
        with suppress(RuntimeError):  # the loop was closed a moment ago
            self._loop.call_soon_threadsafe(self._start_calls)

    def stop(self) -> None:
        """Tell the thread to end."""
        with suppress(RuntimeError):  # it has
            self._loop.call_soon_threadsafe(self._stopping.set)

    def join(self) -> None:
        """Wait until the thread has ended, but not for ever."""
        if threading.current_thread() is not self._thread:
            self._thread.join(_SECONDS_TO_CLOSE)

    def _refuse_calls(self) -> None:
        with suppress(IndexError):
            while True:
                self._calls.popleft().fail(_closed_meanwhile())

    # In the thread that answers

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._live())
        finally:
            self.ended = True  # before the queue is emptied: a later caller empties it again
            self._refuse_calls()

    async def _live(self) -> None:
        """Keep the loop running until `stop`; then cancel all calls and close the resident."""
        await self._stopping.wait()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await self.resident.close()

    def _start_calls(self) -> None:
        """Start all queued calls, in one turn of the loop."""
        self._woken = False  # before the queue is emptied: a later caller wakes the loop again
        if self._stopping.is_set():
            self._refuse_calls()
        calls = self._calls
        while calls:
            self._loop.create_task(_answer(calls.popleft()))


async def _answer(call: _Call) -> None:
    # Not a callback on the task: that would hand out the result a turn of the loop later.
    try:
        call.result = await call.method(call.argument)
    except asyncio.CancelledError:
        call.fail(_closed_meanwhile())
    except BaseException as error:  # noqa: BLE001 (the waiting caller gets every error)
        call.fail(error)
    else:
        call.done.release()


def _closed_meanwhile() -> StoreError:
    return StoreError("the limiter was closed while this call waited for a reply", transient=False)


_all: weakref.WeakSet[BackgroundLoop[Any]] = weakref.WeakSet()
_left_to_the_parent: list[Background[Any]] = []


def _after_fork_in_child() -> None:
    for each in _all:
        each.reset_after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)


class BlockingStore:
    """A `CounterStore` whose coroutines end without an event loop: they block their thread until the answer is there.

    Safe under threads, and after a fork.
    """

    def __init__(self, make: Callable[[], CounterStore]) -> None:
        """`make` gives the store to wait for. Nothing is made or started before the first call."""
        self._behind: BackgroundLoop[CounterStore] = BackgroundLoop(make)

    async def take(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        """See `CounterStore.take`."""
        background = self._behind.running()
        return background.ask(background.resident.take, hits)

    async def peek(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        """See `CounterStore.peek`."""
        background = self._behind.running()
        return background.ask(background.resident.peek, hits)

    async def give_back(self, receipts: Sequence[Receipt]) -> None:
        """See `CounterStore.give_back`."""
        background = self._behind.running()
        background.ask(background.resident.give_back, receipts)

    async def reset(self, keys: Sequence[Key]) -> None:
        """See `CounterStore.reset`."""
        background = self._behind.running()
        background.ask(background.resident.reset, keys)

    async def close(self) -> None:
        """See `CounterStore.close`. Threads that still wait get a `StoreError`; the background thread ends."""
        self._behind.close()
