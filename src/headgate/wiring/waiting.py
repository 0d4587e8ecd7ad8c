"""Queues for those who wait: on an event loop or in threads, on the real clock or on a test's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.adapters.clock import monotonic_ns
from headgate.dataplane.wait_queues import MAX_WAITERS, WaitQueues
from headgate.dataplane.wakers import ClockMovingWaker, LoopWaker, ThreadWaker, timers_of_the_loop
from headgate.errors import InvalidSettings, short_repr
from headgate.ports import MovableClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.core.denial import Nanos
    from headgate.core.units import Micros

_MICRO: Final = 1_000
_MAX_MAX_WAITERS: Final = 10**9


def wait_queues(clock: Callable[[], Micros], max_waiters: int = MAX_WAITERS, *, blocks: bool = False) -> WaitQueues:
    """Queues for up to `max_waiters` callers; `blocks` says that they are threads.

    A clock that is neither the real one nor a `MovableClock` is waited for in real time.
    """
    if isinstance(max_waiters, bool) or not isinstance(max_waiters, int) or not 0 < max_waiters <= _MAX_MAX_WAITERS:
        msg = f"max_waiters is a whole number from 1 to {_MAX_MAX_WAITERS}, not {short_repr(max_waiters)}"
        raise InvalidSettings(msg)
    if isinstance(clock, MovableClock):
        return _on_movable_clock(clock, max_waiters, blocks=blocks)
    if blocks:
        return WaitQueues(monotonic_ns, lambda: ThreadWaker(monotonic_ns), max_waiters, blocks=True)
    timers = timers_of_the_loop(monotonic_ns)
    return WaitQueues(monotonic_ns, lambda: LoopWaker(timers), max_waiters)


def _on_movable_clock(clock: MovableClock, max_waiters: int, *, blocks: bool) -> WaitQueues:
    def now() -> Nanos:
        return clock() * _MICRO

    def call_at(instant: Nanos, function: Callable[[], None]) -> Callable[[], None]:
        return clock.call_at(-(-instant // _MICRO), function)

    def move_to(instant: Nanos) -> None:
        clock.move_to(-(-instant // _MICRO))

    if blocks:
        return WaitQueues(now, lambda: ClockMovingWaker(move_to), max_waiters, blocks=True)
    return WaitQueues(now, lambda: LoopWaker(call_at), max_waiters)
