"""Log lines that a client can cause at will, bounded in number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.adapters.clock import monotonic

if TYPE_CHECKING:
    from collections.abc import Callable

SECONDS_BETWEEN_LINES: Final = 10.0
_MAX_REASONS: Final = 100


class LogLimit:
    """At most one line for each reason in ten seconds, with the number of times it stands for."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        """`clock` is in seconds and never steps back."""
        self._clock = clock
        self._reasons: dict[str, tuple[float, int]] = {}
        """When each was logged last, and how often it came since."""

    def count(self, reason: str) -> int:
        """How often this has come since the last line, if a line is due; else 0."""
        now = self._clock()
        then, times = self._reasons.get(reason, (now - SECONDS_BETWEEN_LINES, 0))
        times += 1
        if now - then < SECONDS_BETWEEN_LINES:
            self._reasons[reason] = (then, times)
            return 0
        if len(self._reasons) >= _MAX_REASONS:
            self._reasons.clear()
        self._reasons[reason] = (now, 0)
        return times
