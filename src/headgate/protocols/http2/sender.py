"""The sending side of an HTTP/2 connection that carries unary gRPC calls: responses as frames, within flow control.

The client grants windows (RFC 9113, section 5.2): one for the connection, one for each stream.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, Final

from headgate.protocols.http2 import frames
from headgate.protocols.http2.frames import (
    DATA,
    DEFAULT_WINDOW,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    ErrorCode,
    Http2Error,
    Kind,
)
from headgate.protocols.http2.grpc_status import GrpcStatus
from headgate.protocols.http2.hpack import literal

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from headgate.protocols.http2.grpc_status import GrpcError

_STATUS_200: Final = b"\x88"
_HEAD: Final = _STATUS_200 + literal(b"content-type", b"application/grpc")
_OK: Final = literal(b"grpc-status", b"%d" % GrpcStatus.OK)
_UNCOMPRESSED: Final = b"\x00"
MESSAGE_PREFIX: Final = 5
"""Bytes before a gRPC message: whether it is compressed, and its size."""

# A response that fits into the windows, as nearly every one does, is three frames in a row.
_BEFORE_MESSAGE: Final = Struct(f">IBI{len(_HEAD)}sIBIBI").pack
_AFTER_MESSAGE: Final = Struct(f">IBI{len(_OK)}s").pack
_HEAD_SIZE: Final = len(_HEAD) << 8 | HEADERS
_OK_SIZE: Final = len(_OK) << 8 | HEADERS
_LAST: Final = END_HEADERS | END_STREAM


@dataclass(slots=True)
class _Waiting:
    """A response that did not fit into a window."""

    stream: int
    rest: bytes
    sent: int = 0


class ResponseSender:
    """Sends the responses of one connection with `write`.

    A response that does not fit waits for the window of its stream or, in `_ready`, only for that of the connection.
    So a larger connection window costs as much as can be sent, however many responses wait.
    """

    def __init__(self, write: Callable[[bytes], None], unended: Container[int] = ()) -> None:
        """Start with the windows of the standard.

        A stream that is in `unended` when its response ends is then reset: the client need not send the rest.
        """
        self._write = write
        self._unended = unended
        self._window = DEFAULT_WINDOW
        self._initial = DEFAULT_WINDOW
        self._extra: dict[int, int] = {}
        """What streams were granted beyond the initial window."""
        self.waiting: dict[int, _Waiting] = {}
        """By stream, the oldest first."""
        self.held = 0
        """Bytes of responses that wait."""
        self._ready: OrderedDict[int, _Waiting] = OrderedDict()
        self._has_larger_window = self._has_larger_streams = False

    def send(self, stream: int, message: bytes) -> None:
        """Send a response, at once or as soon as it fits into the windows."""
        size = MESSAGE_PREFIX + len(message)
        if not self.waiting and size <= self._window and size <= self._initial and size <= frames.MAX_FRAME:
            self._window -= size
            if self._extra:
                self._extra.pop(stream, None)
            before = _BEFORE_MESSAGE(
                _HEAD_SIZE, END_HEADERS, stream, _HEAD, size << 8 | DATA, 0, stream, 0, len(message)
            )
            end = _AFTER_MESSAGE(_OK_SIZE, _LAST, stream, _OK)
            self._write(before + message + (end if stream not in self._unended else end + self._reset(stream)))
            return
        self._write(frames.frame(Kind.HEADERS, END_HEADERS, stream, _HEAD))
        waiting = _Waiting(stream, _UNCOMPRESSED + len(message).to_bytes(4, "big") + message)
        self.waiting[stream] = waiting
        self.held += len(waiting.rest)
        if self._ready:  # others wait for the same window, and came before
            self._ready[stream] = waiting
        else:
            self._send(waiting)

    def send_error(self, stream: int, error: GrpcError) -> None:
        """End a stream with an error status."""
        fields = literal(b"grpc-status", b"%d" % error.status) + literal(b"grpc-message", error.message)
        end = frames.frame(Kind.HEADERS, END_HEADERS | END_STREAM, stream, _HEAD + fields)
        self._write(end + self._reset(stream))
        self.drop(stream)

    def drop(self, stream: int) -> None:
        """Send no more on a stream."""
        self._extra.pop(stream, None)
        waiting = self.waiting.pop(stream, None)
        if waiting is not None:
            self.held -= len(waiting.rest)
            self._ready.pop(stream, None)

    def grant(self, stream: int, content: bytes, *, is_open: bool) -> None:
        """Handle a WINDOW_UPDATE frame."""
        by = int.from_bytes(content, "big") & frames.MAX_WINDOW
        if not by:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR)
        if not stream:
            self._window += by
            self._has_larger_window = True
        elif is_open:
            self._extra[stream] = self._extra.get(stream, 0) + by
        if max(self._window, self._extra.get(stream, 0)) > frames.MAX_WINDOW:
            raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR)
        if stream in self.waiting and stream not in self._ready:
            self._send(self.waiting[stream])

    def set_initial_window(self, size: int) -> None:
        """Handle the setting INITIAL_WINDOW_SIZE; it applies to open streams too."""
        if size > frames.MAX_WINDOW:
            raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR)
        self._has_larger_streams |= size > self._initial
        self._initial = size

    def send_waiting(self) -> None:
        """Send what now fits. Called once after many frames, each of which may have enlarged a window."""
        if self._has_larger_streams:
            self._has_larger_streams = False
            for each in tuple(self.waiting.values()):
                if each.stream not in self._ready:
                    self._send(each)
        if self._has_larger_window:
            self._has_larger_window = False
            while self._ready and self._window > 0:
                stream, each = self._ready.popitem(last=False)
                self._send(each)
                if stream in self._ready:  # the rest of it did not fit; it stays the first
                    self._ready.move_to_end(stream, last=False)

    def _send(self, each: _Waiting) -> None:
        """Send as much of a response as fits; it is not in `_ready`."""
        of_stream = self._initial + self._extra.get(each.stream, 0) - each.sent
        room = min(self._window, of_stream, len(each.rest))
        at = 0
        while at < room:
            part = each.rest[at : min(room, at + frames.MAX_FRAME)]
            at += len(part)
            self._write(frames.frame(Kind.DATA, 0, each.stream, part))
        if at:
            each.rest = each.rest[at:]
            each.sent += at
            self._window -= at
            self.held -= at
        if not each.rest:
            self._write(_AFTER_MESSAGE(_OK_SIZE, _LAST, each.stream, _OK) + self._reset(each.stream))
            self.drop(each.stream)
        elif at < of_stream:
            self._ready[each.stream] = each

    def _reset(self, stream: int) -> bytes:
        """What follows the end of a response (RFC 9113, section 8.1)."""
        return frames.reset(stream, ErrorCode.NO_ERROR) if stream in self._unended else b""


def refuse_content_type(stream: int) -> bytes:
    """The response to a request that is not gRPC: HTTP status 415."""
    content = literal(b":status", b"415")
    return frames.frame(Kind.HEADERS, END_HEADERS | END_STREAM, stream, content)
