"""How one waiter sleeps and is woken: on an event loop, or in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.core.denial import Nanos

    CallAt: TypeAlias = "Callable[[Nanos, Callable[[], None]], Callable[[], object]]"
    """Schedules a function for an instant; returns a function that cancels it."""

_SECOND: Final = 1_000_000_000


class Waker(Protocol):
    """Wakes one waiter. A wait may end early, so the waiter looks at why it waits before it goes on."""

    def wake(self) -> None:
        """End the wait, from any thread; one that has not begun ends at once."""

    async def sleep(self, until: Nanos) -> None:
        """Wait until an instant, or until woken."""

    async def stand(self, until: Nanos | None) -> None:
        """Wait until woken, and not past an instant."""


class LoopWaker:
    """A `Waker` of a task."""

    __slots__ = ("_call_at", "_is_woken", "_waiting")

    def __init__(self, call_at: CallAt) -> None:
        """`call_at` sets the timers: `timers_of_the_loop`, or those of a test's clock."""
        self._call_at = call_at
        self._is_woken = False
        self._waiting: asyncio.Future[None] | None = None

    def wake(self) -> None:
        """See `Waker.wake`."""
        self._is_woken = True
        waiting = self._waiting
        if waiting is None:
            return
        if _running_loop() is waiting.get_loop():
            _end(waiting)
        else:  # a test's clock was moved in another thread
            waiting.get_loop().call_soon_threadsafe(_end, waiting)

    async def sleep(self, until: Nanos) -> None:
        """See `Waker.sleep`."""
        await self.stand(until)

    async def stand(self, until: Nanos | None) -> None:
        """See `Waker.stand`."""
        if not self._is_woken:
            self._waiting = asyncio.get_running_loop().create_future()
            cancel = None if until is None else self._call_at(until, self.wake)
            try:
                if not self._is_woken:  # by a clock that has passed the instant
                    await self._waiting
            finally:
                self._waiting = None
                if cancel is not None:
                    cancel()
        self._is_woken = False


def timers_of_the_loop(now: Callable[[], Nanos]) -> CallAt:
    """The timers of the event loop that runs; `now` is the clock of their instants."""

    def call_at(until: Nanos, function: Callable[[], None]) -> Callable[[], object]:
        return asyncio.get_running_loop().call_later(max(0, until - now()) / _SECOND, function).cancel

    return call_at


class ThreadWaker:
    """A `Waker` of a thread, which blocks."""

    __slots__ = ("_now", "_woken")

    def __init__(self, now: Callable[[], Nanos]) -> None:
        """`now` is the clock of the instants."""
        self._now = now
        self._woken = threading.Event()

    def wake(self) -> None:
        """See `Waker.wake`."""
        self._woken.set()

    async def sleep(self, until: Nanos) -> None:
        """See `Waker.sleep`."""
        await self.stand(until)

    async def stand(self, until: Nanos | None) -> None:
        """See `Waker.stand`."""
        self._woken.wait(None if until is None else max(0, until - self._now()) / _SECOND)
        self._woken.clear()


class ClockMovingWaker:
    """A `Waker` of a thread whose clock is a test's: a sleep moves the clock, since no other thread would."""

    __slots__ = ("_move_to", "_woken")

    def __init__(self, move_to: Callable[[Nanos], None]) -> None:
        """`move_to` sets the clock, unless it is past that already."""
        self._move_to = move_to
        self._woken = threading.Event()

    def wake(self) -> None:
        """See `Waker.wake`."""
        self._woken.set()

    async def sleep(self, until: Nanos) -> None:
        """See `Waker.sleep`; never blocks."""
        if not self._woken.is_set():
            self._move_to(until)
        self._woken.clear()

    async def stand(self, until: Nanos | None) -> None:  # noqa: ARG002 (the first waiter moves the clock)
        """See `Waker.stand`; the waiter that is first moves the clock, so an instant does not end it."""
        self._woken.wait()
        self._woken.clear()


def _end(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
