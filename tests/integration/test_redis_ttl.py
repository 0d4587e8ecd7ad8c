"""A key lives as long as its counter matters, by the server's own clock and with its computed time to live.

Other tests give the server a clock and keep keys alive with a large least time to live, which hides what is computed.
A key that expires early forgets what was admitted, so the limit is admitted once more.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.receipts import receipt_of
from tests.support.waiting import wait_until

from headgate.adapters.redis import store_at
from headgate.core.decision import Hit
from headgate.core.keys import companion
from headgate.core.limit import Rate, Slots
from headgate.core.meter import Algorithm, Meter
from headgate.core.units import MINUTE, SECOND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.valkey import Server

    from headgate.core.decision import Receipt
    from headgate.core.units import Micros

MILLISECOND = 1_000
RATES = [algorithm for algorithm in Algorithm if algorithm is not Algorithm.CONCURRENCY]
METERS: dict[Algorithm, Meter] = {algorithm: Meter(Rate(10, 7 * MINUTE), algorithm) for algorithm in RATES}
METERS[Algorithm.CONCURRENCY] = Meter(Slots(10, 7 * MINUTE), Algorithm.CONCURRENCY)
WINDOW = 3 * SECOND


class Twin:
    """The same counter, kept by the Python form of its algorithm."""

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self.state: Any = None

    def take(self, hit: Hit, at: Micros) -> None:
        meter = self.meter
        if hit.forced:
            assert meter.charge is not None
            change = meter.charge(self.state, meter, at, hit.cost)
        else:
            change = meter.decide(self.state, meter, at, hit.cost)[0]
        self.state = change if meter.commit is None else meter.commit(self.state, meter, change)

    def give_back(self, receipt: Receipt, at: Micros) -> None:
        change = self.meter.give_back(self.state, self.meter, at, receipt.stamp, receipt.amount)
        self.state = change if self.meter.commit is None else self.meter.commit(self.state, self.meter, change)

    @property
    def expires_at(self) -> Micros:
        return self.meter.expires_at(self.state, self.meter)


def dies_at(server: Server, key: str) -> Micros:
    """When the server deletes a key."""
    at = int(str(server.ask("PEXPIRETIME", key)))
    assert at > 0, "the key is not there, or lives for ever"
    return at * MILLISECOND


def now(server: Server) -> Micros:
    """The server's clock."""
    pair = server.ask("TIME")
    assert isinstance(pair, list)
    return int(pair[0]) * SECOND + int(pair[1])


@pytest.mark.parametrize("algorithm", RATES)
def test_a_counter_lives_until_it_says_nothing_any_more(valkey: Server, algorithm: Algorithm) -> None:
    """After each take, a charge past the limit and a refund, the key lives at least until its state expires."""
    meter = METERS[algorithm]
    twin = Twin(meter)
    hits = [Hit("k", meter, 1), Hit("k", meter, 4), Hit("k", meter, 5), Hit("k", meter, 20, forced=True)]

    async def scenario() -> None:
        store = store_at(valkey.url + "?deadline_ms=30000")
        receipts: list[Receipt] = []
        for hit in hits:
            (decision,) = await store.take([hit])
            twin.take(hit, decision.at)
            assert dies_at(valkey, "k") >= twin.expires_at
            receipts.append(receipt_of(hit, decision))
        for receipt in receipts[1:3]:
            await store.give_back([receipt])
            at = now(valkey)
            twin.give_back(receipt, at)
            assert dies_at(valkey, "k") >= twin.expires_at
            assert meter.creditable_until is not None
            if meter.creditable_until(receipt.stamp, meter) > at:
                dies = dies_at(valkey, companion("k", receipt.id))
                assert dies >= meter.creditable_until(receipt.stamp, meter), "the same receipt counts once"
        await store.close()

    asyncio.run(scenario())


def test_slots_live_until_their_last_holder_expires(valkey: Server) -> None:
    """A holder with a short time to live does not shorten that of the others; releasing one neither."""
    meter = METERS[Algorithm.CONCURRENCY]
    hits = [Hit("k", meter, 1, f"h{index}", ttl) for index, ttl in enumerate((5 * MINUTE, 6 * MINUTE, 1 * MINUTE))]

    async def scenario() -> None:
        store = store_at(valkey.url + "?deadline_ms=30000")
        decisions = [(await store.take([hit]))[0] for hit in hits]
        assert dies_at(valkey, "k") >= decisions[1].at + 6 * MINUTE
        await store.give_back([receipt_of(hits[2], decisions[2])])
        assert dies_at(valkey, "k") >= decisions[1].at + 6 * MINUTE
        await store.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("algorithm", [Algorithm.FIXED_WINDOW, Algorithm.SLIDING_WINDOW_COUNTER])
def test_what_is_taken_late_in_a_window_counts_to_its_end(valkey: Server, algorithm: Algorithm) -> None:
    """In real time: five are taken in the second half of a window, and no sixth is admitted before it ends."""
    meter = Meter(Rate(5, WINDOW), algorithm)
    key = f"late-{algorithm}"

    async def take() -> Sequence[Any]:
        store = store_at(valkey.url + "?deadline_ms=30000")
        decisions = await asyncio.gather(*[store.take([Hit(key, meter, 1)]) for _ in range(5)])
        await store.close()
        return [decision for (decision,) in decisions]

    async def sixth() -> Any:  # noqa: ANN401 (a decision)
        store = store_at(valkey.url + "?deadline_ms=30000")
        (decision,) = await store.take([Hit(key, meter, 1)])
        await store.close()
        return decision

    for _ in range(20):  # a busy machine can miss the end of a window
        wait_until(lambda: WINDOW * 6 // 10 < now(valkey) % WINDOW < WINDOW * 7 // 10, "the second half of a window")
        first = asyncio.run(take())
        window = first[-1].at // WINDOW
        assert all(decision.allowed for decision in first)
        wait_until(lambda: now(valkey) % WINDOW > WINDOW * 9 // 10 or now(valkey) // WINDOW > window, "its end")  # noqa: B023 (called at once)
        last = asyncio.run(sixth())
        if first[0].at // WINDOW == last.at // WINDOW == window:
            assert not last.allowed
            return
        wait_until(lambda: now(valkey) // WINDOW > window + 2, "a window without requests")  # noqa: B023 (called at once)
    pytest.fail("no run was within one window")
