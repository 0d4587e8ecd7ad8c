"""How counters stand on a server: small, and in the forms of before still understood."""

from __future__ import annotations

import asyncio
from struct import pack
from typing import TYPE_CHECKING

import msgspec.msgpack
import pytest

from headgate.adapters.memory import MemoryStore
from headgate.adapters.redis import store_at
from headgate.core.decision import Hit
from headgate.core.limit import Rate
from headgate.core.meter import Algorithm, Meter
from headgate.core.units import DAY, HOUR, MINUTE, SECOND
from headgate.testing import FakeClock
from headgate.testing.clock import NEW_YEAR

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.valkey import Server

    from headgate.core.decision import Decision
    from headgate.core.units import Micros

REAL_TIME = 600
COUNTERS = [
    Algorithm.FIXED_WINDOW,
    Algorithm.SLIDING_WINDOW_COUNTER,
    Algorithm.TOKEN_BUCKET,
    Algorithm.LEAKY_BUCKET,
]
LOG_HEADER = 18


@pytest.fixture(params=["valkey", pytest.param("redis_server", marks=pytest.mark.needs("redis-server"))])
def server(request: pytest.FixtureRequest) -> Server:
    """Each kind of server there is."""
    found: Server = request.getfixturevalue(request.param)
    return found


def taken(server: Server, meter: Meter, moments: Sequence[tuple[Micros, int]]) -> list[tuple[Decision, Decision]]:
    """What the server and the memory store answer when so much is taken at these instants after new year."""

    async def scenario() -> list[tuple[Decision, Decision]]:
        clock = FakeClock()
        memory = MemoryStore(clock)
        store = store_at(f"{server.url}?deadline_ms=5000", clock, REAL_TIME)
        await store.connect()
        pairs = []
        for after, cost in moments:
            clock.set(NEW_YEAR + after)
            hit = Hit("k", meter, cost)
            pairs.append(((await store.take([hit]))[0], memory.take_now([hit])[0]))
        await store.close()
        return pairs

    return asyncio.run(scenario())


@pytest.mark.parametrize("algorithm", COUNTERS)
def test_redis_keeps_a_counter_as_an_integer(redis_server: Server, algorithm: Algorithm) -> None:
    """A counter of a caller's first request needs no string on Redis."""
    taken(redis_server, Meter(Rate(100, DAY), algorithm), [(0, 1)])
    assert redis_server.ask("OBJECT", "ENCODING", "k") == b"int"


@pytest.mark.parametrize("algorithm", COUNTERS[:2])
def test_a_window_is_an_integer_once_it_is_used(server: Server, algorithm: Algorithm) -> None:
    """The third admission of a window finds an integer and adds to it, whatever the server is."""
    for ours, core in taken(server, Meter(Rate(100, DAY), algorithm), [(0, 1), (1, 1), (2, 1), (3, 2)]):
        assert ours == core
    assert server.ask("OBJECT", "ENCODING", "k") == b"int"
    assert int(str(server.ask("PTTL", "k"))) > 0


@pytest.mark.parametrize("algorithm", COUNTERS)
def test_counters_of_before_go_on(server: Server, algorithm: Algorithm) -> None:
    """A counter that was written as MessagePack, as all once were, is taken up where it stood."""
    numbers = {
        Algorithm.FIXED_WINDOW: (NEW_YEAR // HOUR, 3),
        Algorithm.SLIDING_WINDOW_COUNTER: (NEW_YEAR // HOUR, 3, 0),
    }.get(algorithm, (NEW_YEAR, 3, 0))
    server.ask("SET", "k", b"".join(map(msgspec.msgpack.encode, numbers)))
    ((first, _), (second, _)) = taken(server, Meter(Rate(5, HOUR), algorithm), [(0, 1), (0, 2)])
    assert (first.allowed, first.remaining) == (True, 1)
    assert not second.allowed


def test_a_log_of_before_goes_on(server: Server) -> None:
    """A log with 8 bytes for each instant is read, and written anew with the next admission."""
    times = [float(NEW_YEAR - age) for age in (2 * SECOND, SECOND, 2 * HOUR, 4 * SECOND, 3 * SECOND)]
    server.ask("SET", "k", pack("<dd6d", 3, 6, times[0], times[1], 0, times[2], times[3], times[4]))
    meter = Meter(Rate(6, HOUR), Algorithm.SLIDING_WINDOW_LOG)
    (first, _), (refused, _), (second, _) = taken(server, meter, [(0, 1), (0, 2), (HOUR - 2 * SECOND, 1)])
    assert (first.allowed, first.remaining) == (True, 1)
    assert (refused.allowed, refused.retry_after) == (False, HOUR - 4 * SECOND)
    assert (second.allowed, second.remaining) == (True, 3)
    assert server.ask("STRLEN", "k") == LOG_HEADER + 6 * 4


@pytest.mark.parametrize(
    ("spread", "width"), [(16 * SECOND, 3), (17 * SECOND, 4), (71 * MINUTE, 4), (72 * MINUTE, 5), (10 * DAY, 5)]
)
def test_a_log_is_as_wide_as_what_it_holds(server: Server, spread: Micros, width: int) -> None:
    """A log has 3 bytes for each instant as long as the oldest that counts is at most 16 seconds old, then more."""
    meter = Meter(Rate(100, 30 * DAY), Algorithm.SLIDING_WINDOW_LOG)
    moments = [(spread * step // 99, 1) for step in range(100)]
    for ours, core in taken(server, meter, [*moments, (spread, 1), (30 * DAY + spread // 2, 1), (31 * DAY, 99)]):
        assert ours == core
    server.ask("DEL", "k")
    taken(server, meter, moments)
    assert server.ask("STRLEN", "k") == LOG_HEADER + 100 * width


def test_a_large_log_has_its_width_from_the_first(server: Server) -> None:
    """A log with many places is never widened, which would keep the server busy: its period says how wide it is."""
    meter = Meter(Rate(2000, HOUR), Algorithm.SLIDING_WINDOW_LOG)
    moments = [(0, 1500), (1, 500), (2, 1), (HOUR - 1, 1), (HOUR, 1500), (HOUR + 1, 1), (HOUR + 2, 2000)]
    for ours, core in taken(server, meter, moments):
        assert ours == core
    assert server.ask("STRLEN", "k") == LOG_HEADER + 2000 * 4
