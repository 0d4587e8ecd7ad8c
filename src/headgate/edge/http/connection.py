"""One HTTP/1.1 connection: requests come in, answers go out, one after the other.

All of it happens on the event loop. A request that is there as a whole, as nearly every one is when its first bytes
come, is read in one go.
"""

from __future__ import annotations

import asyncio
from contextvars import copy_context
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from headgate.edge.closed_connections import Reason
from headgate.edge.errand import Errand
from headgate.edge.http.application import HttpRequest
from headgate.edge.http.chunks import Chunks
from headgate.edge.http.head import CHUNKED, Head, refuse_bare_line
from headgate.edge.http.writing import CLOSE_LINE, CONTINUE
from headgate.edge.problems import CLOSE, OUR_FAULT, Unanswerable

if TYPE_CHECKING:
    from headgate.edge.http.answers import Answer
    from headgate.edge.http.application import Application, Bounds
    from headgate.edge.http.shared import Shared

_END_OF_HEAD: Final = b"\r\n\r\n"
_END_OF_LINE: Final = b"\r\n"
_MAX_EMPTY_LINES: Final = 8
"""Before a request. Some clients send one behind a body."""
_MAX_WAITING: Final = 4_096
"""Bytes that a connection holds while it waits for its turn; beyond, it is not read from."""
_MAX_UNSENT: Final = 16_384
"""Bytes of answers that the client has not taken; beyond, no request is answered."""
_NO_HEAD: Final = Head("", "")
_NO_CHUNKS: Final = Chunks()
_new: Final = tuple.__new__  # half the time of HttpRequest(...)


class Connection(asyncio.Protocol):
    """Talks to one caller."""

    def __init__(self, application: Application, bounds: Bounds, shared: Shared) -> None:
        """`shared` is what all connections of the server have in common."""
        self._application = application
        self._bounds = bounds
        self._heads = shared.heads
        self._written = shared.writer.written
        self._door = shared.door
        self._turns = shared.turns
        self._memory = shared.memory
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()
        """As it was before any request: what one sets, the next one does not see."""
        self._received = bytearray()
        self._early = b""
        """What came first while others had their turn; nearly always a whole request, which is not copied."""
        self._searched = 0
        """How much of what was received has no end of a head in it."""
        self._empty_lines = 0
        """Before the request that is to come."""
        self._head: Head | None = None
        """Of a request whose body is not all there yet."""
        self._chunks = _NO_CHUNKS
        self._answering: Errand[Answer] | None = None
        self._asked = _NO_HEAD
        """Of the request that was asked last."""
        self._since = 0.0
        """When the connection was opened, became idle, or the head of a request had come."""
        self._blocked_since = 0.0
        self._held = 0
        """Bytes that `memory` knows of."""
        self._is_paused = self._is_blocked = self._is_reading = self._is_ended = self._is_leaving = False
        self._is_queued = False
        """Whether it waits for its turn."""
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
        transport.set_write_buffer_limits(high=_MAX_UNSENT)
        self._client = _address(transport.get_extra_info("peername"))
        self._door.enter(self)
        self._since = self._loop.time()

    def connection_lost(self, _error: Exception | None) -> None:
        """Nobody is there any more to be answered. What was begun goes on: it is counted, and has to be on record."""
        self._door.leave(self)
        # What is being answered may keep this object for a while; what was received is of no use any more.
        self._received, self._early = bytearray(), b""
        self._head, self._chunks = None, _NO_CHUNKS
        self._memory.bytes -= self._held
        self._held = 0
        self.closed.set_result(None)

    def pause_writing(self) -> None:
        """Backpressure: stop reading while the client is not reading."""
        self._is_blocked = True
        self._blocked_since = self._loop.time()
        self._pause()
        self._account()

    def resume_writing(self) -> None:
        """Go on."""
        self._is_blocked = False
        self._account()
        if self._answering is None:
            self._go_on()

    def eof_received(self) -> bool:
        """Nothing more will come; but who has asked may still be waiting for an answer."""
        self._is_ended = True
        # Behind TLS nothing can be sent any more once the other end has said that it closes.
        is_owed = self._answering is not None or self._is_blocked or self._is_queued
        return is_owed and self._transport.can_write_eof()

    def data_received(self, data: bytes) -> None:
        """Take in what came."""
        if self._is_deaf or self._transport.is_closing():
            return
        if self._answering is not None or self._is_blocked:  # it is early, and waits for its turn
            self._received += data
            self._pause()
            self._account()
        elif self._received or self._is_queued or self._head is not None:
            self._received += self._early + data if self._early else data
            self._early = b""
            self._go_on()
        else:
            self._early = data
            if self._turns.is_over:  # others come first
                self._queue(len(data))
            else:
                self._serve()

    def _serve(self) -> None:
        """It is this connection's turn."""
        self._is_queued = False
        early = self._early
        if not early:
            self._read_all()
            return
        self._early = b""
        self._is_reading = True
        try:
            self._read(early)
        except Unanswerable as reason:
            self._refuse(reason)
        self._is_reading = False
        if (self._received or self._is_paused or self._is_ended) and self._answering is None:
            self._go_on()
        elif self._received or self._held:
            self._account()

    def _queue(self, size: int) -> None:
        """Wait for a turn."""
        if not self._is_queued:
            self._is_queued = True
            self._turns.later(self._serve)
        if size > _MAX_WAITING:
            self._pause()
            self._account()

    def _go_on(self) -> None:
        """Go on with what has come, now or when it is this connection's turn."""
        if self._is_queued or self._turns.is_over:
            self._queue(len(self._received))
        else:
            self._read_all()

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

    def _account(self) -> None:
        """Tell how many bytes are held; a connection with more than its share is closed where there are too many."""
        held = len(self._received) + len(self._early) + len(self._chunks.body)
        if self._is_blocked:
            held += self._transport.get_write_buffer_size()
        memory, more = self._memory, held - self._held
        memory.bytes += more
        self._held = held
        if more > 0 and memory.is_full and held > memory.share:
            self._give_up(Reason.MEMORY_LIMIT)

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

    def _read_all(self) -> None:
        """Read requests as long as there are some, each is answered at once and the turn lasts; then see what comes."""
        self._is_reading = True
        is_over = False
        try:
            while self._received and not self._is_busy and self._read_on():
                if self._turns.is_over:  # others want to be answered, too
                    is_over = bool(self._received)
                    break
        except Unanswerable as reason:
            self._refuse(reason)
        self._is_reading = False
        if self._is_busy:
            if self._received or self._held:
                self._account()
        elif is_over:
            self._queue(len(self._received))
        elif self._is_ended:
            self._transport.close()
        else:
            if self._is_paused:
                self._is_paused = False
                self._transport.resume_reading()
            if self._received or self._held:
                self._account()

    def _read_on(self) -> bool:
        """Read what has come so far of a request in parts, or after another one; False if that is not all of it."""
        received = self._received
        if self._head is None:
            while self._empty_lines < _MAX_EMPTY_LINES and received.startswith(_END_OF_LINE):
                self._empty_lines += 1
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
            body, self._chunks = bytes(self._chunks.body), _NO_CHUNKS
            self._ask(head, body)
        return is_all

    def _taken(self, length: int) -> bytes:
        body = bytes(self._received[:length])
        del self._received[:length]
        return body

    # Answers

    def _ask(self, head: Head, body: bytes) -> None:
        """A request is all there."""
        self._head, self._asked, self._empty_lines = None, head, 0
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
        self._chunks = _NO_CHUNKS
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

    @property
    def idle_since(self) -> float | None:
        """Since when no request is being decided or answered; None while one is. See `Connected`."""
        if self._answering is not None or self._is_queued:
            return None
        return self._blocked_since if self._is_blocked else self._since

    @property
    def is_new(self) -> bool:
        """Whether no request has come on it yet."""
        return self._asked is _NO_HEAD

    def look(self, now: float) -> None:
        """Lose patience with a caller that has taken too long."""
        if self._answering is not None or self._is_queued:
            return
        bounds = self._bounds
        if self._is_blocked or self._transport.is_closing():  # what was answered is not taken
            if now - max(self._blocked_since, self._since) > bounds.write_seconds:
                self._give_up(Reason.WRITE_TIMEOUT)
            return
        if now - self._since <= (bounds.head_seconds if self._is_idle else bounds.body_seconds):
            return
        if self._head is not None:
            self._door.closed.count(Reason.BODY_TIMEOUT)
            sentence = f"the body was not all there after {bounds.body_seconds:g} seconds"
            self._refuse(Unanswerable(HTTPStatus.REQUEST_TIMEOUT, sentence, CLOSE))
        elif self._is_deaf:
            self._transport.abort()
        else:
            self._give_up(Reason.HEAD_TIMEOUT if self._received else Reason.IDLE_TIMEOUT)

    def _give_up(self, reason: Reason) -> None:
        self._door.closed.count(reason)
        self._transport.abort()

    def leave(self) -> None:
        """Take no more requests, and close once the one under way is answered."""
        self._is_leaving = True
        if not self.has_something_under_way():
            self._transport.close()

    def has_something_under_way(self) -> bool:
        """Whether a request has begun to come, or is being answered."""
        return self._answering is not None or self._head is not None or self._is_queued or bool(self._received)

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()


def _address(peer: tuple[str, int] | None) -> str:
    """The other end as text, in which it can be told where the port begins."""
    if not peer:
        return ""
    host, port = peer[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
