"""From bytes to requests: what has come on one connection, taken apart as HTTP/1.1. No I/O, nothing that waits."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from headgate.edge.http.chunks import Chunks
from headgate.edge.problems import CLOSE, Unanswerable
from headgate.protocols.http1.messages import CHUNKED, refuse_bare_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.edge.http.application import Bounds
    from headgate.protocols.http1.messages import Head, Heads

_END_OF_HEAD: Final = b"\r\n\r\n"
_END_OF_LINE: Final = b"\r\n"
_MAX_EMPTY_LINES: Final = 8
"""Before a request. Some clients send one behind a body."""
_NO_CHUNKS: Final = Chunks()


class Incoming:
    """What has come and was not asked yet. Everything here raises `Unanswerable` for what is no request."""

    __slots__ = (
        "_bounds",
        "_chunks",
        "_empty_lines",
        "_heads",
        "_reads_body",
        "_searched",
        "has_all",
        "head",
        "received",
    )

    def __init__(self, bounds: Bounds, heads: Heads, reads_body: Callable[[Head], bool]) -> None:
        """`reads_body` says whether the body of a request is waited for."""
        self._bounds = bounds
        self._heads = heads
        self._reads_body = reads_body
        self.received = bytearray()
        """Beyond the head below, if there is one."""
        self.head: Head | None = None
        """Of a request whose body is not all there yet, or that cannot be taken."""
        self.has_all = True
        """Whether all came of the request that was found last."""
        self._chunks = _NO_CHUNKS
        self._searched = 0
        """How much of what was received has no end of a head in it."""
        self._empty_lines = 0
        """Before the request that is to come."""

    @property
    def size(self) -> int:
        """Bytes that are held."""
        return len(self.received) + len(self._chunks.body)

    def clear(self) -> None:
        """Hold nothing any more."""
        self.received = bytearray()
        self.head, self._chunks = None, _NO_CHUNKS

    def first(self, data: bytes) -> tuple[Head, bytes] | None:
        """Take what came while nothing was held: the beginning of a request, and nearly always all of it.

        Returns a request that is all there, or None.
        """
        end = data.find(_END_OF_HEAD)
        if end < 0 or self._empty_lines or data.startswith(_END_OF_LINE):
            self.received += data
            return self.following()
        head = self._begun(data, end)
        at, length = end + len(_END_OF_HEAD), head.length
        if length == CHUNKED or len(data) - at < length:
            self.received += data[at:]
            return self._with_body(head)
        if len(data) - at == length:
            return head, data[at:]
        self.received += data[at + length :]
        return head, data[at : at + length]

    def following(self) -> tuple[Head, bytes] | None:
        """The next request in what was received, if it is all there."""
        if self.head is not None:
            return self._body_of(self.head)
        received = self.received
        while self._empty_lines < _MAX_EMPTY_LINES and received.startswith(_END_OF_LINE):
            self._empty_lines += 1
            del received[: len(_END_OF_LINE)]
        end = received.find(_END_OF_HEAD, self._searched)
        if end < 0:
            self._searched = max(0, len(received) - len(_END_OF_HEAD) + 1)
            if len(received) > self._bounds.head:
                raise self._too_long(received)
            refuse_bare_line(received)
            return None
        self._searched = self._empty_lines = 0
        head = self._begun(received, end)
        del received[: end + len(_END_OF_HEAD)]
        if head.length == CHUNKED or len(received) < head.length:
            return self._with_body(head)
        return head, self._taken(head.length)

    def _begun(self, data: bytes | bytearray, end: int) -> Head:
        """The head that ends at a place, if what it announces can be taken."""
        if end > self._bounds.head:
            raise self._too_long(data)
        head = self._heads.read(bytes(data[: end + len(_END_OF_LINE)]))
        if head.length > self._bounds.body and self._reads_body(head):
            raise self._too_large(head)
        return head

    def _with_body(self, head: Head) -> tuple[Head, bytes] | None:
        """A request whose body is still to come, or not waited for."""
        if not self._reads_body(head):
            self.has_all = False
            return head, b""
        self.head = head
        if head.length == CHUNKED:
            self._chunks = Chunks()
        return self._body_of(head)

    def _body_of(self, head: Head) -> tuple[Head, bytes] | None:
        if head.length != CHUNKED:
            if len(self.received) < head.length:
                return None
            self.head = None
            return head, self._taken(head.length)
        is_all = self._chunks.take(self.received)
        if self._chunks.size > self._bounds.body:
            raise self._too_large(head)
        if not is_all:
            return None
        body = bytes(self._chunks.body)
        self.head, self._chunks = None, _NO_CHUNKS
        return head, body

    def _taken(self, length: int) -> bytes:
        body = bytes(self.received[:length])
        del self.received[:length]
        return body

    def _too_large(self, head: Head) -> Unanswerable:
        self.head = head
        sentence = f"a body has at most {self._bounds.body} bytes here"
        return Unanswerable(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, sentence, CLOSE)

    def _too_long(self, received: bytes | bytearray) -> Unanswerable:
        longest = self._bounds.head
        if received.find(_END_OF_LINE, 0, longest) < 0:
            sentence = f"the first line of a request has at most {longest} bytes here"
            return Unanswerable(HTTPStatus.REQUEST_URI_TOO_LONG, sentence, CLOSE)
        sentence = f"the head of a request has at most {longest} bytes here"
        return Unanswerable(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, sentence, CLOSE)
