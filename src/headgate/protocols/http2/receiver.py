"""The frames that a client sends, and what each asks for (RFC 9113, section 6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.edge.grpc.bounds import MAX_CONTINUATIONS
from headgate.edge.grpc.header_blocks import MAX_BLOCK, HeaderBlocks
from headgate.protocols.http2 import frames
from headgate.protocols.http2.frames import (
    ACK,
    DATA,
    END_HEADERS,
    HEADERS,
    Broken,
    ErrorCode,
    Frame,
    Kind,
    Reason,
    Setting,
)

if TYPE_CHECKING:
    from headgate.edge.grpc.budget import Budget
    from headgate.edge.grpc.outbound import Outbound
    from headgate.edge.grpc.streams import Streams

_PADDED_OR_PRIORITY: Final = frames.PADDED | frames.PRIORITY
_BLOCKS: Final = frozenset({HEADERS, int(Kind.CONTINUATION)})


class _Block(NamedTuple):
    """A header block that goes on in further frames."""

    stream: int
    flags: int
    content: bytearray


class Incoming:
    """Takes the frames of one connection, in their order."""

    def __init__(self, streams: Streams, outbound: Outbound, budget: Budget) -> None:
        """Calls go to `streams`, other answers to `outbound`; what is not a call is on the client's `budget`."""
        self._streams = streams
        self._outbound = outbound
        self._budget = budget
        self._take_data = streams.data
        self._blocks = HeaderBlocks()
        self._known = self._blocks.known
        self._block: _Block | None = None
        self._continuations = 0

    @property
    def held(self) -> int:
        """Bytes of a header block that is not whole."""
        return 0 if self._block is None else len(self._block.content)

    @property
    def is_in_block(self) -> bool:
        """Whether a header block has begun that is not whole."""
        return self._block is not None

    def take(self, frame: Frame) -> None:
        """Do what a frame asks for."""
        kind = frame[0]
        if self._block is not None and (kind != Kind.CONTINUATION or frame.stream != self._block.stream):
            raise Broken(ErrorCode.PROTOCOL_ERROR)
        if kind == DATA:
            self._take_data(frame)
        elif kind in _BLOCKS:
            self._header_block(frame)
        elif kind == Kind.RST_STREAM:
            self._streams.reset(frame.stream)
        else:
            self._control(kind, frame)

    def _control(self, kind: int, frame: Frame) -> None:
        self._budget.control()
        if kind == Kind.SETTINGS:
            self._settings(frame)
        elif kind == Kind.WINDOW_UPDATE:
            streams = self._streams
            streams.answering.grant(frame.stream, frame.content, is_open=streams.is_open(frame.stream))
        elif kind == Kind.PING:
            self._ping(frame)
        elif kind == Kind.PUSH_PROMISE:
            raise Broken(ErrorCode.PROTOCOL_ERROR)

    def _ping(self, frame: Frame) -> None:
        if len(frame.content) != 8:  # noqa: PLR2004 (RFC 9113, section 6.7)
            raise Broken(ErrorCode.FRAME_SIZE_ERROR)
        if not frame.flags & ACK:
            self._outbound.write(frames.frame(Kind.PING, ACK, 0, frame.content))

    def _settings(self, frame: Frame) -> None:
        if frame.flags & ACK:
            return
        answering = self._streams.answering
        self._budget.control(len(frame.content) // 6 + len(answering.waiting) // 8)  # what they make us look through
        for setting, value in frames.read_settings(frame.content):
            if setting == Setting.INITIAL_WINDOW_SIZE:
                answering.set_initial_window(value)
        self._outbound.write(frames.frame(Kind.SETTINGS, ACK, 0))

    def _header_block(self, frame: Frame) -> None:
        if frame[0] == HEADERS:
            _, flags, stream, content = frame
            if not stream & 1:
                raise Broken(ErrorCode.PROTOCOL_ERROR)
            if flags & _PADDED_OR_PRIORITY:
                content = frame.unpadded()
            if not flags & END_HEADERS:
                self._block, self._continuations = _Block(stream, flags, bytearray(content)), 0
                return
        else:
            self._budget.control()
            if self._block is None:
                raise Broken(ErrorCode.PROTOCOL_ERROR)
            self._block.content.extend(frame.content)
            self._continuations += 1
            if len(self._block.content) > MAX_BLOCK or self._continuations > MAX_CONTINUATIONS:
                figures = f"{len(self._block.content)} bytes in {self._continuations} continuations"
                raise Broken(ErrorCode.ENHANCE_YOUR_CALM, Reason.HEADER_FIELDS, figures)
            if not frame.flags & END_HEADERS:
                return
            stream, flags, content = self._block.stream, self._block.flags, bytes(self._block.content)
            self._block = None
        fields = self._known.get(content)
        if fields is None:
            fields = self._blocks.read(content)  # even of a call that is refused: later ones build on it
            self._budget.control(self._blocks.work)
        self._streams.headers(stream, flags, fields)
