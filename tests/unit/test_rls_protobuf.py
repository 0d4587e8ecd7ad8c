"""Envoy's messages on the wire, compared with protobuf's own library."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.envoy_messages import MESSAGES, answer

from headgate import InvalidRequest
from headgate.edge.rls.messages import (
    Code,
    CurrentLimit,
    Descriptor,
    Override,
    RateLimitRequest,
    RateLimitResponse,
    Status,
    Unit,
)
from headgate.edge.rls.protobuf import read_request, write_response

TEXTS = st.text(st.characters(codec="utf-8"), max_size=200)
SHORT = st.text(st.characters(codec="utf-8"), max_size=6)
UNKNOWN_FIELD = b"\x78\x05"
UINT32 = st.integers(0, 2**32 - 1)
DESCRIPTORS = st.builds(
    Descriptor,
    st.lists(st.tuples(TEXTS, TEXTS), max_size=3).map(tuple),
    st.none() | st.builds(Override, UINT32, st.integers(0, 7)),
    st.none() | st.integers(0, 2**64 - 1),
    st.booleans(),
)
STATUSES = st.sampled_from(Code).map(Status) | st.tuples(
    st.sampled_from(Code),
    st.tuples(TEXTS, UINT32, st.sampled_from(Unit)).map(lambda each: CurrentLimit(*each)),
    UINT32,
    st.integers(0, 10**15),
).map(lambda each: Status(*each))


@given(st.builds(RateLimitRequest, TEXTS, st.lists(DESCRIPTORS, max_size=3).map(tuple), UINT32))
def test_what_protobuf_writes_is_read(question: RateLimitRequest) -> None:
    """Every question that protobuf's library can write is read as it was meant."""
    message = MESSAGES["RateLimitRequest"](domain=question.domain, hits_addend=question.hits_addend)
    for descriptor in question.descriptors:
        made = message.descriptors.add(is_negative_hits=descriptor.is_negative_hits)
        for key, value in descriptor.entries:
            made.entries.add(key=key, value=value)
        if descriptor.limit is not None:
            made.limit.requests_per_unit, made.limit.unit = descriptor.limit
            made.limit.SetInParent()
        if descriptor.hits_addend is not None:
            made.hits_addend.value = descriptor.hits_addend
            made.hits_addend.SetInParent()
    assert read_request(message.SerializeToString()) == question


@given(
    st.builds(
        RateLimitResponse,
        st.sampled_from(Code),
        st.lists(STATUSES, max_size=3),
        st.lists(st.tuples(TEXTS, TEXTS), max_size=3),
        st.binary(max_size=300),
    )
)
def test_what_is_written_is_what_protobuf_reads(written: RateLimitResponse) -> None:
    """Every answer says the same to protobuf's library."""
    read = answer(write_response(written))
    assert (read.overall_code, read.raw_body) == (written.overall_code, written.raw_body)
    headers = [(key.lower(), value) for key, value in written.response_headers_to_add]
    assert [(each.key, each.value) for each in read.response_headers_to_add] == headers
    for status, meant in zip(read.statuses, written.statuses, strict=True):
        assert status.code == meant.code
        assert status.HasField("current_limit") == (meant.current_limit is not None)
        if meant.current_limit is not None:
            limit = status.current_limit
            assert (limit.name, limit.requests_per_unit, limit.unit) == meant.current_limit
            assert status.limit_remaining == meant.limit_remaining
            reset = status.duration_until_reset
            assert reset.seconds * 10**6 + reset.nanos // 1000 == meant.until_reset


@given(st.binary(max_size=60))
def test_any_bytes_are_a_question_or_refused(message: bytes) -> None:
    """Malformed messages are refused with a sentence, and nothing else ever happens."""
    with suppress(InvalidRequest):
        assert isinstance(read_request(message), RateLimitRequest)


@given(st.lists(st.tuples(SHORT, SHORT), max_size=3), st.integers(0), st.integers(0, 255), st.integers(0, 3))
def test_what_is_usual_is_read_like_all_else(entries: list[tuple[str, str]], at: int, byte: int, cut: int) -> None:
    """An unknown field in front changes nothing, whether the rest is sound, spoilt or cut off."""
    message = MESSAGES["RateLimitRequest"](domain="web")
    descriptor = message.descriptors.add()
    for key, value in entries:
        descriptor.entries.add(key=key, value=value)
    spoilt = bytearray(message.SerializeToString())
    if cut:
        spoilt[at % len(spoilt)] = byte
    for each in (message.SerializeToString(), bytes(spoilt), bytes(spoilt[:-cut])):
        assert outcome(each) == outcome(UNKNOWN_FIELD + each)


def outcome(message: bytes) -> RateLimitRequest | str:
    try:
        return read_request(message)
    except InvalidRequest as error:
        return str(error)


def test_unknown_fields_are_passed_over() -> None:
    """Newer Envoys may send more than is known here."""
    newer = b"\x0a\x01d" + b"\x78\x05" + b"\x81\x01" + bytes(8) + b"\x85\x01" + bytes(4) + b"\x8a\x01\x02hi"
    assert read_request(newer) == RateLimitRequest("d", ())


@pytest.mark.parametrize(
    "message",
    [
        b"\x0a\x05ab",
        b"\x08",
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x00\x00",
        b"\x0b",
        b"\x0c",
        b"\x7b\x83\x01\x7c",
        b"\x7b" * 101 + b"\x7c" * 101,
        b"\x7e",
        b"\xf8\xff\xff\xff\x1f\x00",
        b"\x88\x80\x80\x80\x80\x00\x00",
        b"\x0a\x01\xff",
        b"\x12\x05\x0a\x03\x0a\x01\xff",
    ],
)
def test_broken_messages_are_refused(message: bytes) -> None:
    """Cut off, too long a number, field 0, groups that do not end, unknown wire types, long tags, not UTF-8."""
    with pytest.raises(InvalidRequest):
        read_request(message)


def test_bytes_of_values_that_are_not_utf8_are_kept() -> None:
    """A header that Envoy passes on has any bytes; none of them is an error, and different bytes stay different."""
    read = read_request(b"\x0a\x01a\x12\x08\x0a\x06\x0a\x01k\x12\x01\xff")
    assert read.descriptors[0].entries == (("k", b"\xff".decode("utf-8", "surrogateescape")),)


def tagged(number: int, kind: int, content: bytes) -> bytes:
    return varint(number << 3 | kind) + content


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


NUMBERS = st.integers(1, 5)
LEAVES = st.one_of(
    st.tuples(NUMBERS, st.integers(0, 2**64 - 1)).map(lambda each: tagged(each[0], 0, varint(each[1]))),
    st.tuples(NUMBERS, st.integers(0, 9)).map(lambda each: tagged(each[0], 0, varint(2**32 + each[1]))),
    st.tuples(NUMBERS, st.sampled_from([b"abcdefgh", bytes(8)])).map(lambda each: tagged(each[0], 1, each[1])),
    st.tuples(NUMBERS, SHORT).map(lambda each: tagged(each[0], 2, varint(len(each[1].encode())) + each[1].encode())),
    st.tuples(NUMBERS, st.just(b"abcd")).map(lambda each: tagged(each[0], 5, each[1])),
    NUMBERS.map(lambda number: tagged(number, 3, b"") + tagged(number, 4, b"")),
)
WIRE = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(NUMBERS, inner).map(lambda each: tagged(each[0], 2, varint(len(each[1])) + each[1])),
        st.tuples(NUMBERS, inner).map(lambda each: tagged(each[0], 3, each[1]) + tagged(each[0], 4, b"")),
        st.lists(inner, max_size=4).map(b"".join),
    ),
    max_leaves=12,
)


@settings(max_examples=600)
@example(tagged(1, 1, b"abcdefgh"))
@example(tagged(3, 2, b"\x01x"))
@example(tagged(2, 2, b"\x08" + b"\x12\x02\x08\x05" + b"\x12\x02\x10\x02"))
@example(tagged(2, 2, b"\x08" + b"\x12\x06\x10\x81\x80\x80\x80\x10"))
@example(tagged(2, 2, b"\x06" + b"\x1a\x02\x08\x05" + b"\x1a\x00"))
@given(WIRE)
def test_any_message_means_what_it_means_to_protobuf(message: bytes) -> None:
    """Fields in another wire type, messages that are there twice, wide numbers, groups: all as protobuf reads them."""
    read = MESSAGES["RateLimitRequest"]()
    try:
        read.ParseFromString(message)
    except DecodeError:
        with pytest.raises(InvalidRequest):
            read_request(message)
        return
    assert read_request(message) == RateLimitRequest(
        read.domain, tuple(map(meant_by, read.descriptors)), read.hits_addend
    )


def meant_by(read: Any) -> Descriptor:  # noqa: ANN401 (protobuf makes its classes at run time)
    values = [each.value for each in read.entries]
    texts = [each.decode(errors="surrogateescape") if isinstance(each, bytes) else each for each in values]
    return Descriptor(
        tuple(zip([entry.key for entry in read.entries], texts, strict=True)),
        Override(read.limit.requests_per_unit, read.limit.unit) if read.HasField("limit") else None,
        read.hits_addend.value if read.HasField("hits_addend") else None,
        read.is_negative_hits,
    )
