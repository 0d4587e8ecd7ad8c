"""Random bytes for our engines and for those of others: every difference is a known one.

`make fuzz` runs half a million connections from a new seed; `make test` a few thousand from a fixed one.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest
from google.protobuf.message import DecodeError
from hpack import Decoder, Encoder
from hpack.exceptions import HPACKError
from tests.fuzz.deviations import KNOWN, PAGE, Deviation, named
from tests.fuzz.http1_bytes import connection
from tests.fuzz.http1_peers import Reading, by_h11, by_llhttp, ours
from tests.support.envoy_messages import MESSAGES, WITH_ANY_VALUES
from tests.unit.test_rls_protobuf import meant_by

from headgate import InvalidRequest
from headgate.edge.rls.messages import RateLimitRequest
from headgate.edge.rls.protobuf import read_request
from headgate.protocols.http2.frames import Http2Error
from headgate.protocols.http2.hpack import HeaderDecoder

_ROUNDS = int(os.environ.get("FUZZ_ROUNDS", "4000"))
_SEED = int(os.environ.get("FUZZ_SEED", "16"))
_NAMES = ("a", ":path", ":method", "content-type", "x-y", "cookie", "host")
_PEERS = {"h11": by_h11, "llhttp": by_llhttp}


def _deviation(peer: str, mine: Reading, other: Reading) -> Deviation | None:
    both = min(len(mine.requests), len(other.requests))
    if mine.requests[:both] != other.requests[:both]:
        pairs = zip(mine.requests, other.requests, strict=False)
        is_connect = any(one != two and one[0] == two[0] == "CONNECT" for one, two in pairs)
        return Deviation(peer, "differs", "CONNECT has no body" if is_connect else other.refusal or "another request")
    if len(mine.requests) > both:
        return named(peer, "laxer", other.refusal)
    if len(other.requests) > both:
        return named(peer, "stricter", mine.refusal)
    return None


@pytest.mark.parametrize("peer", sorted(_PEERS))
def test_http1_is_read_as_others_read_it(peer: str) -> None:
    """No request is read in another way than by h11 and llhttp, but for the deviations that the page lists."""
    random = Random(_SEED)
    for _ in range(_ROUNDS):
        data = connection(random)
        deviation = _deviation(peer, ours(data), _PEERS[peer](data))
        assert deviation is None or deviation in KNOWN, (deviation, data)


def test_header_blocks_are_read_as_hpack_reads_them() -> None:
    """Blocks of the package hpack, sound and damaged, with tables that grow and shrink: the same fields, or refused."""
    random = Random(_SEED)
    for _ in range(_ROUNDS):
        encoder, mine, other = Encoder(), HeaderDecoder(), Decoder(max_header_list_size=16_384)
        for _ in range(3):
            count = random.randrange(4)
            fields = [
                (random.choice(_NAMES), "v" * random.randrange(20) + chr(random.randrange(32, 300)))
                for _ in range(count)
            ]
            if random.random() < 0.2:
                encoder.header_table_size = random.choice((0, 64, 4_096))
            block = _damaged(random, encoder.encode(fields, huffman=random.random() < 0.5))
            read, expected = _fields_by_us(mine, block), _fields_by_hpack(other, block)
            assert read == expected, block
            if read is None:
                break


def _damaged(random: Random, data: bytes) -> bytes:
    """Data with one byte changed, missing or added, or as it is."""
    if not data or random.random() < 0.6:
        return data
    at = random.randrange(len(data))
    byte = bytes((random.randrange(256),))
    return random.choice((data[:at] + byte + data[at + 1 :], data[:at] + data[at + 1 :], data[:at] + byte + data[at:]))


def _fields_by_us(decoder: HeaderDecoder, block: bytes) -> dict[str, str] | None:
    try:
        return decoder.decode(block)
    except Http2Error:
        return None


def _fields_by_hpack(decoder: Decoder, block: bytes) -> dict[str, str] | None:
    try:
        return {str(name): str(value) for name, value in decoder.decode(block)}
    except (HPACKError, UnicodeDecodeError):
        return None


def test_messages_are_read_as_protobuf_reads_them() -> None:
    """Envoy's messages, damaged in up to three places: the same meaning as by protobuf's library, or refused."""
    random = Random(_SEED)
    make = MESSAGES["RateLimitRequest"]
    for _ in range(_ROUNDS):
        sent = make(domain="d" * random.randrange(3), hits_addend=random.choice((0, 1, 300)))
        for _ in range(random.randrange(3)):
            descriptor = sent.descriptors.add(is_negative_hits=random.random() < 0.2)
            descriptor.entries.add(key="k", value="v" * random.randrange(200))
            if random.random() < 0.3:
                descriptor.limit.requests_per_unit, descriptor.limit.unit = random.randrange(300), random.randrange(8)
        message = sent.SerializeToString()
        for _ in range(3):
            message = _damaged(random, message)
        assert _by_us(message) == _by_protobuf(message), message


def _by_us(message: bytes) -> RateLimitRequest | None:
    try:
        return read_request(message)
    except InvalidRequest:
        return None


def _by_protobuf(message: bytes) -> RateLimitRequest | None:
    read = WITH_ANY_VALUES["RateLimitRequest"]()  # the one deviation: bytes of a value are kept
    try:
        read.ParseFromString(message)
    except DecodeError:
        return None
    return RateLimitRequest(read.domain, tuple(map(meant_by, read.descriptors)), read.hits_addend)


def test_the_page_has_every_deviation() -> None:
    """The page lists the deviations that the fuzzers allow, and no other."""
    page = (Path(__file__).parents[2] / PAGE).read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith(("| h11 ", "| llhttp "))]
    assert {Deviation(peer, kind, reason.strip("`")) for peer, kind, reason, *_ in rows} == KNOWN
