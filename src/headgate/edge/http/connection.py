"""One HTTP/1.1 connection: requests come in, responses go out, one after the other.

The bytes are parsed by `headgate.protocols.http1`. This module decides when: it applies backpressure, shares the event
loop with other connections and enforces timeouts and memory limits.
"""

from __future__ import annotations

import asyncio
from contextvars import copy_context
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from headgate.edge.acceptor import CloseReason
from headgate.edge.http.application import HttpRequest, client_address
from headgate.edge.problems import CLOSE, INTERNAL_ERROR, HttpProblem
from headgate.protocols.http1.messages import CLOSE_LINE, CONTINUE, Head, Http1Error
from headgate.protocols.http1.parser import RequestParser

if TYPE_CHECKING:
    from headgate.edge.http.application import Application, Bounds
    from headgate.edge.http.server import Shared
    from headgate.protocols.http1.messages import HttpResponse

_MAX_WAITING: Final = 4_096
"""Bytes that a queued connection may hold before it stops reading."""
_MAX_UNSENT: Final = 16_384
"""Bytes of responses that the client has not read; beyond this no request is answered."""
_MAX_DISCARDED: Final = 16 * 1024 * 1024
"""Bytes that a client may send after a refused request, so that it can read the refusal."""
_TASK_SECONDS: Final = 0.00003
"""What a request takes once its task runs. It comes after the time slice that starts it, and is counted in it."""
_NO_HEAD: Final = Head("", "")
_new: Final = tuple.__new__  # half the time of HttpRequest(...)


class Connection(asyncio.Protocol):
    """Serves one client."""

    def __init__(self, application: Application, bounds: Bounds, shared: Shared) -> None:
        """`shared` is what all connections of the server have in common."""
        self._application = application
        self._bounds = bounds
        self._write = shared.writer.write
        self._acceptor = shared.acceptor
        self._time_slice = shared.time_slice
        self._memory = shared.memory
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()
        """Without any request's variables: each request runs in a copy of its own."""
        self._parser = RequestParser(
            shared.heads, max_head=bounds.head, max_body=bounds.body, reads_body=application.reads_body
        )
        self._first = b""
        """The first bytes of a queued connection: nearly always a whole request, which need not be copied."""
        self._task: asyncio.Task[None] | None = None
        """Answers the current request."""
        self._head = _NO_HEAD
        """Of the last request."""
        self._since = self._blocked_since = 0.0
        """When the connection opened, became idle or received a head; and when writing was paused."""
        self._held = self._discarded = 0
        """Bytes reported to `_memory`, and bytes received for nothing."""
        self._is_paused = self._is_blocked = self._is_ended = self._is_draining = False
        """Whether reading is paused; writing is paused; the client sends no more; the server shuts down."""
        self._is_queued = self._ignores_input = False
        """Whether it waits for a time slice; whether the last response is written, but perhaps not read yet."""
        self.closed: asyncio.Future[None] = self._loop.create_future()
        """Done once the connection is closed."""

    # Events of the transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # TCP has no other
        """Register with the acceptor."""
        self._transport = transport
        transport.set_write_buffer_limits(high=_MAX_UNSENT)
        self._client = client_address(transport.get_extra_info("peername"))
        self._acceptor.add(self)
        self._since = self._loop.time()

    def connection_lost(self, _error: Exception | None) -> None:
        """Drop what was received. A decision in flight goes on: it is counted, and has to be recorded."""
        self._acceptor.remove(self)
        self._drop_input()  # the task may keep this object for a while
        self.closed.set_result(None)

    def pause_writing(self) -> None:
        """Backpressure: stop reading while the client is not reading."""
        self._is_blocked = True
        self._blocked_since = self._loop.time()
        self._pause()
        self._report_held()

    def resume_writing(self) -> None:
        """Serve again: the client has read its responses."""
        self._is_blocked = False
        self._report_held()
        if self._task is None:
            self._continue()

    def eof_received(self) -> bool:
        """The client sends no more. Keep the transport open if a response is still owed."""
        self._is_ended = True
        # Behind TLS nothing can be sent any more once the other end has said that it closes.
        is_owed = self._task is not None or self._is_blocked or self._is_queued
        return is_owed and self._transport.can_write_eof()

    def data_received(self, data: bytes) -> None:
        """Serve a request, or keep the bytes until the connection gets a time slice."""
        if self._ignores_input or self._transport.is_closing():
            self._discard(len(data))
            return
        if self._task is not None or self._is_blocked:  # pipelined
            self._parser.received += data
            self._pause()
            self._report_held()
        elif self._is_queued or self._parser.received or self._parser.head is not None:
            self._parser.received += self._first + data if self._first else data
            self._first = b""
            self._continue()
        else:
            self._first = data
            if self._time_slice.may_start():
                self._serve()
            else:  # others come first
                self._enqueue(len(data))

    def _serve(self) -> None:
        """Parse what has arrived: this connection has the time slice."""
        self._is_queued = False
        first, self._first = self._first, b""
        if not first:
            self._serve_received()
            return
        parser = self._parser
        try:
            request = parser.receive_first(first)
            if request is not None:
                self._start(*request)
            elif parser.head is not None:
                self._await_body(parser.head)
        except Http1Error as error:
            self._refuse(HttpProblem(error.status, str(error), CLOSE), parser.head)
        if (parser.received or self._is_paused or self._is_ended) and self._task is None:
            self._continue()
        elif parser.received or self._held:
            self._report_held()

    def _discard(self, size: int) -> None:
        """Drop bytes that came after the last response: one read in each loop iteration, up to a limit."""
        self._discarded += size
        if self._discarded > _MAX_DISCARDED:
            self._transport.abort()
        elif not self._transport.is_closing():
            self._pause()
            self._time_slice.defer(self._resume)

    def _enqueue(self, size: int) -> None:
        """Wait for a time slice."""
        if not self._is_queued:
            self._is_queued = True
            self._time_slice.defer(self._serve)
        if size > _MAX_WAITING:
            self._pause()
            self._report_held()

    def _continue(self) -> None:
        """Serve what has arrived, now or with the next time slice."""
        if self._is_queued or self._time_slice.is_over:
            self._enqueue(len(self._parser.received))
        else:
            self._serve_received()

    @property
    def _is_busy(self) -> bool:
        return self._task is not None or self._is_blocked or self._ignores_input or self._transport.is_closing()

    def _pause(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._is_paused and not self._transport.is_closing():
            self._is_paused = False
            self._transport.resume_reading()

    def _report_held(self) -> None:
        """Report how many bytes this connection holds."""
        before, self._held = self._held, self._parser.size + len(self._first)
        if self._is_blocked:
            self._held += self._transport.get_write_buffer_size()
        self._memory.change(self, before, self._held)

    def _drop_input(self) -> None:
        self._parser.clear()
        self._first, self._is_blocked = b"", False
        self._report_held()

    def evict(self) -> None:
        """Close the connection to free memory: it has held more than its share for longest."""
        self._drop_input()
        self._give_up(CloseReason.MEMORY_LIMIT)

    # Requests

    def _serve_received(self) -> None:
        """Start the next request if it is complete; else read on."""
        parser = self._parser
        try:
            if parser.received and not self._is_busy:
                before = parser.head
                request = parser.next_request()
                if request is not None:
                    self._start(*request)
                elif parser.head is not before and parser.head is not None:
                    self._await_body(parser.head)
        except Http1Error as error:
            self._refuse(HttpProblem(error.status, str(error), CLOSE), parser.head)
        if not self._is_busy and not self._is_queued:
            if self._is_ended:
                self._transport.close()
                return
            self._resume()
        if parser.received or self._held:
            self._report_held()

    def _await_body(self, head: Head) -> None:
        """The head has arrived, the body is incomplete."""
        self._since = self._loop.time()
        if head.expects_continue and not self._parser.received:
            self._transport.write(CONTINUE)

    # Responses

    def _start(self, head: Head, body: bytes) -> None:
        """Answer a complete request: at once, or by a task."""
        self._head = head
        request = _new(HttpRequest, (head, body, self._client))
        response = self._application.answer_now(request)
        if response is None:
            self._time_slice.ends -= _TASK_SECONDS
            self._task = self._loop.create_task(self._answer(request), context=self._context.copy())
        elif self._send(head, response) and self._parser.received:  # the next one is for another turn
            self._enqueue(len(self._parser.received))

    async def _answer(self, request: HttpRequest) -> None:
        try:
            response = await self._application.answer(request)
        except (asyncio.CancelledError, Exception) as error:
            self._task = None
            is_closing = self._transport.is_closing()
            if is_closing and isinstance(error, asyncio.CancelledError):  # the process stops
                raise
            if not is_closing:
                self._refuse(HttpProblem(HTTPStatus.INTERNAL_SERVER_ERROR, INTERNAL_ERROR, CLOSE), request.head)
            self._loop.call_exception_handler({"message": "an HTTP request was not answered", "exception": error})
            return
        self._task = None
        if self._send(request.head, response) and (self._parser.received or self._is_paused or self._is_ended):
            self._continue()

    def _send(self, head: Head, response: HttpResponse) -> bool:
        """Write a response; whether the connection stays open."""
        transport, parser = self._transport, self._parser
        if transport.is_closing():
            return False
        self._since = self._loop.time()
        # If only part of a request was read, it is unknown where the next one begins.
        is_last = not (head.keeps_open and parser.has_all) or self._is_draining or response[1].endswith(CLOSE_LINE)
        transport.write(self._write(head, response, is_last=is_last))
        if is_last:
            self._hang_up(has_all=parser.has_all)
        return not is_last

    def _refuse(self, problem: HttpProblem, head: Head | None) -> None:
        """Answer a request that cannot be served, and close: what follows it cannot be parsed."""
        response = self._application.refuse(head, problem)
        self._parser.clear()
        self._since = self._loop.time()
        self._transport.write(self._write(head or _NO_HEAD, response, is_last=True))
        self._hang_up(has_all=False)

    def _hang_up(self, *, has_all: bool) -> None:
        """Close the connection. A client that is still sending would lose the response if it closed at once."""
        if has_all or self._is_ended or not self._transport.can_write_eof():
            self._transport.close()
            return
        self._ignores_input = True
        self._transport.write_eof()
        self._resume()

    # Timeouts and shutdown

    @property
    def idle_since(self) -> float | None:
        """Since when no request is being answered; None while one is. See `ServerConnection`."""
        if self._task is not None or self._is_queued:
            return None
        return self._blocked_since if self._is_blocked else self._since

    @property
    def is_new(self) -> bool:
        """Whether it has had no request yet."""
        return self._head is _NO_HEAD

    def check_timeouts(self, now: float) -> None:
        """Close the connection if its client has taken too long."""
        if self._task is not None or self._is_queued:
            return
        bounds = self._bounds
        if self._is_blocked or self._transport.is_closing():  # the client does not read its responses
            if now - max(self._blocked_since, self._since) > bounds.write_seconds:
                self._give_up(CloseReason.WRITE_TIMEOUT)
            return
        head = self._parser.head
        is_idle = head is None and not self._ignores_input
        if now - self._since <= (bounds.head_seconds if is_idle else bounds.body_seconds):
            return
        if head is not None:
            self._acceptor.closed.count(CloseReason.BODY_TIMEOUT)
            sentence = f"timeout: the body was not complete after {bounds.body_seconds:g} seconds"
            self._refuse(HttpProblem(HTTPStatus.REQUEST_TIMEOUT, sentence, CLOSE), head)
        elif self._ignores_input:
            self._transport.abort()
        else:
            self._give_up(CloseReason.HEAD_TIMEOUT if self._parser.received else CloseReason.IDLE_TIMEOUT)

    def _give_up(self, reason: CloseReason) -> None:
        self._acceptor.closed.count(reason)
        self._transport.abort()

    def announce_end(self) -> None:
        """Close after the next response, which says so."""
        self._is_draining = True

    def drain(self) -> None:
        """Take no more requests, and close once the current one is answered."""
        self._is_draining = True
        if not self.is_in_flight():
            self._transport.close()

    def is_in_flight(self) -> bool:
        """Whether a request has begun to arrive or is being answered."""
        has_begun = self._parser.head is not None or bool(self._parser.received)
        return has_begun or self._is_queued or self._task is not None

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()
