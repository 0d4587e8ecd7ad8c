"""One HTTP/2 connection that carries gRPC calls of one message each.

Frames are parsed by `headgate.protocols.http2`, calls go to their methods (`streams`), responses go out in one write
for each loop iteration. What is not needed for that is refused: push, other methods than POST, streams of messages,
compressed messages. What a client can use of the process is limited in time, bytes and frames (`bounds`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from headgate.edge.grpc.bounds import (
    MAX_IGNORED,
    MAX_MESSAGE,
    MAX_STREAMS,
    MAX_UNSENT,
    READ_AHEAD,
    WINDOW,
    Timeouts,
)
from headgate.edge.grpc.streams import Streams
from headgate.protocols.http2 import frames
from headgate.protocols.http2.budget import Budget
from headgate.protocols.http2.frames import DEFAULT_WINDOW, CloseReason, ErrorCode, Http2Error, Setting
from headgate.protocols.http2.hpack import DEFAULT_LIMITS
from headgate.protocols.http2.receiver import Receiver

if TYPE_CHECKING:
    from headgate.edge.acceptor import ClosedConnections
    from headgate.edge.grpc.server import Shared

_SMALL_SHARE: Final = 16_384
"""Bytes of incomplete input that a client may have while all connections together hold too much."""
_FIRST_FRAMES: Final = frames.settings(
    {
        Setting.MAX_CONCURRENT_STREAMS: MAX_STREAMS,
        Setting.INITIAL_WINDOW_SIZE: 2 * MAX_MESSAGE,
        Setting.MAX_HEADER_LIST_SIZE: DEFAULT_LIMITS.list_bytes,
    }
) + frames.window_update(0, WINDOW - DEFAULT_WINDOW)


class Output:
    """Writes to one transport: once in each loop iteration, and never without limit."""

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, closed: ClosedConnections
    ) -> None:
        """`closed` counts the connections that are closed here."""
        self._transport = transport
        self._loop = loop
        self._closed = closed
        self._frames: list[bytes] = []
        self.is_blocked = False
        """Whether the client is not reading."""
        self.lingers = False
        """Whether the client may send for a while after the end, unread: otherwise it would miss GOAWAY."""
        self.is_ended = False
        """Whether the last frame is written: the connection is closed, or about to be."""

    def write(self, data: bytes) -> None:
        """Write some frames, together with others of this loop iteration."""
        if not self._frames:
            self._loop.call_soon(self.flush)
        self._frames.append(data)

    def flush(self) -> None:
        """Write now."""
        if not self._frames:
            return
        data = b"".join(self._frames)
        self._frames.clear()
        transport = self._transport
        if self.is_ended or transport.is_closing():
            return
        transport.write(data)
        if self.is_blocked and transport.get_write_buffer_size() > MAX_UNSENT:
            self.abort(CloseReason.WRITE_TIMEOUT, f"{transport.get_write_buffer_size()} bytes not read by the client")

    def count(self, reason: CloseReason, figures: str) -> None:
        """Count the connection as closed by the server."""
        peer = self._transport.get_extra_info("peername")
        client = f"{peer[0]}:{peer[1]}" if peer else "unknown"
        self._closed.count(reason, f"client {client}: {figures}")

    def end(self, last: int, code: ErrorCode) -> None:
        """Write GOAWAY and nothing after it."""
        self.write(frames.goaway(last, code))
        self.lingers = True
        self.close()

    def close(self) -> None:
        """Flush and close the connection."""
        self.flush()
        self.is_ended = True
        transport = self._transport
        if transport.is_closing():
            return
        try:
            if self.lingers and transport.can_write_eof():
                transport.write_eof()
                return
        except OSError:  # the client has gone already
            pass
        transport.close()

    def abort(self, reason: CloseReason, figures: str) -> None:
        """Close at once."""
        if not self._transport.is_closing():
            self.count(reason, figures)
        self.is_ended = True
        self._transport.abort()


class Connection(asyncio.Protocol):
    """Serves one client."""

    def __init__(self, shared: Shared) -> None:
        """`shared` is what all connections of the server have in common."""
        self._shared = shared
        self._time_slice = shared.time_slice
        self._loop = asyncio.get_running_loop()
        self._budget = Budget(self._loop.time)
        self._held = 0
        self._is_queued = self._is_paused = self._drains = self._drains_later = False
        self._ignores_input = False
        """Whether the connection has failed; what arrives then is dropped."""
        self._ignored = 0
        """Bytes that were dropped."""
        self.closed: asyncio.Future[None] = self._loop.create_future()
        """Done once the connection is closed."""

    # Events of the transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # TCP has no other
        """Register with the acceptor, and announce the limits."""
        self._transport = transport
        self._output = Output(transport, self._loop, self._shared.closed)
        self._streams = Streams(self._shared, self._output, self._budget)
        self._receiver = Receiver(self._streams, self._streams.sender, self._output.write, self._budget)
        self._timeouts = Timeouts(self._shared.bounds, self._loop.time())
        self._shared.acceptor.add(self)
        self._output.write(_FIRST_FRAMES)

    def connection_lost(self, _error: Exception | None) -> None:
        """The client has gone: drop everything."""
        self._output.is_ended = self._ignores_input = True
        self._drop_everything()
        self._shared.acceptor.remove(self)
        self.closed.set_result(None)

    def pause_writing(self) -> None:
        """Backpressure: stop reading while the client is not reading."""
        self._output.is_blocked = True
        self._pause()

    def resume_writing(self) -> None:
        """Serve again: the client has read its responses."""
        self._output.is_blocked = False
        self._streams.start_waiting()
        self._continue()

    def data_received(self, data: bytes) -> None:
        """Process frames, now or when the connection gets a time slice."""
        if self._ignores_input:
            self._ignored += len(data)
            if self._ignored > MAX_IGNORED:
                self._transport.abort()
            return
        receiver = self._receiver
        receiver.received = receiver.received + data if receiver.received else data
        if self._is_queued or self._output.is_blocked:
            self._hold()
        elif self._time_slice.may_start():
            self._serve()
        else:
            self._enqueue()

    def _enqueue(self) -> None:
        self._is_queued = True
        self._time_slice.defer(self._serve)
        self._hold()

    def _hold(self) -> None:
        """Stop reading if there is enough to process."""
        if len(self._receiver.received) > READ_AHEAD:
            self._pause()
        self._report_held()

    def _pause(self) -> None:
        if not self._is_paused and not self._transport.is_closing():
            self._is_paused = True
            self._transport.pause_reading()

    def _continue(self) -> None:
        """Read and serve again, after a pause of reading or of writing."""
        received = self._receiver.received
        if received and not self._is_queued and not self._ignores_input:
            self._enqueue()
        if self._is_paused and len(received) <= READ_AHEAD and not self._transport.is_closing():
            self._is_paused = False
            self._transport.resume_reading()

    def _serve(self) -> None:
        """Process frames until there are no more, or the time slice is over."""
        self._is_queued = False
        output, receiver = self._output, self._receiver
        if output.is_blocked or self._ignores_input:
            return
        sender = self._streams.sender
        try:
            if receiver.process(self._time_slice):
                self._enqueue()
            sender.send_waiting()
        except Http2Error as error:
            self._fail(error)
        if self._drains_later and not self._is_queued and not self._ignores_input:
            self._drains_later = False
            self._streams.drain(ErrorCode.NO_ERROR)
        if self._held or receiver.received or self._streams.messages or sender.held:
            self._report_held()
        if self._is_paused and not output.is_blocked:
            self._continue()
        self._streams.close_if_done()

    # Memory

    def _report_held(self) -> None:
        """Report how many bytes this connection holds, and close it if they are too many."""
        streams, received = self._streams, len(self._receiver.received)
        held = received + self._receiver.block_bytes + streams.messages + streams.sender.held
        shared, bounds = self._shared, self._shared.bounds
        shared.held += held - self._held
        self._held = held
        if held > bounds.held:
            self._fail(Http2Error(ErrorCode.ENHANCE_YOUR_CALM, CloseReason.HELD_BYTES, f"{held} bytes held"))
            return
        # What waits for the server is limited by the window, and is not the client's fault.
        unfinished = 0 if self._is_queued else received
        unfinished += self._receiver.block_bytes + streams.incomplete + streams.sender.held
        if shared.held > bounds.held_in_all and unfinished > min(shared.fair_share, _SMALL_SHARE):
            figures = f"{held} bytes held, {shared.held} by all connections"
            self._fail(Http2Error(ErrorCode.ENHANCE_YOUR_CALM, CloseReason.MEMORY_LIMIT, figures))

    def _drop_everything(self) -> None:
        self._streams.clear()
        self._receiver.clear()
        self._shared.held -= self._held
        self._held = 0

    # Timeouts and shutdown

    def check_timeouts(self, now: float) -> None:
        """Close the connection if its client has taken too long, or holds too much."""
        streams, output, receiver = self._streams, self._output, self._receiver
        if self._ignores_input or output.is_ended:
            if self._timeouts.has_lingered(now):
                self._transport.abort()
            return
        if not receiver.has_preface:
            if self._timeouts.is_preface_late(now):
                output.abort(CloseReason.PREFACE_TIMEOUT, "no preface")
            return
        try:
            has_partial = bool(receiver.received or receiver.is_in_block)
            is_partial = has_partial and not self._is_queued and not output.is_blocked
            self._timeouts.check(now, streams, is_partial=is_partial, progress=receiver.progress)
            self._timeouts.set_completed(self._budget.answered + self._budget.refused, now)
        except Http2Error as error:
            self._fail(error)
        self._report_held()
        if self._timeouts.is_unread(now, is_blocked=output.is_blocked):
            output.abort(CloseReason.WRITE_TIMEOUT, "responses not read")

    @property
    def idle_since(self) -> float | None:
        """Since when, by the event loop's clock, no call was in flight; None while one is."""
        if self._ignores_input or self._is_queued or self._streams.is_deciding:
            return None
        return self._timeouts.idle_since(self._budget.answered + self._budget.refused, self._loop.time)

    @property
    def is_new(self) -> bool:
        """Whether it has had no call yet."""
        return not self._streams.last

    def _fail(self, error: Http2Error) -> None:
        """Send GOAWAY, and process nothing more."""
        if self._ignores_input:
            return
        self._ignores_input = True
        self._output.count(error.reason, error.figures)
        streams, output = self._streams, self._output
        if error.reason is CloseReason.RESETS:  # an honest client whose calls time out; its other calls are answered
            self._receiver.received = b""
            streams.drop_not_started()
            output.lingers = True
            streams.drain(error.code)
            return
        output.end(streams.last, error.code)
        self._drop_everything()

    def announce_end(self) -> None:
        """Drain, unless the client has just come: it would have to come again without an answer."""
        if not self.is_new:
            self.drain()

    def drain(self) -> None:
        """Take no more calls but those that are queued, and close once all are answered."""
        if self._drains:
            return
        self._drains = True
        if self._is_queued:
            self._drains_later = True
        else:
            self._streams.drain(ErrorCode.NO_ERROR)

    def is_in_flight(self) -> bool:
        """Whether a call has begun to arrive, is being answered, or its response is still to be sent."""
        return self._is_queued or self._streams.is_in_flight()

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()
