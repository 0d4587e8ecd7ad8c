"""The HTTP/1.1 engine alone: any bytes, in any pieces."""

from __future__ import annotations

from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from headgate.protocols.http1.messages import HeadReader, Http1Error
from headgate.protocols.http1.parser import RequestParser

_FRAGMENTS: Final = [
    *(b"GET / HTTP/1.1\r\n", b"POST /a?b HTTP/1.1\r\n", b"GET /%41%zz HTTP/1.0\r\n", b"HEAD * HTTP/1.1\r\n"),
    *(b"Host: x\r\n", b"Content-Length: 5\r\n", b"Content-Length: 0\r\n", b"Transfer-Encoding: chunked\r\n"),
    *(b"Connection: close\r\n", b"Expect: 100-continue\r\n", b"X: y\r\n", b"\r\n", b"hello", b"5\r\nhello\r\n"),
    *(b"0\r\n\r\n", b"0\r\n", b"ff\r\n", b"\n", b"\r", b"\0", b" ", b":", b"\xff", b"x" * 300),
]
_REQUESTS: Final = [
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello",
    b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nA: b\r\n\r\n",
]
_streams = st.lists(
    st.one_of(st.sampled_from(_REQUESTS), st.sampled_from(_FRAGMENTS), st.binary(max_size=6)), max_size=12
).map(b"".join)
_sizes = st.lists(st.integers(1, 40), min_size=1, max_size=6)

_Event = tuple[str, str, str, bytes]


def pieces_of(data: bytes, sizes: list[int]) -> list[bytes]:
    """`data`, cut into pieces of these sizes in rotation."""
    pieces: list[bytes] = []
    at = 0
    while at < len(data):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(data[at : at + size])
        at += size
    return pieces


def _events(pieces: list[bytes], *, fast: bool) -> tuple[list[_Event], bool]:
    """The requests in some pieces, and whether an error of the client followed them."""
    parser = RequestParser(HeadReader(), max_head=200, max_body=20)
    events: list[_Event] = []
    try:
        for piece in pieces:
            if fast and not parser.received and parser.head is None:
                request = parser.receive_first(piece)
            else:
                parser.received += piece
                request = parser.next_request()
            while request is not None:
                head, body = request
                events.append((head.method, head.path, head.query, body))
                request = parser.next_request() if parser.received else None
    except Http1Error as error:
        return events, 400 <= error.status < 500
    assert parser.size <= 200 + 20 + max(map(len, pieces), default=0)
    return events, False


@given(_streams, _sizes)
def test_the_same_bytes_give_the_same_requests_in_any_pieces(data: bytes, sizes: list[int]) -> None:
    """Requests do not depend on where the bytes are cut, and the only exception is `Http1Error`."""
    whole = _events([data], fast=False)
    assert _events(pieces_of(data, sizes), fast=False) == whole


@given(_streams, _sizes)
def test_the_fast_path_gives_the_same_requests(data: bytes, sizes: list[int]) -> None:
    """`receive_first` reads what `next_request` reads."""
    whole = _events([data], fast=False)
    assert _events([data], fast=True) == whole
    assert _events(pieces_of(data, sizes), fast=True) == whole
