"""One HTTP/1.1 connection: requests come in, answers go out, one after the other.

All of it happens on the event loop. A request that is there as a whole, as nearly every one is when its first bytes
come, is read in one go.
"""

from __future__ import annotations

import asyncio
from contextvars import copy_context
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from headgate.edge.errand import Errand
from headgate.edge.http.application import HttpRequest
from headgate.edge.http.chunks import Chunks
from headgate.edge.http.head import CHUNKED, Head, refuse_bare_line
from headgate.edge.http.writing import CLOSE_LINE, CONTINUE
from headgate.edge.problems import CLOSE, OUR_FAULT, Unanswerable

if TYPE_CHECKING:
    from headgate.edge.door import Door
    from headgate.edge.http.answers import Answer
    from headgate.edge.http.application import Application, Bounds
    from headgate.edge.http.head import Heads
    from headgate.edge.http.writing import Writer

_END_OF_HEAD: Final = b"\r\n\r\n"
_END_OF_LINE: Final = b"\r\n"
_MOST_IN_A_ROW: Final = 16
_NO_HEAD: Final = Head("", "")
_new: Final = tuple.__new__  # half the time of HttpRequest(...)


class Connection(asyncio.Protocol):
    """Talks to one caller."""

    def __init__(
        self, application: Application, bounds: Bounds, heads: Heads, writer: Writer, door: Door[Connection]
    ) -> None:
        """`heads`, `writer` and `door` are those of the server."""
        self._application = application
        self._bounds = bounds
        self._heads = heads
        self._written = writer.written
        self._door = door
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()
        """As it was before any request: what one sets, the next one does not see."""
        self._received = bytearray()
        self._searched = 0
        """How much of what was received has no end of a head in it."""
        self._head: Head | None = None
        """Of a request whose body is not all there yet."""
        self._chunks = Chunks()
        self._answering: Errand[Answer] | None = None
        self._asked = _NO_HEAD
        """Of the request that was asked last."""
        self._since = 0.0
        """When the connection was opened, became idle, or the head of a request had come."""
        self._is_paused = self._is_blocked = self._is_reading = self._is_ended = self._is_leaving = False
        self._has_all = True
        """Whether all came of the request that was asked last."""
        self._is_deaf = False
        """Whether everything was said, and the caller may not have heard it yet."""
        self.closed: asyncio.Future[None] = self._loop.create_future()
        """Done once the connection is closed."""

    # What the event loop tells

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # TCP has no other
        """Somebody is there."""
        self._transport = transport
        self._client = _address(transport.get_extra_info("peername"))
        self._door.enter(self)
        self._since = self._loop.time()

    def connection_lost(self, _error: Exception | None) -> None:
        """Nobody is there any more to be answered. What was begun goes on: it is counted, and has to be on record."""
        self._door.leave(self)
        self.closed.set_result(None)

    def pause_writing(self) -> None:
        """Whoever does not take its answers is not listened to."""
        self._is_blocked = True
        self._pause()

    def resume_writing(self) -> None:
        """Go on."""
        self._is_blocked = False
        if self._answering is None:
            self._go_on()

    def eof_received(self) -> bool:
        """Nothing more will come; but who has asked may still be waiting for an answer."""
        self._is_ended = True
        # Behind TLS nothing can be sent any more once the other end has said that it closes.
        return self._transport.can_write_eof() and (self._answering is not None or self._is_blocked)

    def data_received(self, data: bytes) -> None:
        """Take in what came."""
        if self._is_deaf or self._transport.is_closing():
            return
        if self._answering is not None or self._is_blocked:  # it is early, and waits for its turn
            self._received += data
            self._pause()
        elif self._received or self._head is not None:
            self._received += data
            self._go_on()
        else:
            self._is_reading = True
            try:
                self._read(data)
            except Unanswerable as reason:
                self._refuse(reason)
            self._is_reading = False
            if self._received and self._answering is None:
                self._go_on()

    @property
    def _is_idle(self) -> bool:
        """Whether a request is waited for, or the rest of its head."""
        return self._head is None and not self._is_deaf

    @property
    def _is_busy(self) -> bool:
        return self._answering is not None or self._is_blocked or self._is_deaf or self._transport.is_closing()

    def _pause(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    # Requests

    def _read(self, data: bytes) -> None:
        """The beginning of a request, and perhaps all of it."""
        end = data.find(_END_OF_HEAD)
        if end < 0 or data.startswith(_END_OF_LINE):
            self._received += data
            self._read_on()
            return
        head = self._begun(data, end)
        at, length = end + len(_END_OF_HEAD), head.length
        if length == CHUNKED or len(data) - at < length:
            self._received += data[at:]
            self._await_body(head)
            return
        if len(data) - at == length:
            self._ask(head, data[at:])
            return
        self._received += data[at + length :]
        self._ask(head, data[at : at + length])

    def _go_on(self) -> None:
        """Read requests as long as there are some and each is answered at once; then see what comes."""
        self._is_reading = True
        left = _MOST_IN_A_ROW
        try:
            while self._received and not self._is_busy and left and self._read_on():
                left -= 1
        except Unanswerable as reason:
            self._refuse(reason)
        self._is_reading = False
        if not left:  # others want to be answered, too
            self._pause()
            self._loop.call_soon(self._go_on)
        elif not self._is_busy and self._is_ended:
            self._transport.close()
        elif not self._is_busy and self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()

    def _read_on(self) -> bool:
        """Read what has come so far of a request in parts, or after another one; False if that is not all of it."""
        received = self._received
        if self._head is None:
            while received.startswith(_END_OF_LINE):  # as some send behind a body
                del received[: len(_END_OF_LINE)]
            end = received.find(_END_OF_HEAD, self._searched)
            if end < 0:
                self._searched = max(0, len(received) - len(_END_OF_HEAD) + 1)
                if len(received) > self._bounds.head:
                    raise self._too_long(received)
                refuse_bare_line(received)
                return False
            self._searched = 0
            head = self._begun(received, end)
            del received[: end + len(_END_OF_HEAD)]
            if head.length == CHUNKED or len(received) < head.length:
                return self._await_body(head)
            self._ask(head, self._taken(head.length))
            return True
        return self._read_body(self._head)

    def _begun(self, data: bytes | bytearray, end: int) -> Head:
        """The head that ends at a place, if what it announces can be taken."""
        if end > self._bounds.head:
            raise self._too_long(data)
        head = self._heads.read(bytes(data[: end + len(_END_OF_LINE)]))
        if head.length > self._bounds.body and self._application.reads_body(head):
            raise self._too_large(head)
        return head

    def _await_body(self, head: Head) -> bool:
        """Wait for the body of a request; False if it is not all there."""
        if not self._application.reads_body(head):
            self._has_all = False
            self._ask(head, b"")
            return True
        self._head = head
        self._since = self._loop.time()
        if head.length == CHUNKED:
            self._chunks = Chunks()
        if head.expects_continue and not self._received:
            self._transport.write(CONTINUE)
        return self._read_body(head)

    def _read_body(self, head: Head) -> bool:
        if head.length != CHUNKED:
            if len(self._received) < head.length:
                return False
            self._ask(head, self._taken(head.length))
            return True
        is_all = self._chunks.take(self._received)
        if self._chunks.size > self._bounds.body:
            raise self._too_large(head)
        if is_all:
            self._ask(head, bytes(self._chunks.body))
        return is_all

    def _taken(self, length: int) -> bytes:
        body = bytes(self._received[:length])
        del self._received[:length]
        return body

    # Answers

    def _ask(self, head: Head, body: bytes) -> None:
        """A request is all there."""
        self._head, self._asked = None, head
        request = _new(HttpRequest, (head, body, self._client))
        self._answering = errand = Errand(
            self._application.answer(request), self._send, self._fail, self._loop, self._context.copy()
        )
        errand.begin()

    def _send(self, answer: Answer) -> None:
        head, self._answering = self._asked, None
        transport = self._transport
        if transport.is_closing():
            return
        self._since = self._loop.time()
        # Where only a part of a request came, nobody can tell where the next one would begin.
        is_last = not (head.keeps_open and self._has_all) or self._is_leaving or answer[1].endswith(CLOSE_LINE)
        transport.write(self._written(head, answer, is_last=is_last))
        if is_last:
            self._hang_up(has_all=self._has_all)
            return
        if (self._received or self._is_paused or self._is_ended) and not self._is_reading:
            self._go_on()

    def _fail(self) -> None:
        """There is no answer, by a fault of ours."""
        self._answering, self._head = None, self._asked
        if not self._transport.is_closing():
            self._refuse(Unanswerable(HTTPStatus.INTERNAL_SERVER_ERROR, OUR_FAULT, CLOSE))

    def _refuse(self, reason: Unanswerable) -> None:
        """Say what is wrong with a request; what may follow it cannot be told from it."""
        head, self._head = self._head, None
        answer = self._application.refuse(head, reason)
        self._received.clear()
        self._since = self._loop.time()
        self._transport.write(self._written(head or _NO_HEAD, answer, is_last=True))
        self._hang_up(has_all=False)

    def _hang_up(self, *, has_all: bool) -> None:
        """Close the connection; a caller that goes on sending would lose its answer if it were closed at once."""
        if has_all or self._is_ended or not self._transport.can_write_eof():
            self._transport.close()
            return
        self._is_deaf = True
        self._transport.write_eof()
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()

    def _too_large(self, head: Head) -> Unanswerable:
        self._head = head
        sentence = f"a body has at most {self._bounds.body} bytes here"
        return Unanswerable(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, sentence, CLOSE)

    def _too_long(self, received: bytes | bytearray) -> Unanswerable:
        longest = self._bounds.head
        if received.find(_END_OF_LINE, 0, longest) < 0:
            sentence = f"the first line of a request has at most {longest} bytes here"
            return Unanswerable(HTTPStatus.REQUEST_URI_TOO_LONG, sentence, CLOSE)
        sentence = f"the head of a request has at most {longest} bytes here"
        return Unanswerable(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, sentence, CLOSE)

    # The end

    def look(self, now: float) -> None:
        """Lose patience with a caller that has taken too long."""
        if self._answering is not None:
            return
        waited = now - self._since
        if waited <= (self._bounds.head_seconds if self._is_idle else self._bounds.body_seconds):
            return
        if self._head is not None:
            sentence = f"the body was not all there after {self._bounds.body_seconds:g} seconds"
            self._refuse(Unanswerable(HTTPStatus.REQUEST_TIMEOUT, sentence, CLOSE))
        else:
            self._transport.abort()

    def leave(self) -> None:
        """Take no more requests, and close once the one under way is answered."""
        self._is_leaving = True
        if not self.has_something_under_way():
            self._transport.close()

    def has_something_under_way(self) -> bool:
        """Whether a request has begun to come, or is being answered."""
        return self._answering is not None or self._head is not None or bool(self._received)

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()


def _address(peer: tuple[str, int] | None) -> str:
    """The other end as text, in which it can be told where the port begins."""
    if not peer:
        return ""
    host, port = peer[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
