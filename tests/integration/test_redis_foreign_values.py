"""Values that others wrote under our keys: they spoil their own request and nothing else."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from struct import pack
from typing import TYPE_CHECKING

import msgspec.msgpack
import pytest

from headgate.adapters.redis import store_at
from headgate.core.decision import Hit
from headgate.core.limit import Rate, Slots
from headgate.core.meter import ALGORITHMS, Algorithm, Meter
from headgate.core.units import HOUR
from headgate.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.valkey import Server

    from headgate.adapters.redis import RedisStore

METERS = {
    algorithm: Meter(Slots(5, HOUR) if algorithm is Algorithm.CONCURRENCY else Rate(5, HOUR), algorithm)
    for algorithm in ALGORITHMS
}
INFINITE, NOT_A_NUMBER = float("inf"), float("nan")
NUMBERS: tuple[object, ...] = (INFINITE, -INFINITE, NOT_A_NUMBER, 0.5, -1, 2.0**53, 1e300, "5", None, [1], {})
WIDTHS = {
    Algorithm.FIXED_WINDOW: (2,),
    Algorithm.SLIDING_WINDOW_COUNTER: (3,),
    Algorithm.TOKEN_BUCKET: (3, 7),
    Algorithm.LEAKY_BUCKET: (3, 7),
}


@asynccontextmanager
async def opened(server: Server) -> AsyncIterator[RedisStore]:
    store = store_at(f"{server.url}?deadline_ms=5000")
    await store.connect()
    yield store
    await store.close()


def _header(width: int, following: int, places: int, held: int, newest: float) -> bytes:
    """The first bytes of a log."""
    numbers = (number.to_bytes(3, "little") for number in (following, places, held))
    return bytes([width]) + b"".join(numbers) + pack("<d", newest)


def foreign(algorithm: Algorithm) -> list[bytes]:
    """Values that look like a counter's but are none."""
    encode = msgspec.msgpack.encode
    if algorithm is Algorithm.SLIDING_WINDOW_LOG:
        rings = [(0, 0), (1, 1), (0, 1e15), (INFINITE, 16), (0, INFINITE), (0, NOT_A_NUMBER), (0.5, 16), (-1, 16)]
        entries = [pack("<dd16d", 0, 16, *[odd] * 16) for odd in (INFINITE, NOT_A_NUMBER, -1, 0.5)]
        headers = [(2, 0, 16, 0, 7), (8, 0, 16, 0, 7), (3, 16, 16, 0, 7), (3, 0, 0, 0, 7), (3, 0, 16, 17, 7)]
        odd_ones = [(3, 0, 16, 16, odd) for odd in (INFINITE, NOT_A_NUMBER, -1, 0.5)]
        narrow = [_header(*header) + bytes(48) for header in (*headers, *odd_ones)]
        damaged = [_header(3, 0, 16, 16, 7) + bytes(length) for length in (0, 47, 49)]
        return [b"x", *(pack("<dd16d", *ring, *[0] * 16) for ring in rings), *entries, *narrow, *damaged]
    if algorithm is Algorithm.CONCURRENCY:
        holds = [["them", *[1] * place, odd, *[1] * (2 - place)] for place in range(3) for odd in NUMBERS]
        return [b"x", encode(7), encode([]), encode({"them": 7}), encode(["them", 1]), *map(encode, holds)]
    tail = "" if algorithm in {Algorithm.FIXED_WINDOW, Algorithm.SLIDING_WINDOW_COUNTER} else "001"
    digits = [
        one + tail for one in ("17672256OOOOOOOO", "1767225600000.01", "9" * 16, "0x7FFFFFFFFFFFFF", " 0x6605a4c148401")
    ]
    return [b"", b"x", *map(str.encode, digits)] + [
        b"".join(encode(odd if place == at else 1) for place in range(width))
        for width in WIDTHS[algorithm]
        for at in range(width)
        for odd in NUMBERS
    ]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_numbers_that_cannot_be_ours_are_an_error(valkey: Server, algorithm: Algorithm) -> None:
    """A value with infinite, negative, broken or missing numbers is no counter; checks beside it are answered."""
    meter = METERS[algorithm]

    async def scenario() -> None:
        async with opened(valkey) as store:
            for value in foreign(algorithm):
                valkey.ask("SET", "mine", value)
                hits = [Hit(name, meter, 1, "me") for name in ("a", "mine", "b")]
                answers = await asyncio.gather(*(store.take((hit,)) for hit in hits), return_exceptions=True)
                error = answers[1]
                assert isinstance(error, StoreError), value
                assert not error.transient
                assert all(isinstance(answers[index], list) for index in (0, 2))
                assert valkey.ask("GET", "mine") == value

    asyncio.run(scenario())
