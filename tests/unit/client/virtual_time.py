"""An event loop whose time passes only while all tasks sleep, so that minutes take no time."""

from __future__ import annotations

import asyncio
import selectors
from typing import TYPE_CHECKING, TypeVar

from headgate.client.calls import Clocks
from headgate.core.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from headgate.testing import FakeClock

T = TypeVar("T")


class _Selector(selectors.DefaultSelector):
    """Instead of waiting, moves the clock."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is not None and timeout > 0:
            self._clock.advance(micros=max(1, round(timeout * SECOND)))
        return ready


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self, clock: FakeClock) -> None:
        super().__init__(_Selector(clock))
        self._clock = clock
        self._began = clock.now  # so that numbers stay small, and fractions of a microsecond do not get lost

    def time(self) -> float:
        return (self._clock.now - self._began) / SECOND


def run(main: Coroutine[Any, Any, T], clock: FakeClock) -> T:
    """Run a coroutine in the time of `clock`."""
    with asyncio.Runner(loop_factory=lambda: _Loop(clock)) as runner:
        return runner.run(main)


def clocks(clock: FakeClock) -> Clocks:
    """Both clocks of a client, from one."""
    return Clocks(clock, clock)
