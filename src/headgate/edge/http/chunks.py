"""Bodies that come in chunks, each with its size before it (RFC 9112, section 7.1)."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Final

from headgate.edge.problems import CLOSE, Unanswerable
from headgate.protocols.http1.messages import LINE

_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n\0]*)?\r\n")
_LONGEST_LINE: Final = 1_024
_MOST_TRAILING: Final = 8_192
_MAX_CHUNKS: Final = 512
"""Of one body. Each costs two microseconds, whatever is in it."""
_MAX_TRAILERS: Final = 100
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
        self._chunks = self._trailers = 0

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
            self._begin(size)
        return self._is_trailed(received)

    def _begin(self, size: bytes) -> None:
        """Begin a chunk, with the line before it."""
        found = _SIZE.fullmatch(size)
        if found is None:
            raise _malformed()
        self._chunks += 1
        if self._chunks > _MAX_CHUNKS:
            sentence = f"a body has at most {_MAX_CHUNKS} chunks here"
            raise Unanswerable(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, sentence, CLOSE)
        self._left = int(found[1], 16)
        self._is_in_chunk = self._left > 0
        self._is_trailing = not self._left

    def _is_trailed(self, received: bytearray) -> bool:
        """Whether the headers after the body, which nobody here asks for, are at their end."""
        while (line := self._line(received, _MOST_TRAILING - self._trailing)) is not None:
            if line == _END:
                return True
            self._trailers += 1
            if self._trailers > _MAX_TRAILERS or LINE.fullmatch(line) is None:
                raise _malformed()
            self._trailing += len(line)
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
