"""A clock that moves only when a test moves it."""

from __future__ import annotations

from typing import Final

from headgate.core.units import SECOND, Micros

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
        self.now = start

    def __call__(self) -> Micros:
        """The present time."""
        return self.now

    def advance(self, seconds: float = 0, micros: Micros = 0) -> Micros:
        """Move forward (or back, with a negative span) and return the new time."""
        self.now += round(seconds * SECOND) + micros
        return self.now

    def set(self, instant: Micros) -> None:
        """Move to `instant`, earlier or later than now."""
        self.now = instant
