"""HTTP/1.1 requests from bytes: pieces of any size in, whole requests out.

`RequestParser` takes what one connection received. `ChunkedBody` puts a chunked body together (RFC 9112, section 7.1).
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from headgate.protocols.http1.messages import CHUNKED, HEADER_LINE, Http1Error, refuse_bare_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.protocols.http1.messages import Head, HeadReader

_END_OF_HEAD: Final = b"\r\n\r\n"
_END_OF_LINE: Final = b"\r\n"
_MAX_EMPTY_LINES: Final = 8
"""Before a request. Some clients send one after a body."""
_CHUNK_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n\0]*)?\r\n")
_MAX_SIZE_LINE: Final = 1_024
_MAX_TRAILER_BYTES: Final = 8_192
_MAX_TRAILERS: Final = 100
_MAX_CHUNKS: Final = 512
"""Of one body. Each costs two microseconds, whatever its size."""


class ChunkedBody:
    """Joins the chunks of one body."""

    def __init__(self) -> None:
        """Start before the first chunk."""
        self.body = bytearray()
        self._missing = 0
        """Bytes of the current chunk that have not arrived."""
        self._is_in_chunk = self._is_in_trailers = False
        self._chunks = self._trailers = self._trailer_bytes = 0

    @property
    def size(self) -> int:
        """Bytes that have arrived, and the announced rest of the current chunk."""
        return len(self.body) + self._missing

    def receive(self, received: bytearray) -> bool:
        """Move bytes out of `received`; True once the body is complete. `Http1Error` if it is malformed."""
        while not self._is_in_trailers:
            if self._is_in_chunk:
                part = received[: self._missing]
                self.body += part
                self._missing -= len(part)
                del received[: len(part)]
                if self._missing or len(received) < len(_END_OF_LINE):
                    return False
                if not received.startswith(_END_OF_LINE):
                    raise _malformed_chunk()
                del received[: len(_END_OF_LINE)]
                self._is_in_chunk = False
            line = _take_line(received, _MAX_SIZE_LINE)
            if line is None:
                return False
            self._start_chunk(line)
        return self._skip_trailers(received)

    def _start_chunk(self, line: bytes) -> None:
        found = _CHUNK_SIZE.fullmatch(line)
        if found is None:
            raise _malformed_chunk()
        self._chunks += 1
        if self._chunks > _MAX_CHUNKS:
            sentence = f"a body has at most {_MAX_CHUNKS} chunks here"
            raise Http1Error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, sentence)
        self._missing = int(found[1], 16)
        self._is_in_chunk = self._missing > 0
        self._is_in_trailers = not self._missing

    def _skip_trailers(self, received: bytearray) -> bool:
        """Drop the header lines after the body; True once they end."""
        while (line := _take_line(received, _MAX_TRAILER_BYTES - self._trailer_bytes)) is not None:
            if line == _END_OF_LINE:
                return True
            self._trailers += 1
            if self._trailers > _MAX_TRAILERS or HEADER_LINE.fullmatch(line) is None:
                raise _malformed_chunk()
            self._trailer_bytes += len(line)
        return False


def _take_line(received: bytearray, max_size: int) -> bytes | None:
    """The next line, once all of it has arrived."""
    end = received.find(_END_OF_LINE)
    if end >= max_size or (end < 0 and len(received) > max_size):
        raise _malformed_chunk()
    if end < 0:
        return None
    line = bytes(received[: end + len(_END_OF_LINE)])
    del received[: len(line)]
    return line


def _malformed_chunk() -> Http1Error:
    sentence = "malformed chunked body: a chunk must be a size, a line end and so many bytes, the last one of size 0"
    return Http1Error(HTTPStatus.BAD_REQUEST, sentence)


_NO_CHUNKS: Final = ChunkedBody()


class RequestParser:
    """The requests of one connection, in their order. Every method raises `Http1Error` for what is no request."""

    __slots__ = (
        "_cached",
        "_chunks",
        "_empty_lines",
        "_heads",
        "_max_body",
        "_max_head",
        "_reads_body",
        "_searched",
        "has_all",
        "head",
        "received",
    )

    def __init__(
        self,
        heads: HeadReader,
        *,
        max_head: int,
        max_body: int,
        reads_body: Callable[[Head], bool] = lambda _head: True,
    ) -> None:
        """`max_head` and `max_body` are bytes. `reads_body`: whether to wait for the body of a request."""
        self._heads = heads
        self._cached = heads.cached
        self._max_head = max_head
        self._max_body = max_body
        self._reads_body = reads_body
        self.received = bytearray()
        """Bytes after `head`, if there is one."""
        self.head: Head | None = None
        """Of a request whose body is incomplete or too large."""
        self.has_all = True
        """Whether the last request was read with its whole body."""
        self._chunks = _NO_CHUNKS
        self._searched = 0
        """How many bytes of `received` contain no end of a head."""
        self._empty_lines = 0
        """Before the next request."""

    @property
    def size(self) -> int:
        """Bytes that are held."""
        return len(self.received) + len(self._chunks.body)

    def clear(self) -> None:
        """Drop everything."""
        self.received = bytearray()
        self.head, self._chunks = None, _NO_CHUNKS

    def receive_first(self, data: bytes) -> tuple[Head, bytes] | None:
        """Take bytes while nothing is held, and return a request with its body if it is complete.

        The fast path for a request that arrives in one piece, as nearly every one does: only the body is copied. Its
        plain twin is `received += data` and `next_request()`; `tests/property/test_http1_engine.py` compares them.
        """
        end = data.find(_END_OF_HEAD)
        if end < 0 or self._empty_lines or data.startswith(_END_OF_LINE):
            self.received += data
            return self.next_request()
        head = self._read_head(data, end)
        at, length = end + len(_END_OF_HEAD), head.length
        if length == CHUNKED or len(data) - at < length:
            self.received += data[at:]
            return self._start_body(head)
        if len(data) - at == length:
            return head, data[at:]
        self.received += data[at + length :]
        return head, data[at : at + length]

    def next_request(self) -> tuple[Head, bytes] | None:
        """Return the next request in `received` with its body, if it is complete."""
        if self.head is not None:
            return self._read_body(self.head)
        received = self.received
        while self._empty_lines < _MAX_EMPTY_LINES and received.startswith(_END_OF_LINE):
            self._empty_lines += 1
            del received[: len(_END_OF_LINE)]
        end = received.find(_END_OF_HEAD, self._searched)
        if end < 0:
            self._searched = max(0, len(received) - len(_END_OF_HEAD) + 1)
            if len(received) > self._max_head:
                raise self._head_too_long(received)
            refuse_bare_line(received)
            return None
        self._searched = self._empty_lines = 0
        head = self._read_head(received, end)
        del received[: end + len(_END_OF_HEAD)]
        if head.length == CHUNKED or len(received) < head.length:
            return self._start_body(head)
        return head, self._take(head.length)

    def _read_head(self, data: bytes | bytearray, end: int) -> Head:
        """The head that ends at `end`."""
        if end > self._max_head:
            raise self._head_too_long(data)
        raw = bytes(data[: end + len(_END_OF_LINE)])
        head = self._cached.get(raw) or self._heads.read(raw)
        if head.length > self._max_body and self._reads_body(head):
            raise self._body_too_large(head)
        return head

    def _start_body(self, head: Head) -> tuple[Head, bytes] | None:
        """The body is incomplete, or not needed."""
        if not self._reads_body(head):
            self.has_all = False
            return head, b""
        self.head = head
        if head.length == CHUNKED:
            self._chunks = ChunkedBody()
        return self._read_body(head)

    def _read_body(self, head: Head) -> tuple[Head, bytes] | None:
        if head.length != CHUNKED:
            if len(self.received) < head.length:
                return None
            self.head = None
            return head, self._take(head.length)
        is_complete = self._chunks.receive(self.received)
        if self._chunks.size > self._max_body:
            raise self._body_too_large(head)
        if not is_complete:
            return None
        body = bytes(self._chunks.body)
        self.head, self._chunks = None, _NO_CHUNKS
        return head, body

    def _take(self, length: int) -> bytes:
        body = bytes(self.received[:length])
        del self.received[:length]
        return body

    def _body_too_large(self, head: Head) -> Http1Error:
        self.head = head
        return Http1Error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body has at most {self._max_body} bytes here")

    def _head_too_long(self, received: bytes | bytearray) -> Http1Error:
        max_head = self._max_head
        if received.find(_END_OF_LINE, 0, max_head) < 0:
            sentence = f"the first line of a request has at most {max_head} bytes here"
            return Http1Error(HTTPStatus.REQUEST_URI_TOO_LONG, sentence)
        sentence = f"the head of a request has at most {max_head} bytes here"
        return Http1Error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, sentence)
