"""Requests that were not decided: problem documents (RFC 9457) for the caller, bounded log lines for the operator.

A denial has its own document, with the verdict in it: `headgate.core.problem`.
"""

from __future__ import annotations

from http import HTTPStatus
from math import ceil
from typing import TYPE_CHECKING, Any, Final

from headgate.adapters.clock import monotonic

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.errors import NoRules, Overloaded

CLOSE: Final = ("connection", "close")
"""The header of the last response on a connection."""
INTERNAL_ERROR: Final = "internal error; the service's log has the details"
STORE_UNAVAILABLE: Final = "the counter store is unavailable"
SECONDS_BETWEEN_LINES: Final = 10.0
_MAX_REASONS: Final = 100


def retry_after(seconds: float) -> tuple[str, str]:
    """The `Retry-After` header: whole seconds, rounded up, at least one."""
    return "retry-after", str(max(1, ceil(seconds)))


class HttpProblem(Exception):
    """A request gets a problem document instead of a verdict. Raised and caught inside `edge` only."""

    def __init__(self, status: HTTPStatus, sentence: str, *headers: tuple[str, str]) -> None:
        """`sentence` tells the caller why; `headers` go with the response."""
        self.status = status
        self.headers = headers
        super().__init__(sentence)

    def document(self) -> dict[str, Any]:
        """The body, in the shape that denials have too."""
        sentence = str(self)
        return {
            "type": "about:blank",
            "title": self.status.phrase,
            "status": self.status.value,
            "detail": sentence,
            "error": self.status.name.lower(),
            "message": sentence,
        }


def retry_later(error: NoRules | Overloaded) -> HttpProblem:
    """The request was not decided, and may be later: 503 with `Retry-After`."""
    return HttpProblem(HTTPStatus.SERVICE_UNAVAILABLE, str(error), retry_after(error.retry_after))


class LogLimit:
    """Bounds log lines that clients can cause: one line per reason in ten seconds, with a count."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        """`clock` is in seconds and never steps back."""
        self._clock = clock
        self._reasons: dict[str, tuple[float, int]] = {}
        """The time of the last line, and how many events came since."""

    def count(self, reason: str) -> int:
        """Count an event. Returns how many came since the last line if a line is due, else 0."""
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
