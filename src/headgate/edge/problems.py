"""Problem documents (RFC 9457) for requests that were never decided: malformed, misdirected, too large.

A denial has its own, with the verdict in it: `headgate.core.problem`.
"""

from __future__ import annotations

from http import HTTPStatus
from math import ceil
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from headgate.errors import Overloaded

CLOSE: Final = ("connection", "close")
"""Goes with an answer that is the last one on its connection."""
OUR_FAULT: Final = "something went wrong here; the service's log says what"


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


def overloaded(error: Overloaded) -> Unanswerable:
    """A request was not decided, because too many are: 503, with the whole seconds after which to try again."""
    seconds = max(1, ceil(error.retry_after))
    return Unanswerable(HTTPStatus.SERVICE_UNAVAILABLE, str(error), ("retry-after", str(seconds)))
