"""The RESP engine alone, without a server: whatever is sent is read, however the bytes are cut."""

from __future__ import annotations

import doctest
import re
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.protocols.resp import (
    NO_REPLY,
    ProtocolError,
    ReplyError,
    ReplyReader,
    RequestReader,
    encode_command,
    replies,
    requests,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

WORDS = st.one_of(st.binary(max_size=40), st.text(max_size=20), st.integers(-(2**63), 2**63 - 1))
COMMANDS = st.lists(WORDS, min_size=1, max_size=6).map(tuple)
LINES = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20)
VALUES = st.recursive(
    st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.binary(max_size=40)),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=8,
)
NOISE = (
    st.lists(st.sampled_from([*b"*$+-:0123a%>_#\r\n"]), max_size=60)
    .map(bytes)
    .map(lambda noise: re.sub(rb"\d{4,}", b"12", noise.replace(b"a", b"\r\n")))
)
"""No long numbers: the parser makes room for an array before its elements arrive."""


def encode(value: object) -> bytes:
    """A reply as a server writes it."""
    if value is None:
        return b"$-1\r\n"
    if isinstance(value, int):
        return b":%d\r\n" % value
    if isinstance(value, bytes):
        return b"$%d\r\n%b\r\n" % (len(value), value)
    assert isinstance(value, list)
    return b"*%d\r\n" % len(value) + b"".join(map(encode, value))


def as_bytes(word: bytes | str | int) -> bytes:
    return word if isinstance(word, bytes) else str(word).encode()


def pieces(stream: bytes, cuts: Sequence[int]) -> list[bytes]:
    """A stream, cut into pieces as a network might."""
    ends = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    return [stream[start:end] for start, end in pairwise(ends)]


def read(reader: ReplyReader, data: bytes) -> list[object]:
    reader.feed(data)
    found = []
    while (reply := reader.next()) is not NO_REPLY:
        found.append(reply)
    return found


CUTS = st.lists(st.integers(0, 2**16), max_size=8)


@given(st.lists(VALUES, max_size=6), CUTS)
def test_replies_are_the_same_however_they_arrive(values: list[object], cuts: list[int]) -> None:
    """A stream of replies is split into the same replies wherever the network cuts it, and no byte is left over."""
    reader = ReplyReader()
    found = [reply for piece in pieces(b"".join(map(encode, values)), cuts) for reply in read(reader, piece)]
    assert found == values
    assert not reader.has_data()


@given(LINES, CUTS)
def test_an_error_reply_is_a_value(line: str, cuts: list[int]) -> None:
    """An error reply is returned, not raised, and keeps its text; the reply behind it is read as usual."""
    reader = ReplyReader()
    stream = b"-%b\r\n:7\r\n" % line.encode()
    error, number = [reply for piece in pieces(stream, cuts) for reply in read(reader, piece)]
    assert isinstance(error, ReplyError)
    assert str(error) == line
    assert number == 7


def test_push_messages_are_skipped() -> None:
    """A push message of RESP 3 belongs to no command, so it is no reply; a false of RESP 3 is one."""
    assert read(ReplyReader(), b">2\r\n+invalidate\r\n*0\r\n:1\r\n#f\r\n>1\r\n+x\r\n") == [1, False]


@given(st.lists(COMMANDS, max_size=4), CUTS)
def test_a_server_finds_every_command(commands: list[tuple[bytes | str | int, ...]], cuts: list[int]) -> None:
    """Encoded commands are found whole on the other side, wherever the network cuts them."""
    encoded = [encode_command(command) for command in commands]
    reader = RequestReader()
    assert [found for piece in pieces(b"".join(encoded), cuts) for found in reader.feed(piece)] == encoded
    for command, sent in zip(commands, encoded, strict=True):
        assert read(ReplyReader(), sent) == [[as_bytes(word) for word in command]]


@given(NOISE, CUTS)
def test_noise_breaks_nothing(noise: bytes, cuts: list[int]) -> None:
    """Bytes that are no RESP are refused with the engine's own errors, and with no other."""
    reader, server = ReplyReader(), RequestReader(max_bytes=1_000)
    for piece in pieces(noise, cuts):
        try:
            read(reader, piece)
        except ProtocolError:
            break
    for piece in pieces(noise, cuts):
        try:
            found = server.feed(piece)
        except ValueError:
            break
        assert all(re.fullmatch(rb".*\r\n", command, re.DOTALL) for command in found)


def test_a_command_has_a_bound() -> None:
    """A command that does not end is kept only up to the bound."""
    with pytest.raises(ValueError, match="larger than 16777216 bytes"):
        RequestReader().feed(bytes(17 * 1024 * 1024))
    with pytest.raises(ValueError, match="at most 10 bytes"):
        RequestReader(max_bytes=10).feed(b"*1\r\n$11\r\n")


@pytest.mark.parametrize("number", [b"1_0", b" 1", b"+1", b"1 ", b"", "\N{ARABIC-INDIC DIGIT ONE}".encode()])
def test_numbers_are_plain_digits(number: bytes) -> None:
    """What Python would read as a number, and Redis would not, is refused."""
    for command in (b"*%b\r\n" % number, b"*1\r\n$%b\r\n" % number):
        with pytest.raises(ValueError, match="number"):
            RequestReader().feed(command + b"x" * 20)


def test_the_examples_are_true() -> None:
    """The examples in the engine's docstrings show what it does."""
    assert doctest.testmod(replies).failed == 0
    assert doctest.testmod(requests).failed == 0
