"""Bodies in chunks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.protocols.http1.messages import Http1Error
from headgate.protocols.http1.parser import ChunkedBody


def chunked(parts: list[bytes], *, extension: bytes = b"", trailer: bytes = b"") -> bytes:
    body = b"".join(b"%x%b\r\n%b\r\n" % (len(part), extension, part) for part in parts if part)
    return body + b"0\r\n" + trailer + b"\r\n"


@given(
    st.lists(st.binary(max_size=40), max_size=5),
    st.sampled_from([b"", b";a=b", b" ; q"]),
    st.sampled_from([b"", b"X: y\r\n", b"A: b\r\nC: d\r\n"]),
    st.integers(1, 30),
    st.binary(max_size=10),
)
def test_a_body_is_put_together_however_it_comes(
    parts: list[bytes], extension: bytes, trailer: bytes, size: int, behind: bytes
) -> None:
    """In whatever pieces the bytes come, the body is the same, and what follows it is left."""
    sent = chunked(parts, extension=extension, trailer=trailer)
    chunks, received, is_all = ChunkedBody(), bytearray(), False
    for at in range(0, len(sent), size):
        assert not is_all
        received += sent[at : at + size]
        is_all = chunks.receive(received)
    assert is_all
    assert bytes(chunks.body) == b"".join(parts)
    assert not received
    received = bytearray(sent + behind)
    assert ChunkedBody().receive(received)
    assert received == behind


def test_a_size_counts_before_its_bytes_have_come() -> None:
    """A chunk larger than the bound is refused before it comes."""
    chunks = ChunkedBody()
    assert not chunks.receive(bytearray(b"3\r\nabc\r\nffff\r\n"))
    assert chunks.size == 3 + 0xFFFF


@pytest.mark.parametrize(
    "sent",
    [
        b"x\r\n",
        b"-1\r\n",
        b"+1\r\n",
        b"0x1\r\n",
        b"1_0\r\n",
        b"\r\n",
        b" 1\r\n",
        b"123456789\r\n",
        b"1\nab\r\n",
        b"1\r\nabc",
        b"1\r\na\n\n",
        b"1;\0\r\n",
        b"1" * 2_000,
        b"1;" + b"x" * 2_000,
        b"0\r\nfoo\n\r\n",
        b"0\r\nno name\r\n",
        b"0\r\nX: \0\r\n",
        b"0\r\n" + b"X: " + b"y" * 9_000,
        b"0\r\n" + b"X: y\r\n" * 2_000,
    ],
)
def test_what_is_not_chunked_is_refused(sent: bytes) -> None:
    """A size is a few digits, behind its bytes the line ends, and what comes with them has an end."""
    chunks = ChunkedBody()
    with pytest.raises(Http1Error, match="malformed chunked body"):
        chunks.receive(bytearray(sent))
