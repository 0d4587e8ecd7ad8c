"""Problem documents (RFC 9457) for requests that were never decided: malformed, misdirected, too large.

A denial has its own, with the verdict in it: `headgate.core.problem`.
"""

from __future__ import annotations

from http import HTTPStatus
from math import ceil
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from headgate.errors import NoRules, Overloaded

CLOSE: Final = ("connection", "close")
"""Goes with an answer that is the last one on its connection."""
OUR_FAULT: Final = "something went wrong here; the service's log says what"


def retry_after(seconds: float) -> tuple[str, str]:
    """The header that says when it is worth trying again: in whole seconds, never early, at least one."""
    return "retry-after", str(max(1, ceil(seconds)))


class Unanswerable(Exception):
    """A request gets a problem in place of a verdict. Raised and caught inside an edge only."""

    def __init__(self, status: HTTPStatus, sentence: str, *headers: tuple[str, str]) -> None:
        """Say why, to the caller; `headers` go with the answer."""
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


def not_now(error: NoRules | Overloaded) -> Unanswerable:
    """A request was not decided, and may be later: 503, with the whole seconds after which to try again."""
    return Unanswerable(HTTPStatus.SERVICE_UNAVAILABLE, str(error), retry_after(error.retry_after))
