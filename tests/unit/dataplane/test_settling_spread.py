"""Reservations of limits whose counters are in parts, or shared by regions: settled as those in one piece are."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.contract.test_sharded import sharded
from tests.unit.dataplane.test_regional import World, run, spread

from headgate.core.decision import Hit
from headgate.core.limit import Rate
from headgate.core.meter import Algorithm, Meter
from headgate.core.spread import RegionMode
from headgate.core.units import MINUTE
from headgate.core.verdict import bare_verdict
from headgate.dataplane import reservations
from headgate.dataplane.reservations import Reservation
from headgate.testing import FakeClock

if TYPE_CHECKING:
    from headgate.core.verdict import Verdict
    from headgate.ports import CounterStore

METER = Meter(Rate(100, MINUTE), Algorithm.FIXED_WINDOW)
MARKS = ["|#1", "|#4", "|@central.us", "|@central.eu", "|@borrow.us", "|@borrow.eu", "|@gossip", "|@split"]


def store_for(mark: str) -> CounterStore:
    """A store in the region eu, or one on several servers."""
    return sharded(FakeClock()) if mark.startswith("|#") else World().regions["eu"]


def spread_hit(mark: str, cost: int) -> Hit:
    return Hit(f"rl:{{g=all}}:all:fw1m{mark}", METER, cost)


async def left(store: CounterStore, mark: str) -> int:
    return (await store.peek([spread_hit(mark, 0)]))[0].remaining


@pytest.mark.parametrize("actual", [0, 7, 40, 60, 130, None])
@pytest.mark.parametrize("mark", MARKS)
def test_settling_counts_once_however_a_limit_is_spread(mark: str, actual: int | None) -> None:
    """What was used is counted, as for a limit in one piece, and who settles again changes nothing."""

    async def scenario() -> None:
        store = store_for(mark)
        taken = spread_hit(mark, 40)
        held = reservations.reserved(bare_verdict(taken, await store.take([taken])), MINUTE)
        assert await left(store, mark) == 60
        assert await reservations.settle(store, held, actual)
        used = 40 if actual is None else actual
        assert await left(store, mark) == max(0, 100 - used)
        await reservations.settle(store, held, actual)  # the same, as after it broke off
        assert not await reservations.settle(store, held, 90)
        assert await left(store, mark) == max(0, 100 - used)
        await store.close()

    run(scenario())


@pytest.mark.parametrize("mark", MARKS)
def test_of_many_who_settle_at_once_one_does(mark: str) -> None:
    """The charge beyond the reservation is made with the right to make it, wherever both are counted."""

    async def scenario() -> None:
        store = store_for(mark)
        taken = spread_hit(mark, 10)
        held = reservations.reserved(bare_verdict(taken, await store.take([taken])), MINUTE)
        settled = await asyncio.gather(*[reservations.settle(store, held, 15) for _ in range(8)])
        assert sum(settled) == 1
        assert await left(store, mark) == 85
        await store.close()

    run(scenario())


@pytest.mark.parametrize("actual", [7, 60])
@pytest.mark.parametrize("mark", MARKS)
def test_a_reservation_in_a_block_is_booked_once(mark: str, actual: int) -> None:
    """As `Limiter.reserve` makes it."""

    async def scenario() -> None:
        store = store_for(mark)
        taken = spread_hit(mark, 40)

        async def ask() -> Verdict:
            return bare_verdict(taken, await store.take([taken]))

        async with Reservation(store, ask, MINUTE) as reservation:
            reservation.settle(actual)
        await reservation.close(actual)
        assert await left(store, mark) == 100 - actual
        await store.close()

    run(scenario())


@pytest.mark.parametrize("mark", ["|@gossip", "|@split"])
def test_a_token_that_is_settled_in_another_region_is_refunded_where_it_was_counted(mark: str) -> None:
    """And once: the region that has counted it knows the receipt, whichever region brings it."""

    async def scenario() -> None:
        world = World()
        eu, us = world.regions["eu"], world.regions["us"]
        policy = spread(RegionMode.SPLIT, eu=3, us=1) if mark == "|@split" else None
        taken = spread_hit(mark, 40)._replace(failure_policy=policy)
        held = reservations.reserved(bare_verdict(taken, await eu.take([taken])), MINUTE)

        async def standing(region: CounterStore) -> int:
            return (await region.peek([taken._replace(cost=0)]))[0].remaining

        before = [await standing(region) for region in (eu, us)]
        assert await reservations.settle(us, held, 30)
        assert [await standing(region) for region in (eu, us)] == [before[0] + 10, before[1]]
        await reservations.settle(eu, held, 30)
        assert [await standing(region) for region in (eu, us)] == [before[0] + 10, before[1]]
        await world.close()

    run(scenario())
