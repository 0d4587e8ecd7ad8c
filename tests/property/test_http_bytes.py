"""Whatever bytes come to the HTTP server, in whatever pieces: it says the same, and never that the fault is its own."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from headgate.dataplane.limiter import run_now
from headgate.edge.acceptor import Acceptor
from headgate.edge.fairness import TimeSlice
from headgate.edge.http.application import Bounds
from headgate.edge.http.connection import Connection
from headgate.edge.http.server import Memory, Shared
from headgate.protocols.http1.messages import HeadReader, ResponseWriter

if TYPE_CHECKING:
    from headgate.edge.http.application import HttpRequest
    from headgate.edge.problems import HttpProblem
    from headgate.protocols.http1.messages import Head, HttpResponse

_FRAGMENTS = [
    *(b"GET / HTTP/1.1\r\n", b"POST /a?b HTTP/1.1\r\n", b"GET / HTTP/1.0\r\n", b"HEAD * HTTP/1.1\r\n", b"Host: x\r\n"),
    *(
        b"Content-Length: 5\r\n",
        b"Content-Length: 0\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Expect: 100-continue\r\n",
    ),
    *(b"Connection: close\r\n", b"X: y\r\n", b"\r\n", b"hello", b"5\r\nhello\r\n", b"0\r\n\r\n", b"0\r\n", b"ff\r\n"),
    *(b"\n", b"\r", b"\0", b" ", b":", b"\xff", b"x" * 300),
]
_WHOLE = [
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello",
    b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
]
_bytes = st.lists(st.one_of(st.sampled_from(_WHOLE), st.sampled_from(_FRAGMENTS), st.binary(max_size=4)), max_size=12)


class _Application:
    def __init__(self) -> None:
        self.asked: list[tuple[str, str, bytes]] = []
        self.has_tried = False

    def answer_now(self, request: HttpRequest) -> HttpResponse | None:
        self.has_tried = not self.has_tried  # every other one
        return run_now(self.answer(request)) if self.has_tried else None

    async def answer(self, request: HttpRequest) -> HttpResponse:
        self.asked.append((request.head.method, request.head.path, request.body))
        return 200, "", b"ok"

    def reads_body(self, _head: Head) -> bool:
        return True

    def refuse(self, _head: Head | None, reason: HttpProblem) -> HttpResponse:
        return reason.status, "", b""


class _Transport:
    """Keeps what is written, and reads no more once it is told so."""

    def __init__(self) -> None:
        self.written = b""
        self.is_over = False

    def write(self, data: bytes) -> None:
        self.written += data

    def write_eof(self) -> None:
        self.is_over = True

    def close(self) -> None:
        self.is_over = True

    def set_write_buffer_limits(self, high: int) -> None:
        """It takes everything."""

    def is_closing(self) -> bool:
        return self.is_over

    def can_write_eof(self) -> bool:
        return True

    def get_extra_info(self, _name: str) -> tuple[str, int]:
        return "127.0.0.1", 1

    def pause_reading(self) -> None:
        """It is given bytes all the same, as loops do with those that they have."""

    def resume_reading(self) -> None:
        """As above."""


def _talk(pieces: list[bytes]) -> tuple[list[tuple[str, str, bytes]], list[int]]:
    """What was asked, and the statuses of the answers."""

    async def run() -> tuple[list[tuple[str, str, bytes]], list[int]]:
        application, transport = _Application(), _Transport()
        shared = Shared(Acceptor(1), TimeSlice(), HeadReader(), ResponseWriter(lambda: 0), Memory(1_000_000, 1))
        connection = Connection(application, Bounds(head=200, body=20), shared)
        given: Any = transport
        loop, over = asyncio.get_running_loop(), asyncio.Event()

        def feed(at: int) -> None:
            if at == len(pieces):
                over.set()
                return
            connection.data_received(pieces[at])
            loop.call_soon(feed, at + 1)

        connection.connection_made(given)
        loop.call_soon(feed, 0)
        await over.wait()
        while connection.idle_since is None:  # noqa: ASYNC110 (nothing is told when it becomes idle)
            await asyncio.sleep(0)
        statuses = [int(found) for found in re.findall(rb"HTTP/1\.1 (\d{3})", transport.written) if found != b"100"]
        return application.asked, statuses

    return asyncio.run(run())


@given(_bytes, st.lists(st.integers(1, 40), min_size=1, max_size=6))
def test_the_same_bytes_mean_the_same_in_any_pieces(parts: list[bytes], sizes: list[int]) -> None:
    """Requests and answers do not depend on where the bytes were cut, and no answer is a 5xx."""
    data = b"".join(parts)
    pieces, at, turn = [], 0, 0
    while at < len(data):
        size = sizes[turn % len(sizes)]
        pieces.append(data[at : at + size])
        at, turn = at + size, turn + 1
    (asked, statuses), (asked_in_pieces, statuses_in_pieces) = _talk([data]), _talk(pieces)
    assert asked_in_pieces == asked
    # Of two reasons to refuse something, the one that shows first is told.
    assert [status // 100 for status in statuses_in_pieces] == [status // 100 for status in statuses]
    assert statuses.count(200) == len(asked)
    assert all(status == 200 or 400 <= status < 500 for status in statuses)
    assert all(status == 200 for status in statuses[:-1])
