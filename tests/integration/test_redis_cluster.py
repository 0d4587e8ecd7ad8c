"""Slots that move while they are used."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from headgate.adapters.redis import store_at
from headgate.adapters.redis.topology import slot_of
from headgate.core.decision import Hit, Receipt
from headgate.core.limit import Rate
from headgate.core.meter import Algorithm, Meter
from headgate.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.cluster import ClusterSetup
    from tests.support.valkey import Server

    from headgate.adapters.redis import RedisStore

HOUR = 3_600_000_000
FIVE = Meter(Rate(5, HOUR), Algorithm.FIXED_WINDOW)
ONE, OTHER, THIRD = (Hit(f"rl:{{u=mover}}:{rule}:fw1h", FIVE, 1) for rule in ("one", "other", "third"))
SLOT = slot_of(ONE.key)


@asynccontextmanager
async def opened(cluster: ClusterSetup) -> AsyncIterator[RedisStore]:
    store = store_at(f"{cluster.url}?deadline_ms=5000")
    try:
        yield store
    finally:
        await store.close()


def elsewhere(cluster: ClusterSetup) -> Server:
    """A primary that does not have the slot."""
    return next(primary for primary in cluster.primaries() if primary is not cluster.node_of(SLOT))


async def left(store: RedisStore, *hits: Hit) -> list[int]:
    return [(await store.peek([hit._replace(cost=0)]))[0].remaining for hit in hits]


def test_the_map_need_not_be_known_beforehand(cluster_setup: ClusterSetup) -> None:
    """The first checks of a program find their nodes by being sent from one to the other."""

    async def scenario() -> None:
        async with opened(cluster_setup) as store:
            hits = [Hit(f"rl:{{u={number}}}:r:fw1h", FIVE, 1) for number in range(50)]
            decisions = await asyncio.gather(*[store.take([hit]) for hit in hits])
            assert [decision.remaining for (decision,) in decisions] == [4] * 50

    asyncio.run(scenario())


def test_a_slot_that_has_moved_is_found(cluster_setup: ClusterSetup) -> None:
    """After a slot has moved, its counters go on where they were, and nothing is counted twice."""

    async def scenario() -> None:
        async with opened(cluster_setup) as store:
            await store.take([ONE, OTHER])
            cluster_setup.move_slot(SLOT, elsewhere(cluster_setup))
            assert [decision.remaining for decision in await store.take([ONE, OTHER])] == [3, 3]
            cluster_setup.move_slot(SLOT, elsewhere(cluster_setup))
            assert [decision.remaining for decision in await store.take([ONE, OTHER])] == [2, 2]

    asyncio.run(scenario())


def test_while_a_slot_moves_every_counter_is_found(cluster_setup: ClusterSetup) -> None:
    """Counters that have moved, have not, and never were: each is counted once, also all of one request."""

    async def scenario() -> None:
        async with opened(cluster_setup) as store:
            await store.take([ONE, OTHER])
            cluster_setup.begin_move(SLOT, elsewhere(cluster_setup))
            cluster_setup.move_key(SLOT, ONE.key)
            assert (await store.take([ONE]))[0].remaining == 3
            assert (await store.take([OTHER]))[0].remaining == 3
            assert (await store.take([THIRD]))[0].remaining == 4
            assert [decision.remaining for decision in await store.take([ONE, OTHER, THIRD])] == [2, 2, 3]
            together = await asyncio.gather(*[store.take([hit]) for hit in (ONE, OTHER, THIRD)])
            assert [decision.remaining for (decision,) in together] == [1, 1, 2]
            refused = await store.take([ONE._replace(cost=2), OTHER, THIRD])
            assert [decision.allowed for decision in refused] == [False, True, True]
            assert await left(store, ONE, OTHER, THIRD) == [1, 1, 2]
            cluster_setup.finish_move(SLOT)
            assert await left(store, ONE, OTHER, THIRD) == [1, 1, 2]

    asyncio.run(scenario())


def test_what_is_given_back_while_its_slot_moves_waits_for_it(cluster_setup: ClusterSetup) -> None:
    """A refund needs two keys of one slot; while these are apart it is tried again, and then booked."""

    async def scenario() -> None:
        async with opened(cluster_setup) as store:
            (decision,) = await store.take([ONE._replace(cost=3)])
            cluster_setup.begin_move(SLOT, elsewhere(cluster_setup))
            refund = asyncio.ensure_future(store.give_back([Receipt(ONE.key, FIVE, decision.stamp, 3, "r")]))
            done, _ = await asyncio.wait([refund], timeout=0.2)
            assert not done
            await asyncio.to_thread(cluster_setup.finish_move, SLOT)
            await refund
            assert await left(store, ONE) == [5]

    asyncio.run(scenario())


def test_a_refund_is_not_tried_for_ever(cluster_setup: ClusterSetup, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a slot never arrives, the refund raises an error."""
    monkeypatch.setattr("headgate.adapters.redis.store._SECONDS_WHILE_MOVING", 0.001)

    async def scenario() -> None:
        async with opened(cluster_setup) as store:
            (decision,) = await store.take([ONE])
            cluster_setup.begin_move(SLOT, elsewhere(cluster_setup))
            with pytest.raises(StoreError, match="TRYAGAIN") as caught:
                await store.give_back([Receipt(ONE.key, FIVE, decision.stamp, 1, "r")])
            assert caught.value.transient

    asyncio.run(scenario())


def test_a_cluster_that_is_not_there_is_said_so() -> None:
    """Connecting to no cluster at all raises a transient store error that names what was tried."""
    with pytest.raises(StoreError, match=r"no node of the cluster answers \(127\.0\.0\.1:1: ") as caught:
        asyncio.run(store_at("redis+cluster://127.0.0.1:1").connect())
    assert caught.value.transient
