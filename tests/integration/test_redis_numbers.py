"""Numbers at the edge of what a server can count, and ordinary counters beside them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from headgate.adapters.memory import MemoryStore
from headgate.adapters.redis import store_at
from headgate.core.decision import Decision, Hit, Receipt
from headgate.core.limit import Rate
from headgate.core.meter import ALGORITHMS, Algorithm, Meter
from headgate.core.units import HOUR, MAX_AMOUNT, MAX_PERIOD, MAX_WAIT, MILLISECOND
from headgate.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.valkey import Server

RATES = [algorithm for algorithm in ALGORITHMS if algorithm is not Algorithm.CONCURRENCY]
COUNTING = [algorithm for algorithm in RATES if algorithm is not Algorithm.SLIDING_WINDOW_LOG]
BUCKETS = (Algorithm.TOKEN_BUCKET, Algorithm.LEAKY_BUCKET)
FIVE = Meter(Rate(5, HOUR), Algorithm.FIXED_WINDOW)
REAL_TIME = 600


def both(server: Server, hits: Sequence[Hit]) -> list[tuple[Decision, Decision]]:
    """What a Redis server and the memory store answer to the same hits, one after the other."""

    async def scenario() -> list[tuple[Decision, Decision]]:
        clock = FakeClock()
        memory = MemoryStore(clock)
        store = store_at(f"{server.url}?deadline_ms=5000", clock, REAL_TIME)
        await store.connect()
        pairs = []
        for hit in hits:
            (_,), (theirs,), (_,) = await asyncio.gather(
                store.take([Hit("before", FIVE, 0)]), store.take([hit]), store.take([Hit("after", FIVE, 0)])
            )
            pairs.append((theirs, memory.take_now([hit])[0]))
            receipt = Receipt(hit.key, hit.meter, theirs.stamp, 1, f"receipt{len(pairs)}")
            await store.give_back([receipt])
            memory.give_back_now([receipt])
        await store.close()
        return pairs

    return asyncio.run(scenario())


@pytest.mark.parametrize("algorithm", RATES)
def test_the_largest_costs_are_forced_onto_the_slowest_limit(valkey: Server, algorithm: Algorithm) -> None:
    """However much is forced past however slow a limit, the server answers as the core does, and answers all hits."""
    slow, slower = (Meter(Rate(amount, MAX_PERIOD), algorithm) for amount in (1000, 1))
    forced = [Hit("evil", slow, MAX_AMOUNT, forced=True), Hit("evil", slow, 1), Hit("evil", slower, 1)]
    hits = [*forced, *forced, *forced[:1] * 10, *forced]
    for theirs, ours in both(valkey, hits):
        assert theirs == ours
        assert ours.reset_after <= 2 * MAX_WAIT
    times_to_live = [int(str(valkey.ask("PTTL", key))) for key in valkey.contents()]
    assert all(0 < time <= 4 * MAX_WAIT // MILLISECOND for time in times_to_live)


@pytest.mark.parametrize("algorithm", COUNTING)
def test_more_is_forced_than_can_be_counted(valkey: Server, algorithm: Algorithm) -> None:
    """Counts end where both still count exactly, and nothing is admitted for it."""
    fast = Meter(Rate(MAX_AMOUNT, HOUR), algorithm)
    hits = [Hit("evil", fast, MAX_AMOUNT, forced=True)] * 1_200
    pairs = both(valkey, [*hits, Hit("evil", fast, 1), Hit("evil", fast, MAX_AMOUNT)])
    assert all(theirs == ours for theirs, ours in pairs)
    assert not pairs[-2][0].allowed


@pytest.mark.parametrize("algorithm", BUCKETS)
def test_the_longest_burst_is_exact(valkey: Server, algorithm: Algorithm) -> None:
    """A bucket that takes fifty years to fill again says so to the microsecond."""
    largest = Meter(Rate(1, HOUR, MAX_WAIT // HOUR), algorithm)
    for theirs, ours in both(valkey, [Hit("k", largest, largest.capacity), Hit("k", largest, 1)]):
        assert theirs == ours
        assert ours.reset_after >= MAX_WAIT - HOUR
