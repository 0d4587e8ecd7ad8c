"""One HTTP/2 connection that carries gRPC calls of one message each (RFC 9113).

Frames come in, calls go to their methods, answers go out in one write for each turn of the event loop. What is not
needed for that is refused: push, other methods than POST, streams of messages, compressed messages. What a client can
take of the process is bounded in time, bytes and frames (`bounds`, `budget`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from headgate.edge.grpc.bounds import FRAMES_IN_A_ROW, MAX_IGNORED, MAX_MESSAGE, MAX_STREAMS, READ_AHEAD, WINDOW
from headgate.edge.grpc.budget import Budget
from headgate.edge.grpc.outbound import Outbound
from headgate.edge.grpc.patience import Patience
from headgate.edge.grpc.streams import Streams
from headgate.protocols.http2 import frames
from headgate.protocols.http2.frames import HEAD, PREFACE, Broken, ErrorCode, Reason, Setting, frame_at
from headgate.protocols.http2.hpack import MAX_LIST_BYTES
from headgate.protocols.http2.receiver import Incoming

if TYPE_CHECKING:
    from headgate.edge.grpc.shared import Shared

_USUAL_WINDOW: Final = 65_535
_LARGE_FRAME: Final = 255
"""A larger one may take long; of smaller ones a few take less than the clock can tell."""
_FRAMES_BETWEEN_LOOKS: Final = 3
"""At the clock; a power of two less one."""
_SMALL_SHARE: Final = 16_384
"""So much a client may owe us the rest of, when all connections together hold too much."""
_GREETING: Final = frames.settings(
    {
        Setting.MAX_CONCURRENT_STREAMS: MAX_STREAMS,
        Setting.INITIAL_WINDOW_SIZE: 2 * MAX_MESSAGE,
        Setting.MAX_HEADER_LIST_SIZE: MAX_LIST_BYTES,
    }
) + frames.window_update(0, WINDOW - _USUAL_WINDOW)


class Connection(asyncio.Protocol):
    """Talks to one client."""

    def __init__(self, shared: Shared) -> None:
        """`shared` is what all connections of the server have in common."""
        self._shared = shared
        self._turns = shared.turns
        self._loop = asyncio.get_running_loop()
        self._input = b""
        """What came and was not looked at yet."""
        self._budget = Budget(self._loop.time)
        self._held = 0
        self._progress = 0
        """How often whole frames have come."""
        self._is_greeted = self._is_queued = self._is_paused = False
        self._leaves_later = False
        self._is_deaf = False
        """Whether nothing is listened to any more."""
        self._ignored = 0
        """Bytes that came since then."""
        self.closed: asyncio.Future[None] = self._loop.create_future()
        """Done once the connection is closed."""

    # What the event loop tells

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # TCP has no other
        """Say what we can take."""
        self._transport = transport
        self._outbound = Outbound(transport, self._loop, self._shared.closed)
        self._streams = Streams(self._shared, self._outbound, self._budget)
        self._incoming = Incoming(self._streams, self._outbound, self._budget)
        self._patience = Patience(self._shared.bounds, self._loop.time())
        self._shared.door.enter(self)
        self._outbound.write(_GREETING)

    def connection_lost(self, _error: Exception | None) -> None:
        """The client has gone: keep nothing."""
        self._outbound.is_ended = self._is_deaf = True
        self._drop_everything()
        self._shared.door.leave(self)
        self.closed.set_result(None)

    def pause_writing(self) -> None:
        """Backpressure: stop reading while the client is not reading."""
        self._outbound.is_blocked = True
        self._pause()

    def resume_writing(self) -> None:
        """Go on."""
        self._outbound.is_blocked = False
        self._streams.begin_waiting()
        self._go_on()

    def data_received(self, data: bytes) -> None:
        """Take in what came, now or when it is this connection's turn."""
        if self._is_deaf:
            self._ignored += len(data)
            if self._ignored > MAX_IGNORED:
                self._transport.abort()
            return
        self._input = self._input + data if self._input else data
        if self._is_queued or self._outbound.is_blocked:
            self._hold()
        elif self._turns.may_begin():
            self._serve()
        else:
            self._queue()

    def _queue(self) -> None:
        self._is_queued = True
        self._turns.later(self._serve)
        self._hold()

    def _hold(self) -> None:
        """Read no more than there is to look at already."""
        if len(self._input) > READ_AHEAD:
            self._pause()
        self._account()

    def _pause(self) -> None:
        if not self._is_paused and not self._transport.is_closing():
            self._is_paused = True
            self._transport.pause_reading()

    def _go_on(self) -> None:
        """Read and serve again, after a pause of reading or of writing."""
        if self._input and not self._is_queued and not self._is_deaf:
            self._queue()
        if self._is_paused and len(self._input) <= READ_AHEAD and not self._transport.is_closing():
            self._is_paused = False
            self._transport.resume_reading()

    def _serve(self) -> None:
        """Take frames until there is no more, or the turn is over."""
        self._is_queued = False
        outbound = self._outbound
        if outbound.is_blocked or self._is_deaf:
            return
        try:
            if self._is_greeted or self._greeted():
                self._take_frames()
            self._streams.answering.send_waiting()
        except Broken as broken:
            self._end(broken)
        if self._leaves_later and not self._is_queued and not self._is_deaf:
            self._leaves_later = False
            self._streams.leave(ErrorCode.NO_ERROR)
        if self._held or self._input or self._streams.messages or self._streams.answering.held:
            self._account()
        if self._is_paused and not outbound.is_blocked:
            self._go_on()
        self._streams.end_if_done()

    def _take_frames(self) -> None:
        data, at, left = self._input, 0, FRAMES_IN_A_ROW
        turns, take = self._turns, self._incoming.take
        while True:
            frame = frame_at(data, at)
            if frame is None:
                break
            size = len(frame[3])
            at += HEAD + size
            take(frame)
            left -= 1
            if left & _FRAMES_BETWEEN_LOOKS and size <= _LARGE_FRAME:
                continue
            if not turns.has_time or (not left and turns.is_over):  # the turn is over, or others wait
                self._is_queued = len(data) > at
                break
            left = left or FRAMES_IN_A_ROW
        self._progress += at > 0
        self._input = data[at:]
        if self._is_queued:
            self._queue()

    def _greeted(self) -> bool:
        if not PREFACE.startswith(self._input[: len(PREFACE)]):
            raise Broken(ErrorCode.PROTOCOL_ERROR)
        if len(self._input) < len(PREFACE):
            return False
        self._input = self._input[len(PREFACE) :]
        self._is_greeted = True
        return True

    # What is held

    def _account(self) -> None:
        """Tell all others how many bytes this connection makes us keep, and end it if they are too many."""
        streams = self._streams
        held = len(self._input) + self._incoming.held + streams.messages + streams.answering.held
        shared, bounds = self._shared, self._shared.bounds
        shared.held += held - self._held
        self._held = held
        if held > bounds.held:
            self._end(Broken(ErrorCode.ENHANCE_YOUR_CALM, Reason.HELD_BYTES, f"{held} bytes held"))
            return
        # What waits for us is bounded by the window, and no fault of the client's.
        owed = 0 if self._is_queued else len(self._input)
        owed += self._incoming.held + streams.incomplete + streams.answering.held
        if shared.held > bounds.held_in_all and owed > min(shared.fair_share, _SMALL_SHARE):
            figures = f"{held} bytes held, {shared.held} by all connections"
            self._end(Broken(ErrorCode.ENHANCE_YOUR_CALM, Reason.MEMORY_LIMIT, figures))

    def _drop_everything(self) -> None:
        self._streams.clear()
        self._incoming = Incoming(self._streams, self._outbound, self._budget)
        self._input = b""
        self._shared.held -= self._held
        self._held = 0

    # The end

    def look(self, now: float) -> None:
        """Close the connection if its client has taken too long, or taken too much."""
        streams, outbound = self._streams, self._outbound
        if self._is_deaf or outbound.is_ended:
            if self._patience.has_lingered(now):
                self._transport.abort()
            return
        if not self._is_greeted:
            if self._patience.is_preface_late(now):
                outbound.abort(Reason.PREFACE_TIMEOUT, "no preface")
            return
        try:
            is_partial = (
                bool(self._input or self._incoming.is_in_block) and not self._is_queued and not outbound.is_blocked
            )
            self._patience.check(now, streams, is_partial=is_partial, progress=self._progress)
            self._patience.note_ended(self._budget.answered + self._budget.refused, now)
        except Broken as broken:
            self._end(broken)
        self._account()
        if self._patience.is_unread(now, is_blocked=outbound.is_blocked):
            outbound.abort(Reason.WRITE_TIMEOUT, "answers not read")

    @property
    def idle_since(self) -> float | None:
        """Since when, by the event loop's clock, no call was in flight; None while one is."""
        if self._is_deaf or self._is_queued or self._streams.is_deciding:
            return None
        return self._patience.idle_since(self._budget.answered + self._budget.refused, self._loop.time)

    @property
    def is_new(self) -> bool:
        """Whether there was no call yet."""
        return not self._streams.last

    def _end(self, broken: Broken) -> None:
        """Say what is wrong, and listen to nothing more."""
        if self._is_deaf:
            return
        self._is_deaf = True
        self._outbound.count(broken.reason, broken.figures)
        streams, outbound = self._streams, self._outbound
        if broken.reason is Reason.RESETS:  # an honest client whose calls time out; the others are answered
            self._input = b""
            streams.drop_not_begun()
            outbound.lingers = True
            streams.leave(broken.code)
            return
        outbound.end(streams.last, broken.code)
        self._drop_everything()

    def leave(self) -> None:
        """Take no more calls but those that came and wait for a turn, and close once all are answered."""
        if self._is_queued:
            self._leaves_later = True
        else:
            self._streams.leave(ErrorCode.NO_ERROR)

    def has_something_under_way(self) -> bool:
        """Whether a call has begun to come, is being answered, or its answer is still to be sent."""
        return self._is_queued or self._streams.has_something_under_way()

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()
