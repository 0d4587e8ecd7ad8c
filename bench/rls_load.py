"""A client that asks Envoy's question as fast as it is answered, so that it is the server that is measured."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

import uvloop
from hpack import Encoder

from headgate.edge.grpc.methods import RATE_LIMITS
from headgate.protocols.http2 import frames
from headgate.protocols.http2.frames import ACK, END_HEADERS, END_STREAM, PREFACE, Kind, Setting

if TYPE_CHECKING:
    from collections.abc import Sequence

_FIELDS: Final = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", f"/{RATE_LIMITS}/ShouldRateLimit"),
    (":authority", "headgate"),
    ("te", "trailers"),
    ("content-type", "application/grpc"),
    ("x-envoy-internal", "true"),
]
CONNECTIONS: Final = 2
AT_ONCE: Final = 16
"""On each connection."""


def question(domain: str, caller: str) -> bytes:
    """A RateLimitRequest with one descriptor of two entries."""
    entries = _field(1, _field(1, b"remote_address") + _field(2, caller.encode()))
    entries += _field(1, _field(1, b"path") + _field(2, b"/api/search"))
    message = _field(1, domain.encode()) + _field(2, entries)
    return b"\x00" + len(message).to_bytes(4, "big") + message


def _field(number: int, content: bytes) -> bytes:
    return bytes((number << 3 | 2, len(content))) + content


class _Asking(asyncio.Protocol):
    """One connection that keeps a fixed number of calls in flight."""

    def __init__(self, questions: Sequence[bytes]) -> None:
        self.questions = questions
        self.done = asyncio.get_running_loop().create_future()
        self.latencies: list[float] = []
        self.passed = 0
        self._asked = 0
        self._began: dict[int, float] = {}
        self._received = bytearray()
        encoder = Encoder()
        self._first, self._usual = encoder.encode(_FIELDS), encoder.encode(_FIELDS)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        settings = frames.settings({Setting.INITIAL_WINDOW_SIZE: 2**20})
        self._write(PREFACE + settings + frames.window_update(0, 2**30))
        self._write(b"".join(self._next() for _ in range(min(AT_ONCE, len(self.questions)))))

    def _write(self, data: bytes) -> None:
        self._transport.write(data)  # type: ignore[attr-defined] # TCP

    def _next(self) -> bytes:
        stream = 2 * self._asked + 1
        block = self._usual if self._asked else self._first
        message = self.questions[self._asked]
        self._asked += 1
        self._began[stream] = time.perf_counter()
        head = frames.frame(Kind.HEADERS, END_HEADERS, stream, block)
        return head + frames.frame(Kind.DATA, END_STREAM, stream, message)

    def data_received(self, data: bytes) -> None:
        self._received += data
        out = []
        for kind, flags, stream, content in frames.read_frames(self._received):
            if kind == Kind.DATA:
                self.passed += content[5:7] == b"\x08\x01"
            elif kind == Kind.HEADERS and flags & END_STREAM:
                self.latencies.append(time.perf_counter() - self._began.pop(stream))
                if self._asked < len(self.questions):
                    out.append(self._next())
            elif kind in {Kind.PING, Kind.SETTINGS} and not flags & ACK:
                out.append(frames.frame(Kind(kind), ACK, 0, content if kind == Kind.PING else b""))
        if out:
            self._write(b"".join(out))
        if not self._began and not self.done.done():
            self.done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(exc or ConnectionResetError("the server has closed the connection"))


def ask(port: int, questions: Sequence[bytes]) -> tuple[int, list[float]]:
    """Ask everything; how many passed, and the seconds that each took."""

    async def run() -> tuple[int, list[float]]:
        loop = asyncio.get_running_loop()
        asking = [_Asking(questions[first::CONNECTIONS]) for first in range(CONNECTIONS)]
        for each in asking:
            await loop.create_connection(lambda each=each: each, "127.0.0.1", port)
        await asyncio.gather(*(each.done for each in asking))
        for each in asking:
            each._transport.close()  # noqa: SLF001 (its own)
        return sum(each.passed for each in asking), [one for each in asking for one in each.latencies]

    return uvloop.run(run())
