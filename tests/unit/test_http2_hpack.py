"""Header blocks decoded at a bounded cost, and to the same fields as by the package hpack."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from hpack import Decoder, Encoder
from hpack.exceptions import HPACKError
from hypothesis import given
from hypothesis import strategies as st

from headgate.protocols.http2.frames import ErrorCode, Http2Error
from headgate.protocols.http2.hpack import DEFAULT_LIMITS, HeaderDecoder, HeaderReader

if TYPE_CHECKING:
    from collections.abc import Callable

NAMES = st.sampled_from([":path", ":method", "te", "x-request-id", "authorization", "ä"]) | st.text(max_size=9)
FIELDS = st.lists(st.tuples(NAMES, st.text(max_size=40)), max_size=20)


@given(st.lists(st.tuples(FIELDS, st.booleans(), st.sampled_from([None, 0, 64, 200, 4_096]))))
def test_blocks_of_an_encoder_are_read_as_they_were_written(
    blocks: list[tuple[list[tuple[str, str]], bool, int]],
) -> None:
    """With and without Huffman codes, and while the table changes its size."""
    encoder, decoder = Encoder(), HeaderDecoder()
    for fields, huffman, size in blocks:
        if size is not None:
            encoder.header_table_size = size
        block = encoder.encode(fields, huffman=huffman)
        assert decoder.decode(block) == dict(fields)
        assert decoder.fields == len(fields)


@given(st.lists(st.binary(max_size=60), max_size=5))
def test_any_bytes_are_read_as_hpack_reads_them(blocks: list[bytes]) -> None:
    """Or refused, as it refuses them; more is refused here only where something is too much."""
    decoder, other = HeaderDecoder(), Decoder(16_384)
    for block in blocks:
        try:
            fields = decoder.decode(block)
        except Http2Error:
            return
        assert fields == {str(name): str(value) for name, value in other.decode(block)}


@given(st.lists(st.binary(max_size=60), max_size=5))
def test_what_hpack_refuses_is_refused(blocks: list[bytes]) -> None:
    """Nothing passes here that it takes for broken."""
    decoder, other = HeaderDecoder(), Decoder(16_384)
    for block in blocks:
        try:
            other.decode(block)
        except (HPACKError, UnicodeDecodeError):
            with pytest.raises(Http2Error):
                decoder.decode(block)
            return
        try:
            decoder.decode(block)
        except Http2Error:
            return


BOMBS = {
    "fields": (b"\x82" * (DEFAULT_LIMITS.fields + 1), ErrorCode.ENHANCE_YOUR_CALM),
    "large fields": (b"\x40\x01a\x7f\xb1\x1d" + b"b" * 3_888 + b"\xbe" * 5, ErrorCode.ENHANCE_YOUR_CALM),
    "size updates": (b"\x20" * 16_384, ErrorCode.COMPRESSION_ERROR),
    "a size beyond all": (b"\x3f\xff\xff\x03", ErrorCode.COMPRESSION_ERROR),
    "a size behind a field": (b"\x82\x20", ErrorCode.COMPRESSION_ERROR),
    "a number without end": (b"\xff" * 16_384, ErrorCode.COMPRESSION_ERROR),
    "an index of nothing": (b"\x80", ErrorCode.COMPRESSION_ERROR),
    "an index past the table": (b"\xbe", ErrorCode.COMPRESSION_ERROR),
    "half a text": (b"\x00\x05ab", ErrorCode.COMPRESSION_ERROR),
    "half a field": (b"\x00", ErrorCode.COMPRESSION_ERROR),
    "no UTF-8": (b"\x00\x01\xff\x01a", ErrorCode.COMPRESSION_ERROR),
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_refused(name: str) -> None:
    """Too many fields or bytes, and what is no block at all."""
    block, code = BOMBS[name]
    with pytest.raises(Http2Error) as raised:
        HeaderReader().read(block)
    assert raised.value.code is code


@pytest.mark.serial
def test_no_block_takes_long() -> None:
    """Whatever is in 16 KiB costs no more than a few times a block of as many bytes of text."""

    def seconds(run: Callable[[], object]) -> float:
        began = time.thread_time()
        run()
        return time.thread_time() - began

    def read(block: bytes) -> None:
        with suppress(Http2Error):
            HeaderReader().read(block)

    text = Encoder().encode([("a", "b" * 16_000)], huffman=True)
    most = min(seconds(lambda: read(text)) for _ in range(5))
    for block in (
        b"\x82" * 16_384,
        b"\x20" * 16_384,
        b"\xff" * 16_384,
        b"\x00\x01a\x00" * 4_096,
        b"\x40\x00\x00" * 5_000,
    ):
        assert min(seconds(lambda block=block: read(block)) for _ in range(5)) < 2 * most  # type: ignore[misc]


def test_equal_blocks_are_read_once() -> None:
    """As long as the table stays the same, and only as many as 64 KiB of text."""
    encoder, blocks = Encoder(), HeaderReader()
    fields = [(":path", "/a"), ("te", "trailers")]
    blocks.read(encoder.encode(fields))
    again = encoder.encode(fields)
    first = blocks.read(again)
    assert blocks.work > 0
    assert blocks.cached == {again: first}
    blocks.read(b"\x40\x01a\x7f\xb1\x1d" + b"b" * 3_888)  # the table is another one
    assert not blocks.cached
    for number in range(62, 92):
        blocks.read(b"\xbe\xbe\xbe" + bytes((0x80 | number - 60,)))
    assert blocks._cached_bytes <= 65_536
