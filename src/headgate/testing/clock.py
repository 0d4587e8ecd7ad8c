"""A clock that moves only when a test moves it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.core.units import SECOND, Micros

if TYPE_CHECKING:
    from collections.abc import Callable

NEW_YEAR: Final[Micros] = 1_767_225_600 * SECOND
"""2026-01-01T00:00:00Z, at which a minute, an hour, a day, a month and a year begin."""


class FakeClock:
    """Microseconds since the epoch, for a store or ``Limiter.open(..., clock=FakeClock())``.

    >>> clock = FakeClock()
    >>> clock.advance(seconds=1.5) - NEW_YEAR
    1500000
    >>> clock.advance(micros=-1) - NEW_YEAR  # clocks do step back
    1499999
    """

    def __init__(self, start: Micros = NEW_YEAR) -> None:
        """Start at `start`."""
        self._now = start
        self._calls: list[tuple[Micros, Callable[[], None]]] = []

    def __call__(self) -> Micros:
        """The present time."""
        return self._now

    @property
    def now(self) -> Micros:
        """The present time; setting it moves the clock."""
        return self._now

    @now.setter
    def now(self, instant: Micros) -> None:
        self._now = instant
        due = [call for call in self._calls if call[0] <= instant]
        self._calls = [call for call in self._calls if call[0] > instant]
        for _, function in sorted(due, key=lambda call: call[0]):
            function()

    def advance(self, seconds: float = 0, micros: Micros = 0) -> Micros:
        """Move forward (or back, with a negative span) and return the new time. Wakes those who wait for it."""
        self.now += round(seconds * SECOND) + micros
        return self.now

    def set(self, instant: Micros) -> None:
        """Move to `instant`, earlier or later than now. Wakes those who wait for it."""
        self.now = instant

    def move_to(self, instant: Micros) -> None:
        """Move to `instant`, unless that has passed; `acquire` of a synchronous limiter does so in place of waiting."""
        self.now = max(self.now, instant)

    def call_at(self, instant: Micros, function: Callable[[], None]) -> Callable[[], None]:
        """Call a function once the clock is moved to `instant` or past it; at once if it is there. Returns what
        takes that back.
        """
        call = (instant, function)
        if instant <= self._now:
            function()
        else:
            self._calls.append(call)

        def cancel() -> None:
            if call in self._calls:
                self._calls.remove(call)

        return cancel
