"""HTTP/2 frames (RFC 9113, sections 4 and 6): read from bytes, and written."""

from __future__ import annotations

from enum import IntEnum, StrEnum
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD: Final = 9
MAX_FRAME: Final = 16_384
"""Bytes of a frame's content, unless an endpoint announces more; ours does not."""
MAX_WINDOW: Final = 2**31 - 1
DEFAULT_WINDOW: Final = 65_535
MAX_SETTINGS: Final = 64
"""In one frame; the standards know a dozen."""

_HEAD: Final = Struct(">IBI")
"""24 bits of size and 8 of kind; flags; the stream."""
_unpack: Final = _HEAD.unpack_from

_new = tuple.__new__  # less time than Frame(...)

END_STREAM, ACK, END_HEADERS, PADDED, PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20


class Kind(IntEnum):
    """Frame types."""

    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


DATA, HEADERS = int(Kind.DATA), int(Kind.HEADERS)
"""As plain numbers: an enum lookup takes longer than the comparison."""


class Setting(IntEnum):
    """Settings that are read or announced."""

    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


class ErrorCode(IntEnum):
    """Why a stream or a connection ends (section 7)."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    FLOW_CONTROL_ERROR = 3
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    ENHANCE_YOUR_CALM = 11


class CloseReason(StrEnum):
    """Why the server closes a connection, as the log and the metric name it."""

    PREFACE_TIMEOUT = "preface_timeout"
    """The preface was not complete in time."""
    IDLE_TIMEOUT = "idle_timeout"
    """No call came."""
    INCOMPLETE_TIMEOUT = "incomplete_timeout"
    """A frame or a header block was not complete in time."""
    WRITE_TIMEOUT = "write_timeout"
    """The client did not read its responses."""
    RESETS = "resets"
    """Too many calls were reset."""
    CONTROL_FRAMES = "control_frames"
    """Too many control frames, or too much work for them."""
    HEADER_FIELDS = "header_fields"
    """A header block was too long, or had too many fields."""
    HELD_BYTES = "held_bytes"
    """It held more than one connection may."""
    MEMORY_LIMIT = "memory_limit"
    """It held more than its share while all connections together held more than allowed."""
    PROTOCOL_ERROR = "protocol_error"
    """The bytes were not HTTP/2."""


class Http2Error(Exception):
    """The client violates the protocol or exceeds a limit; the connection has to be closed."""

    def __init__(self, code: ErrorCode, reason: CloseReason = CloseReason.PROTOCOL_ERROR, figures: str = "") -> None:
        """`code` is for the client; `reason` and `figures` are for the log."""
        self.code = code
        self.reason = reason
        self.figures = figures or code.name
        super().__init__(f"{reason}: {self.figures}")


class Frame(NamedTuple):
    """One frame."""

    kind: int
    flags: int
    stream: int
    content: bytes

    def unpadded(self) -> bytes:
        """The content of DATA and HEADERS without padding and priority."""
        content = self.content
        if not self.flags & (PADDED | PRIORITY):
            return content
        start, end = 0, len(content)
        if self.flags & PADDED:
            if not content:
                raise Http2Error(ErrorCode.FRAME_SIZE_ERROR)
            start, end = 1, end - content[0]
        if self.kind == HEADERS and self.flags & PRIORITY:
            start += 5
        if start > end:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR)
        return content[start:end]


_SIZES: Final[dict[int, int]] = {Kind.PRIORITY: 5, Kind.RST_STREAM: 4, Kind.PING: 8, Kind.WINDOW_UPDATE: 4}
_MIN_GOAWAY: Final = 8
_OF_STREAMS: Final = frozenset({Kind.PRIORITY, Kind.RST_STREAM})
_OF_CONNECTIONS: Final = frozenset({Kind.SETTINGS, Kind.PING, Kind.GOAWAY})


def check_control(kind: int, stream: int, content: bytes) -> None:
    """Refuse a control frame of the wrong size, or on a stream where it cannot be (section 6)."""
    if len(content) != _SIZES.get(kind, len(content)) or (kind == Kind.GOAWAY and len(content) < _MIN_GOAWAY):
        raise Http2Error(ErrorCode.FRAME_SIZE_ERROR)
    if kind in (_OF_CONNECTIONS if stream else _OF_STREAMS):
        raise Http2Error(ErrorCode.PROTOCOL_ERROR)


_ALLOWED: Final[dict[int, range]] = {Setting.ENABLE_PUSH: range(2), Setting.MAX_FRAME_SIZE: range(MAX_FRAME, 2**24)}


def read_frames(received: bytearray) -> Iterator[Frame]:
    """Yield the complete frames at the beginning of `received`; they are removed once the last was yielded."""
    at, data = 0, bytes(received)
    while (found := frame_at(data, at)) is not None:
        at += HEAD + len(found.content)
        yield found
    del received[:at]


def frame_at(data: bytes, at: int) -> Frame | None:
    """The frame that begins at `at`; None if it is incomplete."""
    start = at + HEAD
    if start > len(data):
        return None
    size_and_kind, flags, stream = _unpack(data, at)
    size = size_and_kind >> 8
    if size > MAX_FRAME:
        raise Http2Error(ErrorCode.FRAME_SIZE_ERROR)
    content = data[start : start + size]
    if len(content) < size:
        return None
    return _new(Frame, (size_and_kind & 0xFF, flags, stream & MAX_WINDOW, content))


def frame(kind: Kind, flags: int, stream: int, content: bytes = b"") -> bytes:
    """A frame as bytes."""
    return _HEAD.pack(len(content) << 8 | kind, flags, stream) + content


def settings(values: dict[Setting, int]) -> bytes:
    """A SETTINGS frame."""
    content = b"".join(name.to_bytes(2, "big") + value.to_bytes(4, "big") for name, value in values.items())
    return frame(Kind.SETTINGS, 0, 0, content)


def read_settings(content: bytes) -> Iterator[tuple[int, int]]:
    """The settings in a frame: identifiers and values."""
    if len(content) % 6:
        raise Http2Error(ErrorCode.FRAME_SIZE_ERROR)
    if len(content) > 6 * MAX_SETTINGS:
        figures = f"{len(content) // 6} settings in one frame"
        raise Http2Error(ErrorCode.ENHANCE_YOUR_CALM, CloseReason.CONTROL_FRAMES, figures)
    for at in range(0, len(content), 6):
        setting, value = int.from_bytes(content[at : at + 2], "big"), int.from_bytes(content[at + 2 : at + 6], "big")
        if setting in _ALLOWED and value not in _ALLOWED[setting]:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR)
        yield setting, value


def window_update(stream: int, by: int) -> bytes:
    """A WINDOW_UPDATE frame: the client may send `by` bytes more."""
    return frame(Kind.WINDOW_UPDATE, 0, stream, by.to_bytes(4, "big"))


def reset(stream: int, code: ErrorCode) -> bytes:
    """A RST_STREAM frame."""
    return frame(Kind.RST_STREAM, 0, stream, code.to_bytes(4, "big"))


def goaway(last: int, code: ErrorCode) -> bytes:
    """A GOAWAY frame: streams up to `last` are answered, later ones are not."""
    return frame(Kind.GOAWAY, 0, 0, last.to_bytes(4, "big") + code.to_bytes(4, "big"))
