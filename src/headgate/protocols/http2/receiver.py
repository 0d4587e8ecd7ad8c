"""The receiving side of an HTTP/2 connection (RFC 9113): bytes in, events out, at a bounded cost.

`Receiver` cuts bytes into frames, joins header blocks, replies to control frames and hands the rest to a
`StreamHandler`. `ReceiveWindow` bounds what a client may send ahead, `budget` what it may send besides calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from headgate.protocols.http2 import frames
from headgate.protocols.http2.frames import (
    ACK,
    DATA,
    END_HEADERS,
    HEAD,
    HEADERS,
    PREFACE,
    CloseReason,
    ErrorCode,
    Frame,
    Http2Error,
    Kind,
    Setting,
    check_control,
    frame_at,
)
from headgate.protocols.http2.hpack import DEFAULT_LIMITS, HeaderLimits, HeaderReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.protocols.http2.budget import Budget
    from headgate.protocols.http2.hpack import HeaderFields
    from headgate.protocols.http2.sender import ResponseSender

_PADDED_OR_PRIORITY: Final = frames.PADDED | frames.PRIORITY
_BLOCKS: Final = frozenset({HEADERS, int(Kind.CONTINUATION)})
_FRAMES_IN_A_ROW: Final = 64
"""After so many frames of one connection, a queued one comes first."""
_LARGE_FRAME: Final = 255
"""A larger one may take long; a few smaller ones take less than the clock can measure."""
_FRAMES_BETWEEN_CHECKS: Final = 3
"""Of the clock; a power of two less one."""


class ReceiveWindow:
    """Flow control of DATA frames for a whole connection (section 5.2): what the client may send ahead."""

    __slots__ = ("_size", "_write", "half", "uncredited")

    def __init__(self, size: int, write: Callable[[bytes], None]) -> None:
        """`size` bytes, announced to the client before."""
        self._size = size
        self._write = write
        self.half = size // 2
        """Call `credit` once more than this is `uncredited`."""
        self.uncredited = 0
        """Bytes received that were not credited back to the client."""

    def credit(self, held: int) -> None:
        """Let the client send as many bytes more as are not `held` any more."""
        if self.uncredited > self._size + frames.MAX_FRAME:
            raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR)
        done = self.uncredited - held
        if done > self._size // 4:
            self._write(frames.window_update(0, done))
            self.uncredited -= done


class StreamHandler(Protocol):
    """Takes the events of a connection."""

    @property
    def last(self) -> int:
        """The last stream that the client opened."""

    def headers(self, stream: int, flags: int, fields: HeaderFields) -> None:
        """A header block is complete: it opens a stream, or ends one."""

    def data(self, frame: Frame) -> None:
        """A DATA frame has arrived."""

    def reset(self, stream: int) -> None:
        """The client has reset a stream."""

    def is_open(self, stream: int) -> bool:
        """Whether a response on this stream is still to come."""


class Pace(Protocol):
    """Says how long `Receiver.process` may go on."""

    @property
    def has_time(self) -> bool:
        """Whether there is time for another frame."""

    @property
    def is_over(self) -> bool:
        """Whether there is no time, or another connection is queued."""


class _Block(NamedTuple):
    """A header block that continues in further frames."""

    stream: int
    flags: int
    content: bytearray


class Receiver:
    """Processes the frames of one connection, in their order."""

    def __init__(
        self,
        handler: StreamHandler,
        sender: ResponseSender,
        write: Callable[[bytes], None],
        budget: Budget,
        limits: HeaderLimits = DEFAULT_LIMITS,
    ) -> None:
        """Calls go to `handler`, windows to `sender`, replies to `write`; the rest is on the client's `budget`."""
        self.received = b""
        """Bytes that were not processed yet. Append here, then call `process`."""
        self.has_preface = False
        self.progress = 0
        """How often complete frames have arrived."""
        self._handler = handler
        self._handle_data = handler.data
        self._sender = sender
        self._write = write
        self._budget = budget
        self._limits = limits
        self._header_reader = HeaderReader(limits)
        self._cached = self._header_reader.cached
        self._block: _Block | None = None
        self._continuations = 0

    @property
    def block_bytes(self) -> int:
        """Bytes of an incomplete header block."""
        return 0 if self._block is None else len(self._block.content)

    @property
    def is_in_block(self) -> bool:
        """Whether a header block is incomplete."""
        return self._block is not None

    def clear(self) -> None:
        """Drop everything."""
        self.received = b""
        self._block = None

    def process(self, pace: Pace) -> bool:
        """Handle the frames that are complete. True if `pace` stopped it with bytes left."""
        data, at, left = self.received, 0, _FRAMES_IN_A_ROW
        if not self.has_preface:
            if not self._read_preface():
                return False
            data = self.received
        handle, is_stopped = self._handle, False
        while True:
            frame = frame_at(data, at)
            if frame is None:
                break
            size = len(frame[3])
            at += HEAD + size
            handle(frame)
            left -= 1
            if left & _FRAMES_BETWEEN_CHECKS and size <= _LARGE_FRAME:
                continue
            if not pace.has_time or (not left and pace.is_over):
                is_stopped = len(data) > at
                break
            left = left or _FRAMES_IN_A_ROW
        self.progress += at > 0
        self.received = data[at:]
        return is_stopped

    def _read_preface(self) -> bool:
        if not PREFACE.startswith(self.received[: len(PREFACE)]):
            raise Http2Error(ErrorCode.PROTOCOL_ERROR)
        if len(self.received) < len(PREFACE):
            return False
        self.received = self.received[len(PREFACE) :]
        self.has_preface = True
        return True

    def _handle(self, frame: Frame) -> None:
        kind = frame[0]
        if self._block is not None and (kind != Kind.CONTINUATION or frame.stream != self._block.stream):
            raise Http2Error(ErrorCode.PROTOCOL_ERROR)
        if kind == DATA:
            self._handle_data(frame)
        elif kind in _BLOCKS:
            self._handle_block(frame)
        elif kind == Kind.RST_STREAM:
            check_control(kind, frame.stream, frame.content)
            self._check_not_idle(frame.stream)
            self._handler.reset(frame.stream)
        else:
            self._handle_control(kind, frame)

    def _handle_control(self, kind: int, frame: Frame) -> None:
        self._budget.control()
        check_control(kind, frame.stream, frame.content)
        if kind == Kind.SETTINGS:
            self._handle_settings(frame)
        elif kind == Kind.WINDOW_UPDATE:
            self._check_not_idle(frame.stream)
            self._sender.grant(frame.stream, frame.content, is_open=self._handler.is_open(frame.stream))
        elif kind == Kind.PING:
            if not frame.flags & ACK:
                self._write(frames.frame(Kind.PING, ACK, 0, frame.content))
        elif kind == Kind.PUSH_PROMISE:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR)

    def _check_not_idle(self, stream: int) -> None:
        if stream > self._handler.last or (stream and not stream & 1):  # the server opens none
            raise Http2Error(ErrorCode.PROTOCOL_ERROR)

    def _handle_settings(self, frame: Frame) -> None:
        if frame.flags & ACK:
            if frame.content:
                raise Http2Error(ErrorCode.FRAME_SIZE_ERROR)
            return
        sender = self._sender
        self._budget.control(len(frame.content) // 6 + len(sender.waiting) // 8)  # what they make the server traverse
        for setting, value in frames.read_settings(frame.content):
            if setting == Setting.INITIAL_WINDOW_SIZE:
                sender.set_initial_window(value)
        self._write(frames.frame(Kind.SETTINGS, ACK, 0))

    def _handle_block(self, frame: Frame) -> None:
        if frame[0] == HEADERS:
            _, flags, stream, content = frame
            if not stream & 1:
                raise Http2Error(ErrorCode.PROTOCOL_ERROR)
            if flags & _PADDED_OR_PRIORITY:
                content = frame.unpadded()
            if not flags & END_HEADERS:
                self._block, self._continuations = _Block(stream, flags, bytearray(content)), 0
                return
        else:
            self._budget.control()
            if self._block is None:
                raise Http2Error(ErrorCode.PROTOCOL_ERROR)
            self._block.content.extend(frame.content)
            self._continuations += 1
            limits = self._limits
            if len(self._block.content) > limits.block_bytes or self._continuations > limits.continuations:
                figures = f"{len(self._block.content)} bytes in {self._continuations} continuations"
                raise Http2Error(ErrorCode.ENHANCE_YOUR_CALM, CloseReason.HEADER_FIELDS, figures)
            if not frame.flags & END_HEADERS:
                return
            stream, flags, content = self._block.stream, self._block.flags, bytes(self._block.content)
            self._block = None
        fields = self._cached.get(content)
        if fields is None:
            fields = self._header_reader.read(content)  # also of a refused call: later blocks refer to it
            self._budget.control(self._header_reader.work)
        self._handler.headers(stream, flags, fields)
