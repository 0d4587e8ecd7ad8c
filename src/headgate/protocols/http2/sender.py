"""The sending half of a connection: answers as frames, as many bytes at a time as the other end can take.

How much that is HTTP/2 calls windows (RFC 9113, section 5.2): one for the connection, one for each stream.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, Final

from headgate.edge.grpc.header_blocks import literal
from headgate.edge.grpc.statuses import GrpcStatus
from headgate.protocols.http2 import frames
from headgate.protocols.http2.frames import DATA, END_HEADERS, END_STREAM, HEADERS, Broken, ErrorCode, Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.edge.grpc.statuses import Failed

_USUAL_WINDOW: Final = 65_535
_STATUS_200: Final = b"\x88"
_HEAD: Final = _STATUS_200 + literal(b"content-type", b"application/grpc")
_OK: Final = literal(b"grpc-status", b"%d" % GrpcStatus.OK)
_UNCOMPRESSED: Final = b"\x00"
_PREFIX: Final = 5
"""Of a message: whether it is compressed, and its size."""

# An answer that fits into the windows, which nearly every one does, is three frames in a row.
_BEFORE_MESSAGE: Final = Struct(f">IBI{len(_HEAD)}sIBIBI").pack
_AFTER_MESSAGE: Final = Struct(f">IBI{len(_OK)}s").pack
_HEAD_SIZE: Final = len(_HEAD) << 8 | HEADERS
_OK_SIZE: Final = len(_OK) << 8 | HEADERS
_LAST: Final = END_HEADERS | END_STREAM


@dataclass(slots=True)
class _Waiting:
    """An answer that did not fit into a window."""

    stream: int
    rest: bytes
    sent: int = 0


class Answering:
    """Writes answers with `write`.

    An answer that has to wait does so for the window of its stream, or, in `_ready`, for that of the connection alone.
    So more room of the connection costs as much as can be sent, however many answers wait.
    """

    def __init__(self, write: Callable[[bytes], None]) -> None:
        """Nothing is known of the other end yet but what the standard says."""
        self._write = write
        self._window = _USUAL_WINDOW
        self._initial = _USUAL_WINDOW
        self._extra: dict[int, int] = {}
        """What streams were granted beyond the initial window."""
        self.waiting: dict[int, _Waiting] = {}
        """By stream, the oldest first."""
        self.held = 0
        """Bytes of answers that wait."""
        self._ready: OrderedDict[int, _Waiting] = OrderedDict()
        self._has_more_room = self._has_wider_streams = False

    def answer(self, stream: int, message: bytes) -> None:
        """Send an answer, at once or as soon as there is room."""
        size = _PREFIX + len(message)
        if not self.waiting and size <= self._window and size <= self._initial and size <= frames.LARGEST:
            self._window -= size
            if self._extra:
                self._extra.pop(stream, None)
            before = _BEFORE_MESSAGE(
                _HEAD_SIZE, END_HEADERS, stream, _HEAD, size << 8 | DATA, 0, stream, 0, len(message)
            )
            self._write(before + message + _end(stream))
            return
        self._write(frames.frame(Kind.HEADERS, END_HEADERS, stream, _HEAD))
        waiting = _Waiting(stream, _UNCOMPRESSED + len(message).to_bytes(4, "big") + message)
        self.waiting[stream] = waiting
        self.held += len(waiting.rest)
        if self._ready:  # others wait for the same room, and came before
            self._ready[stream] = waiting
        else:
            self._send(waiting)

    def fail(self, stream: int, failed: Failed) -> None:
        """Say why there is no answer."""
        fields = literal(b"grpc-status", b"%d" % failed.status) + literal(b"grpc-message", failed.message)
        self._write(frames.frame(Kind.HEADERS, END_HEADERS | END_STREAM, stream, _HEAD + fields))
        self.forget(stream)

    def forget(self, stream: int) -> None:
        """Send no more for a stream."""
        self._extra.pop(stream, None)
        waiting = self.waiting.pop(stream, None)
        if waiting is not None:
            self.held -= len(waiting.rest)
            self._ready.pop(stream, None)

    def grant(self, stream: int, content: bytes, *, is_open: bool) -> None:
        """A WINDOW_UPDATE frame has come."""
        if len(content) != 4:  # noqa: PLR2004 (one number)
            raise Broken(ErrorCode.FRAME_SIZE_ERROR)
        by = int.from_bytes(content, "big") & frames.LARGEST_WINDOW
        if not by:
            raise Broken(ErrorCode.PROTOCOL_ERROR)
        if not stream:
            self._window += by
            self._has_more_room = True
        elif is_open:
            self._extra[stream] = self._extra.get(stream, 0) + by
        if max(self._window, self._extra.get(stream, 0)) > frames.LARGEST_WINDOW:
            raise Broken(ErrorCode.FLOW_CONTROL_ERROR)
        if stream in self.waiting and stream not in self._ready:
            self._send(self.waiting[stream])

    def set_initial_window(self, size: int) -> None:
        """The other end has said how much a stream can take at first; it holds for open ones too."""
        if size > frames.LARGEST_WINDOW:
            raise Broken(ErrorCode.FLOW_CONTROL_ERROR)
        self._has_wider_streams |= size > self._initial
        self._initial = size

    def send_waiting(self) -> None:
        """Send what there has come to be room for. Once for all that has come: there may be many, of either."""
        if self._has_wider_streams:
            self._has_wider_streams = False
            for each in tuple(self.waiting.values()):
                if each.stream not in self._ready:
                    self._send(each)
        if self._has_more_room:
            self._has_more_room = False
            while self._ready and self._window > 0:
                stream, each = self._ready.popitem(last=False)
                self._send(each)
                if stream in self._ready:  # for the rest of it there was no room; it stays the first
                    self._ready.move_to_end(stream, last=False)

    def _send(self, each: _Waiting) -> None:
        """Send as much of an answer as there is room for; it is not among the ready ones."""
        of_stream = self._initial + self._extra.get(each.stream, 0) - each.sent
        room = min(self._window, of_stream, len(each.rest))
        at = 0
        while at < room:
            part = each.rest[at : min(room, at + frames.LARGEST)]
            at += len(part)
            self._write(frames.frame(Kind.DATA, 0, each.stream, part))
        if at:
            each.rest = each.rest[at:]
            each.sent += at
            self._window -= at
            self.held -= at
        if not each.rest:
            self._write(_end(each.stream))
            self.forget(each.stream)
        elif at < of_stream:
            self._ready[each.stream] = each


def _end(stream: int) -> bytes:
    return _AFTER_MESSAGE(_OK_SIZE, _LAST, stream, _OK)


def refuse_content_type(stream: int) -> bytes:
    """Somebody does not speak gRPC, and is told so in HTTP."""
    content = literal(b":status", b"415")
    return frames.frame(Kind.HEADERS, END_HEADERS | END_STREAM, stream, content)
