"""Leases against any history: several processes with one store, and what each limit promises."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.leases import LEASED, settled
from tests.support.receipts import receipt_of

from headgate.adapters.memory import MemoryStore
from headgate.core.decision import Decision, Hit
from headgate.core.failure_policy import FailurePolicy
from headgate.core.lease import MIN_SHARE, OF_PERIOD, block_size, life
from headgate.core.limit import Rate
from headgate.core.meter import Algorithm, Meter
from headgate.core.units import MILLISECOND, SECOND
from headgate.dataplane.leased import Leased
from headgate.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Sequence

PERIOD = SECOND
LEASABLE = [Algorithm.FIXED_WINDOW, Algorithm.SLIDING_WINDOW_COUNTER, Algorithm.TOKEN_BUCKET]
HOLDERS = 3
KEY = "rl:{g=api}:api:code"


class Ledger(MemoryStore):
    """A store that notes what it charges and when, and what it takes back."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.charged: list[tuple[int, int]] = []

    async def take(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        decisions = self.take_now(hits)
        if decisions[0].allowed:
            self.charged.append((decisions[0].at, hits[0].cost))
        return decisions


STEPS = st.lists(
    st.tuples(
        st.integers(0, HOLDERS - 1),
        st.sampled_from(["take", "take", "take", "take", "cost", "crash", "close", "tick", "tenth", "long"]),
        st.integers(1, 40),
    ),
    max_size=60,
)


class World:
    """Processes that share a limit, and what they admitted."""

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self.clock = FakeClock()
        self.store = Ledger(self.clock)
        self.holders = [self._holder() for _ in range(HOLDERS)]
        self.admitted: list[tuple[int, int]] = []
        self.refunds: list[tuple[Hit, Decision]] = []
        self.crashed = 0

    def _holder(self) -> Leased:
        return Leased(self.store, lambda: self.clock() * 1_000)

    async def take(self, holder: int, times: int, cost: int) -> None:
        for _ in range(times):
            hit = Hit(KEY, self.meter, cost, failure_policy=LEASED)
            (decision,) = await self.holders[holder].take([hit])
            await settled()
            if decision.allowed:
                self.admitted.append((self.clock(), cost))
                self.refunds.append((hit, decision))

    async def step(self, holder: int, what: str, number: int) -> None:
        if what == "take":
            await self.take(holder, number, 1)
        elif what == "cost":
            await self.take(holder, 2, number)
        elif what == "crash":  # what it held is lost
            self.crashed += self.holders[holder].counts.outstanding_units
            self.holders[holder] = self._holder()
        elif what == "close":
            await self.holders[holder].close()
            self.holders[holder] = self._holder()
        else:
            self.clock.advance(micros={"tick": number, "tenth": number * MILLISECOND, "long": PERIOD // 3}[what])
            for each in self.holders:
                each._worker.wake()
            await settled()

    def outstanding(self) -> int:
        return sum(holder.counts.outstanding_units for holder in self.holders)


async def _walked(world: World, steps: list[tuple[int, str, int]]) -> None:
    for step in steps:
        await world.step(*step)
        left = (await world.store.peek([Hit(KEY, world.meter, 0)]))[0].remaining
        assert world.outstanding() >= 0
        assert left + world.outstanding() <= world.meter.capacity
    for holder in world.holders:
        await holder.close()
        assert holder.counts.outstanding_units == 0


@given(steps=STEPS, amount=st.integers(1, 400))
def test_a_fixed_window_never_admits_more(steps: list[tuple[int, str, int]], amount: int) -> None:
    """Whatever is spent, returned, crashed or refunded: each window admits at most the limit."""
    world = World(Meter(Rate(amount, PERIOD), Algorithm.FIXED_WINDOW))
    asyncio.run(_walked(world, steps))
    windows: defaultdict[int, int] = defaultdict(int)
    for at, cost in world.admitted:
        windows[at // PERIOD] += cost
    assert max(windows.values(), default=0) <= amount


@pytest.mark.parametrize("algorithm", LEASABLE)
@given(steps=STEPS, amount=st.integers(1, 400))
def test_what_is_admitted_was_charged_before(
    algorithm: Algorithm, steps: list[tuple[int, str, int]], amount: int
) -> None:
    """In any period at most what was charged in that period and the life of a block before it is admitted."""
    world = World(Meter(Rate(amount, PERIOD), algorithm))
    asyncio.run(_walked(world, steps))
    early = PERIOD if algorithm is Algorithm.FIXED_WINDOW else PERIOD // OF_PERIOD
    for start, _ in world.admitted:
        admitted = sum(cost for at, cost in world.admitted if start <= at < start + PERIOD)
        charged = sum(cost for at, cost in world.store.charged if start - early <= at < start + PERIOD)
        assert admitted <= charged


@pytest.mark.parametrize("algorithm", LEASABLE)
@given(steps=st.lists(st.tuples(st.integers(0, HOLDERS - 1), st.integers(1, 60)), max_size=12))
def test_nothing_is_lost_or_made(algorithm: Algorithm, steps: list[tuple[int, int]]) -> None:
    """What the store has counted is what was admitted and what is held; after an orderly end, what was admitted."""

    async def scenario() -> None:
        world = World(Meter(Rate(600, 60 * SECOND), algorithm))
        for holder, times in steps:
            await world.take(holder, times, 1)
            left = (await world.store.peek([Hit(KEY, world.meter, 0)]))[0].remaining
            assert 600 - left == len(world.admitted) + world.outstanding()
        for each in world.holders:
            await each.close()
        left = (await world.store.peek([Hit(KEY, world.meter, 0)]))[0].remaining
        assert 600 - left == len(world.admitted)

    asyncio.run(scenario())


@pytest.mark.parametrize("algorithm", LEASABLE)
@given(times=st.integers(3, 200), back=st.integers(0, 200))
def test_refunds_of_lease_hits_give_back_what_was_taken(algorithm: Algorithm, times: int, back: int) -> None:
    """Any number of lease hits can be refunded, each once, and as much is available again."""

    async def scenario() -> None:
        world = World(Meter(Rate(600, 60 * SECOND), algorithm))
        await world.take(0, times, 1)
        refunded = world.refunds[-min(back, times) :] if back else []
        for hit, decision in refunded:
            receipt = receipt_of(hit, decision)
            await world.holders[0].give_back([receipt])
            await world.holders[1].give_back([receipt])
        await world.holders[0].close()
        left = (await world.store.peek([Hit(KEY, world.meter, 0)]))[0].remaining
        assert 600 - left == times - len(refunded)

    asyncio.run(scenario())


@given(
    used=st.integers(0, 10**9),
    remaining=st.integers(0, 10**9),
    processes=st.integers(1, 10_000),
    elapsed=st.integers(0, PERIOD - 1),
)
def test_sizes(used: int, remaining: int, processes: int, elapsed: int) -> None:
    """A block is at most twice the demand and a share of what is left; all processes together hold at most half."""
    meter = Meter(Rate(1_000, PERIOD), Algorithm.FIXED_WINDOW)
    known = Decision(allowed=True, remaining=remaining, reset_after=0, retry_after=0, delay=0, stamp=0, at=elapsed)
    size = block_size(FailurePolicy(spread=LEASED.spread), used, meter, known, processes)
    assert 0 <= size <= 2 * used
    assert size * MIN_SHARE <= remaining
    assert size * processes * 2 <= remaining
    assert 0 < life(meter, known) <= PERIOD - elapsed
