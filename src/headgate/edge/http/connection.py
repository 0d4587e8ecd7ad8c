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
from headgate.edge.http.application import HttpRequest, client_of
from headgate.edge.http.writing import CLOSE_LINE, CONTINUE
from headgate.edge.problems import CLOSE, OUR_FAULT, Unanswerable
from headgate.protocols.http1.messages import Head
from headgate.protocols.http1.parser import Incoming

if TYPE_CHECKING:
    from headgate.edge.http.answers import Answer
    from headgate.edge.http.application import Application, Bounds
    from headgate.edge.http.shared import Shared

_MAX_WAITING: Final = 4_096
"""Bytes that a connection holds while it waits for its turn; beyond, it is not read from."""
_MAX_UNSENT: Final = 16_384
"""Bytes of answers that the client has not taken; beyond, no request is answered."""
_MAX_DISCARDED: Final = 16 * 1024 * 1024
"""Bytes that a client may send behind what was refused, so that it hears why."""
_NO_HEAD: Final = Head("", "")
_new: Final = tuple.__new__  # half the time of HttpRequest(...)


class Connection(asyncio.Protocol):
    """Talks to one caller."""

    def __init__(self, application: Application, bounds: Bounds, shared: Shared) -> None:
        """`shared` is what all connections of the server have in common."""
        self._application = application
        self._bounds = bounds
        self._written = shared.writer.written
        self._door = shared.door
        self._turns = shared.turns
        self._memory = shared.memory
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()
        """As it was before any request: what one sets, the next one does not see."""
        self._incoming = Incoming(bounds, shared.heads, application.reads_body)
        self._early = b""
        """What came first while others had their turn; nearly always a whole request, which is not copied."""
        self._answering: Errand[Answer] | None = None
        self._asked = _NO_HEAD
        """Of the request that was asked last."""
        self._since = self._blocked_since = 0.0
        """When the connection was opened, became idle, or the head of a request had come; and was blocked."""
        self._held = self._discarded = 0
        """Bytes that `memory` knows of, and bytes that came for nothing."""
        self._is_paused = self._is_blocked = self._is_reading = self._is_ended = self._is_leaving = False
        self._is_queued = self._is_deaf = False
        """Whether it waits for its turn; whether everything was said, and the caller may not have heard it yet."""
        self.closed: asyncio.Future[None] = self._loop.create_future()
        """Done once the connection is closed."""

    # What the event loop tells

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # TCP has no other
        """Somebody is there."""
        self._transport = transport
        transport.set_write_buffer_limits(high=_MAX_UNSENT)
        self._client = client_of(transport.get_extra_info("peername"))
        self._door.enter(self)
        self._since = self._loop.time()

    def connection_lost(self, _error: Exception | None) -> None:
        """Nobody is there any more to be answered. What was begun goes on: it is counted, and has to be on record."""
        self._door.leave(self)
        # What is being answered may keep this object for a while; what was received is of no use any more.
        self._let_go()
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
            self._discard(len(data))
            return
        if self._answering is not None or self._is_blocked:  # it is early, and waits for its turn
            self._incoming.received += data
            self._pause()
            self._account()
        elif self._is_queued or self._incoming.received or self._incoming.head is not None:
            self._incoming.received += self._early + data if self._early else data
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
        early, self._early = self._early, b""
        if not early:
            self._read_all()
            return
        incoming = self._incoming
        self._is_reading = True
        try:
            found = incoming.first(early)
            if found is not None:
                self._ask(*found)
            elif incoming.head is not None:
                self._await_body(incoming.head)
        except Unanswerable as reason:
            self._refuse(reason, incoming.head)
        self._is_reading = False
        if (incoming.received or self._is_paused or self._is_ended) and self._answering is None:
            self._go_on()
        elif incoming.received or self._held:
            self._account()

    def _discard(self, size: int) -> None:
        """What came is of no use. A client that sends much of it is read from once in a turn, and not for ever."""
        self._discarded += size
        if self._discarded > _MAX_DISCARDED:
            self._transport.abort()
        elif not self._transport.is_closing():
            self._pause()
            self._turns.later(self._resume)

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
            self._queue(len(self._incoming.received))
        else:
            self._read_all()

    @property
    def _is_busy(self) -> bool:
        return self._answering is not None or self._is_blocked or self._is_deaf or self._transport.is_closing()

    def _pause(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._is_paused and not self._transport.is_closing():
            self._is_paused = False
            self._transport.resume_reading()

    def _account(self) -> None:
        """Tell how many bytes are held."""
        before, self._held = self._held, self._incoming.size + len(self._early)
        if self._is_blocked:
            self._held += self._transport.get_write_buffer_size()
        self._memory.change(self, before, self._held)

    def _let_go(self) -> None:
        self._incoming.clear()
        self._early, self._is_blocked = b"", False
        self._account()

    def make_room(self) -> None:
        """Let go of everything: all hold too much, and this connection has held more than its share for longest."""
        self._let_go()
        self._give_up(Reason.MEMORY_LIMIT)

    # Requests

    def _read_all(self) -> None:
        """Read requests as long as there are some, each is answered at once and the turn lasts; then see what comes."""
        incoming = self._incoming
        self._is_reading = True
        is_over = False
        try:
            while incoming.received and not self._is_busy and not is_over and self._read_on():
                is_over = self._turns.is_over  # others want to be answered, too
        except Unanswerable as reason:
            self._refuse(reason, incoming.head)
        self._is_reading = False
        if self._is_busy:
            if incoming.received or self._held:
                self._account()
        elif is_over and incoming.received:
            self._queue(len(incoming.received))
        elif self._is_ended:
            self._transport.close()
        else:
            self._resume()
            if incoming.received or self._held:
                self._account()

    def _read_on(self) -> bool:
        """Read what has come so far of a request in parts, or after another one; False if that is not all of it."""
        incoming = self._incoming
        before = incoming.head
        found = incoming.following()
        if found is not None:
            self._ask(*found)
        elif incoming.head is not before and incoming.head is not None:
            self._await_body(incoming.head)
        return found is not None

    def _await_body(self, head: Head) -> None:
        """The head of a request has come, and not all of its body."""
        self._since = self._loop.time()
        if head.expects_continue and not self._incoming.received:
            self._transport.write(CONTINUE)

    # Answers

    def _ask(self, head: Head, body: bytes) -> None:
        """A request is all there."""
        self._asked = head
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
        incoming = self._incoming
        is_last = not (head.keeps_open and incoming.has_all) or self._is_leaving or answer[1].endswith(CLOSE_LINE)
        transport.write(self._written(head, answer, is_last=is_last))
        if is_last:
            self._hang_up(has_all=incoming.has_all)
            return
        if not self._is_reading and (incoming.received or self._is_paused or self._is_ended):
            self._go_on()

    def _fail(self) -> None:
        """There is no answer, by a fault of ours."""
        self._answering = None
        if not self._transport.is_closing():
            self._refuse(Unanswerable(HTTPStatus.INTERNAL_SERVER_ERROR, OUR_FAULT, CLOSE), self._asked)

    def _refuse(self, reason: Unanswerable, head: Head | None) -> None:
        """Say what is wrong with a request; what may follow it cannot be told from it."""
        answer = self._application.refuse(head, reason)
        self._incoming.clear()
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
        self._resume()

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
        head = self._incoming.head
        is_idle = head is None and not self._is_deaf
        if now - self._since <= (bounds.head_seconds if is_idle else bounds.body_seconds):
            return
        if head is not None:
            self._door.closed.count(Reason.BODY_TIMEOUT)
            sentence = f"the body was not all there after {bounds.body_seconds:g} seconds"
            self._refuse(Unanswerable(HTTPStatus.REQUEST_TIMEOUT, sentence, CLOSE), head)
        elif self._is_deaf:
            self._transport.abort()
        else:
            self._give_up(Reason.HEAD_TIMEOUT if self._incoming.received else Reason.IDLE_TIMEOUT)

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
        has_begun = self._incoming.head is not None or bool(self._incoming.received)
        return has_begun or self._is_queued or self._answering is not None

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()
