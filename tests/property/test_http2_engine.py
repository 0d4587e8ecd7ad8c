"""The HTTP/2 engine alone: any bytes, in any pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hpack import Encoder
from hypothesis import given
from hypothesis import strategies as st
from tests.property.test_http1_engine import pieces_of

from headgate.protocols.http2 import frames
from headgate.protocols.http2.budget import Budget, Rate
from headgate.protocols.http2.frames import END_HEADERS, END_STREAM, PADDED, PREFACE, Http2Error, Kind, Setting
from headgate.protocols.http2.hpack import HeaderLimits
from headgate.protocols.http2.receiver import Receiver, ReceiveWindow
from headgate.protocols.http2.sender import ResponseSender

if TYPE_CHECKING:
    from headgate.protocols.http2.frames import Frame
    from headgate.protocols.http2.hpack import HeaderFields

_LIMITS: Final = HeaderLimits(list_bytes=400, fields=8, block_bytes=300, continuations=3)
_FEW: Final = Rate(burst=40, per_second=0, per_answer=0, per_refusal=0)
_FIELDS: Final = [(":method", "POST"), (":path", "/x"), ("content-type", "application/grpc")]


class _Calls:
    """Takes down events, and answers every call with its own message."""

    def __init__(self, written: list[bytes]) -> None:
        self.events: list[object] = []
        self.sender = ResponseSender(written.append)
        self._window = ReceiveWindow(1_000, written.append)
        self._open: set[int] = set()
        self.last = 0

    def headers(self, stream: int, flags: int, fields: HeaderFields) -> None:
        self.events.append(("headers", stream, flags, dict(fields)))
        self.last = max(self.last, stream)
        self._open.add(stream)

    def data(self, frame: Frame) -> None:
        content = frame.unpadded()
        self.events.append(("data", frame.stream, frame.flags, content))
        self._window.uncredited += len(frame.content)
        if self._window.uncredited > self._window.half:
            self._window.credit(0)
        if frame.flags & END_STREAM:
            self.sender.send(frame.stream, content)

    def reset(self, stream: int) -> None:
        self.events.append(("reset", stream))
        self._open.discard(stream)
        self.sender.drop(stream)

    def is_open(self, stream: int) -> bool:
        return stream in self._open


class _Pace:
    """Stops after every few frames."""

    def __init__(self, frames_in_a_row: int) -> None:
        self._every = frames_in_a_row
        self._count = 0

    @property
    def has_time(self) -> bool:
        self._count += 1
        return self._count % self._every != 0

    is_over = has_time


def _talk(pieces: list[bytes], every: int) -> tuple[list[object], bytes, str]:
    """Events, what was written, and the error, if there was one."""
    written: list[bytes] = []
    calls = _Calls(written)
    receiver = Receiver(calls, calls.sender, written.append, Budget(lambda: 0.0, _FEW, _FEW), _LIMITS)
    pace = _Pace(every)
    try:
        for piece in pieces:
            receiver.received += piece
            while receiver.process(pace):
                pass
    except Http2Error as error:
        return calls.events, b"".join(written), str(error)
    calls.sender.send_waiting()
    assert receiver.block_bytes <= _LIMITS.block_bytes + frames.MAX_FRAME
    return calls.events, b"".join(written), ""


_kinds = st.sampled_from([*Kind, 2, 10])
_streams = st.integers(0, 9)
_blocks = st.one_of(
    st.booleans().map(lambda huffman: Encoder().encode(_FIELDS, huffman=huffman)), st.binary(max_size=20)
)
_frames = st.one_of(
    st.tuples(_kinds, st.integers(0, 255), _streams, st.binary(max_size=20)),
    st.tuples(st.just(Kind.HEADERS), st.sampled_from([0, END_HEADERS, END_HEADERS | END_STREAM]), _streams, _blocks),
    st.tuples(st.just(Kind.CONTINUATION), st.sampled_from([0, END_HEADERS]), _streams, _blocks),
    st.tuples(st.just(Kind.DATA), st.sampled_from([0, END_STREAM, PADDED]), _streams, st.binary(max_size=300)),
).map(lambda parts: frames.frame(parts[0], *parts[1:]))
_valid = st.sampled_from(
    [
        frames.settings({Setting.INITIAL_WINDOW_SIZE: 10}),
        frames.settings({}),
        frames.window_update(0, 100),
        frames.window_update(1, 100),
        frames.frame(Kind.PING, 0, 0, b"12345678"),
        frames.frame(Kind.HEADERS, END_HEADERS, 1, Encoder().encode(_FIELDS)),
        frames.frame(Kind.DATA, END_STREAM, 1, b"\0\0\0\0\x05hello"),
    ]
)
_connections = st.builds(
    lambda preface, parts: preface + b"".join(parts),
    st.one_of(st.just(PREFACE), st.just(PREFACE), st.binary(max_size=30)),
    st.lists(st.one_of(_valid, _frames, st.binary(max_size=12)), max_size=20),
)


@given(_connections, st.lists(st.integers(1, 60), min_size=1, max_size=5), st.integers(2, 9))
def test_the_same_bytes_give_the_same_events_in_any_pieces(data: bytes, sizes: list[int], every: int) -> None:
    """Events, replies and the error do not depend on the pieces, and the only exception is `Http2Error`."""
    assert _talk(pieces_of(data, sizes), every) == _talk([data], 10**9)
