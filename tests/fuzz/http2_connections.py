"""Random connections of HTTP/2, and what h2 and our server make of them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

import h2.config
import h2.connection
import h2.events
import h2.exceptions
from hpack import Encoder

from headgate.edge.acceptor import Acceptor, ClosedConnections
from headgate.edge.fairness import TimeSlice
from headgate.edge.grpc.bounds import MAX_STREAMS, Bounds
from headgate.edge.grpc.connection import Connection
from headgate.edge.grpc.server import Routes, Shared
from headgate.protocols.http2 import frames
from headgate.protocols.http2.frames import END_HEADERS, END_STREAM, PADDED, PREFACE, Http2Error, Kind, Setting

if TYPE_CHECKING:
    from random import Random

_FIELDS: Final = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/echo"),
    (":authority", "a"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
]


class Outcome(NamedTuple):
    """What became of a connection."""

    messages: tuple[tuple[int, bytes], ...]
    """The calls that arrived whole, by stream, before anything was wrong."""
    reset: bool
    """Whether a stream was reset by the server."""
    closed: bool
    """Whether the connection was closed by the server, or is in error."""


def connection(random: Random) -> list[bytes]:
    """The frames of one connection, of which one may be wrong."""
    encoder, sent, streams = Encoder(), [PREFACE + frames.settings({})], iter(range(1, 99, 2))
    for _ in range(random.randrange(1, 5)):
        sent += random.choice((_call, _call, _control))(random, encoder, next(streams))
    if random.random() < 0.6:
        sent.insert(random.randrange(1, len(sent) + 1), _odd(random, encoder))
    return sent


def _message(random: Random) -> bytes:
    text = bytes(random.choices(b"abc", k=random.randrange(40)))
    return b"\x00" + len(text).to_bytes(4, "big") + text


def _call(random: Random, encoder: Encoder, stream: int) -> list[bytes]:
    block, data = encoder.encode(_FIELDS), _message(random)
    sent = [frames.frame(Kind.HEADERS, END_HEADERS, stream, block)]
    if random.random() < 0.3:
        half = len(block) // 2
        sent = [
            frames.frame(Kind.HEADERS, 0, stream, block[:half]),
            frames.frame(Kind.CONTINUATION, END_HEADERS, stream, block[half:]),
        ]
    if random.random() < 0.3:
        cut = random.randrange(len(data))
        sent.append(frames.frame(Kind.DATA, 0, stream, data[:cut]))
        data = data[cut:]
    if random.random() < 0.3:
        pad = random.randrange(9)
        return [*sent, frames.frame(Kind.DATA, PADDED | END_STREAM, stream, bytes((pad,)) + data + bytes(pad))]
    if random.random() < 0.2:
        trailers = encoder.encode([("x-y", "z")])
        return [
            *sent,
            frames.frame(Kind.DATA, 0, stream, data),
            frames.frame(Kind.HEADERS, END_HEADERS | END_STREAM, stream, trailers),
        ]
    return [*sent, frames.frame(Kind.DATA, END_STREAM, stream, data)]


def _control(random: Random, _encoder: Encoder, _stream: int) -> list[bytes]:
    return [
        random.choice(
            (
                frames.frame(Kind.PING, 0, 0, bytes(8)),
                frames.window_update(0, random.randrange(1, 1_000)),
                frames.settings({Setting.INITIAL_WINDOW_SIZE: random.randrange(70_000)}),
                frames.frame(Kind.PRIORITY, 0, 77, b"\x00\x00\x00\x0b\x10"),
                b"\x00\x00\x03\xbe\x00\x00\x00\x00\x00abc",  # a kind that no one knows
            )
        )
    ]


def _odd(random: Random, encoder: Encoder) -> bytes:
    """A frame that is probably wrong: a random kind, size, stream and flags; or a request that cannot be."""
    if random.random() < 0.3:
        fields = list(_FIELDS)
        match random.randrange(5):
            case 0:
                fields.append(("X-Upper", "1"))
            case 1:
                fields.append(random.choice(_FIELDS[:3]))
            case 2:
                fields.append(("connection", "close"))
            case 3:
                del fields[random.randrange(3)]
            case _:
                fields.insert(random.randrange(7), (":odd", "1"))
        return frames.frame(Kind.HEADERS, END_HEADERS | END_STREAM, 101, encoder.encode(fields))
    kind = random.choice([each for each in Kind if each not in (Kind.HEADERS, Kind.CONTINUATION)])
    size = random.choice((0, 3, 4, 5, 6, 8, 12))
    content = bytes(random.choices(b"\x00\x00\x01\x02\x03\x04\xff", k=size))
    return frames.frame(kind, random.choice((0, 0, 1, 4, 8)), random.choice((0, 0, 1, 2, 3, 9, 111)), content)


class _Transport(asyncio.Transport):
    """Takes down what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self._closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        self._closing = True

    abort = close

    def can_write_eof(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        return

    resume_reading = pause_reading


class Server:
    """Our server on a transport that is not there. Make it in an event loop."""

    def __init__(self) -> None:
        self._taken: list[bytes] = []
        routes = Routes({"/echo": self._echo}, lambda _fields: True)
        self._shared = Shared(routes, Acceptor(10), TimeSlice(clock=lambda: 0.0), Bounds(), ClosedConnections("grpc"))

    def _echo(self, message: bytes) -> bytes:
        self._taken.append(message)
        return message

    def read(self, sent: list[bytes]) -> Outcome:
        """What our server makes of some frames."""
        self._taken.clear()
        transport, served = _Transport(), Connection(self._shared)
        served.connection_made(transport)
        for part in sent:
            served.data_received(part)
        served._output.flush()
        served.connection_lost(None)
        answered = list(frames.read_frames(bytearray(transport.written)))
        streams = [frame.stream for frame in answered if frame.kind == Kind.DATA]
        return Outcome(
            tuple(zip(streams, self._taken, strict=False)),
            any(frame.kind == Kind.RST_STREAM for frame in answered),
            any(frame.kind == Kind.GOAWAY for frame in answered),
        )


def by_h2(sent: list[bytes]) -> Outcome:
    """What h2 makes of them."""
    config = h2.config.H2Configuration(client_side=False, header_encoding="utf-8")
    connection = h2.connection.H2Connection(config)
    connection.initiate_connection()
    connection.update_settings({h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: MAX_STREAMS})
    data: dict[int, bytes] = {}
    whole: list[tuple[int, bytes]] = []
    reset = closed = False
    connection.clear_outbound_data_buffer()
    for part in sent:
        try:
            events = connection.receive_data(part)
        except h2.exceptions.ProtocolError:
            closed = True
            break
        for event in events:
            if isinstance(event, h2.events.RequestReceived):
                data[event.stream_id] = b""
            elif isinstance(event, h2.events.DataReceived):
                data[event.stream_id] += event.data
            elif isinstance(event, h2.events.StreamEnded):
                message = data.pop(event.stream_id)
                if len(message) >= 5 and len(message) == 5 + int.from_bytes(message[1:5], "big"):
                    whole.append((event.stream_id, message[5:]))
                connection.send_headers(event.stream_id, [(":status", "200")], end_stream=True)
        for frame in frames.read_frames(bytearray(connection.data_to_send())):
            reset |= frame.kind == Kind.RST_STREAM
            closed |= frame.kind == Kind.GOAWAY
    return Outcome(tuple(whole), reset, closed)


def frame_by_us(data: bytes) -> tuple[int, int, int, bytes] | None:
    """One frame, or None if it is refused."""
    try:
        frame = frames.frame_at(data, 0)
        assert frame is not None
        if frame.kind in (Kind.DATA, Kind.HEADERS):
            return frame.kind, frame.flags, frame.stream, frame.unpadded()
        frames.check_control(frame.kind, frame.stream, frame.content)
        if frame.kind == Kind.SETTINGS:
            is_acknowledged = bool(frame.flags & frames.ACK)
            return None if frame.content and (is_acknowledged or len(frame.content) % 6) else frame
        if frame.kind == Kind.WINDOW_UPDATE and not int.from_bytes(frame.content, "big") & frames.MAX_WINDOW:
            return None  # by `ResponseSender`
    except Http2Error:
        return None
    return frame.kind, frame.flags, frame.stream, frame.content
