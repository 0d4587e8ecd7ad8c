"""Bodies that come in chunks, each with its size before it (RFC 9112, section 7.1)."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Final

from headgate.edge.http.head import LINE
from headgate.edge.problems import CLOSE, Unanswerable

_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n\0]*)?\r\n")
_LONGEST_LINE: Final = 1_024
_MOST_TRAILING: Final = 8_192
_END: Final = b"\r\n"


class Chunks:
    """Takes a body together."""

    def __init__(self) -> None:
        """Nothing came yet."""
        self.body = bytearray()
        self._left = 0
        """Of the chunk that has begun."""
        self._is_in_chunk = self._is_trailing = False
        self._trailing = 0

    @property
    def size(self) -> int:
        """Of what came, and of the rest of the chunk that has begun."""
        return len(self.body) + self._left

    def take(self, received: bytearray) -> bool:
        """Take what has come out of `received`; True once the body is at its end. `Unanswerable` if it is malformed."""
        while not self._is_trailing:
            if self._is_in_chunk:
                part = received[: self._left]
                self.body += part
                self._left -= len(part)
                del received[: len(part)]
                if self._left or len(received) < len(_END):
                    return False
                if not received.startswith(_END):
                    raise _malformed()
                del received[: len(_END)]
                self._is_in_chunk = False
            size = self._line(received, _LONGEST_LINE)
            if size is None:
                return False
            found = _SIZE.fullmatch(size)
            if found is None:
                raise _malformed()
            self._left = int(found[1], 16)
            self._is_in_chunk = self._left > 0
            self._is_trailing = not self._left
        while (line := self._line(received, _MOST_TRAILING - self._trailing)) is not None:
            if line == _END:
                return True
            if LINE.fullmatch(line) is None:
                raise _malformed()
            self._trailing += len(line)  # headers after the body, which nobody here asks for
        return False

    def _line(self, received: bytearray, longest: int) -> bytes | None:
        """The next line, if all of it is there."""
        end = received.find(_END)
        if end >= longest or (end < 0 and len(received) > longest):
            raise _malformed()
        if end < 0:
            return None
        line = bytes(received[: end + len(_END)])
        del received[: len(line)]
        return line


def _malformed() -> Unanswerable:
    sentence = "the body is not chunked as HTTP/1.1 has it: a size, so many bytes, and at the end a size of 0"
    return Unanswerable(HTTPStatus.BAD_REQUEST, sentence, CLOSE)
