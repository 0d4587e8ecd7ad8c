"""Requests and denials over time, in as many steps as a picture has room for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.core.units import DAY, HOUR, MINUTE, SECOND, WEEK

if TYPE_CHECKING:
    from headgate.core.units import Micros

MOST_STEPS: Final = 200
_WIDTHS: Final = (
    *(SECOND, 2 * SECOND, 10 * SECOND, 30 * SECOND),
    *(MINUTE, 2 * MINUTE, 10 * MINUTE, 30 * MINUTE),
    *(HOUR, 2 * HOUR, 6 * HOUR, 12 * HOUR),
    *(DAY, WEEK, 4 * WEEK, 52 * WEEK),
)
"""Each is a multiple of the one before, so that steps can be put together."""


class Step(NamedTuple):
    """What happened from one time on, up to the next step."""

    at: Micros
    requests: int
    denied: int
    denied_beside: int


class Timeline:
    """Begins with steps of a second, and makes them wider as time goes on."""

    def __init__(self) -> None:
        """Nothing has happened yet."""
        self._widths = iter(_WIDTHS)
        self.width: Micros = next(self._widths)
        self._counts: dict[int, list[int]] = {}
        self._first = 0
        self._index = -1
        self._now: list[int] = []

    def add(self, at: Micros, denied: int, denied_beside: int) -> None:
        """Count one request, whether it is denied (1) or not (0); times never go back."""
        if at // self.width != self._index:
            self._move(at)
        now = self._now
        now[0] += 1
        now[1] += denied
        now[2] += denied_beside

    @property
    def steps(self) -> list[Step]:
        """All steps, those in which nothing happened included."""
        if not self._counts:
            return []
        nothing = [0, 0, 0]
        return [
            Step(index * self.width, *self._counts.get(index, nothing)) for index in range(self._first, self._index + 1)
        ]

    def _move(self, at: Micros) -> None:
        if not self._counts:
            self._first = at // self.width
        while at // self.width - self._first >= MOST_STEPS and (wider := next(self._widths, 0)):
            self._widen(wider)
        self._index = at // self.width
        self._now = self._counts.setdefault(self._index, [0, 0, 0])

    def _widen(self, width: Micros) -> None:
        before = self._counts
        self._counts = {}
        for index, counts in before.items():
            into = self._counts.setdefault(index * self.width // width, [0, 0, 0])
            for place, count in enumerate(counts):
                into[place] += count
        self._first = self._first * self.width // width
        self.width = width
