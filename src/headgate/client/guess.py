"""The pace for APIs that say nothing but 429: what they let through so far, and a little more each time.

refused: calls were 10 ms apart on average, so from now on 20 ms
answered: 2 % closer, until that is no distance at all
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.core.units import MILLISECOND, SECOND

if TYPE_CHECKING:
    from headgate.core.units import Micros

_CLOSER: Final = 0.98
_LEAST: Final[Micros] = MILLISECOND
_MOST: Final[Micros] = 10 * SECOND


class Guess:
    """How far apart calls should be, found out by trying."""

    def __init__(self) -> None:
        """No distance."""
        self._apart: Micros = 0
        self._due: Micros = 0
        self._since: Micros | None = None
        """When the first call of those that `_calls` counts went out."""
        self._calls = 0

    def wait(self, now: Micros) -> Micros:
        """How long the next call has to wait."""
        return max(0, self._due - now) if self._apart else 0

    def begun(self, now: Micros) -> None:
        """A call goes out."""
        if self._since is None:
            self._since = now
        self._calls += 1
        self._due = max(self._due, now) + self._apart

    def answered(self) -> None:
        """A call was answered, so the next may come a little earlier."""
        closer = int(self._apart * _CLOSER)
        self._apart = closer if closer >= _LEAST else 0

    def refused(self, now: Micros) -> None:
        """Calls come too fast: twice the distance, or that of the calls until now if it is longer."""
        seen = 0 if self._since is None else (now - self._since) // max(1, self._calls)
        self._apart = min(max(2 * self._apart, 2 * seen, _LEAST), _MOST)
        self._since, self._calls = None, 0
