"""Answers as the bytes of HTTP/1.1."""

from __future__ import annotations

from email.utils import formatdate
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from headgate.adapters.clock import clock_in_ns

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.edge.http.answers import Answer
    from headgate.protocols.http1.messages import Head

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
CLOSE_LINE: Final = "connection: close\r\n"
"""The last line of an answer that is the last one on its connection."""
_KEPT_OPEN: Final = "connection: keep-alive\r\n"
_SECOND: Final = 1_000_000_000
_HEAD: Final = "HEAD"


class Writer:
    """Writes the answers of one server."""

    def __init__(self) -> None:
        """Nothing was written yet."""
        self._second = -1
        self._date = ""

    def written(self, head: Head, answer: Answer, *, is_last: bool) -> bytes:
        """An answer, behind which the connection is closed if it `is_last`."""
        status, lines, body = answer
        if is_last:
            lines = lines.removesuffix(CLOSE_LINE) + CLOSE_LINE
        elif head.has_to_be_told:
            lines += _KEPT_OPEN
        second = clock_in_ns() // _SECOND
        if second != self._second:
            self._second = second
            self._date = formatdate(second, usegmt=True)
        first = _FIRST_LINES.get(status) or f"HTTP/1.1 {status} \r\n"  # a rule may answer with any status
        text = f"{first}{lines}date: {self._date}\r\ncontent-length: {len(body)}\r\n\r\n"
        return text.encode() if head.method == _HEAD else text.encode() + body


def lines_of(headers: Iterable[tuple[str, str]]) -> str:
    """Headers as lines; a ValueError if one does not fit on a line: what is in it would speak in our name."""
    lines = []
    for name, value in headers:
        if not value.isascii() or "\r" in value or "\n" in value:
            msg = f"the value of {name} does not fit on a line of ASCII"
            raise ValueError(msg)
        lines.append(f"{name}: {value}\r\n")
    return "".join(lines)


_FIRST_LINES: Final = {status.value: f"HTTP/1.1 {status} {status.phrase}\r\n" for status in HTTPStatus}
