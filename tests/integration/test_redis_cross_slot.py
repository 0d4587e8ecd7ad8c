"""Requests whose counters live on several servers, or in several slots of one."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from tests.support.servers import ring_url

from headgate.adapters.redis import store_at
from headgate.adapters.redis.topology import slot_of, tag_of
from headgate.core.decision import Hit, Receipt
from headgate.core.limit import Rate, Slots
from headgate.core.meter import ALGORITHMS, Algorithm, Meter
from headgate.errors import PartlyAnswered, StoreError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.cluster import ClusterSetup
    from tests.support.valkey import Server

    from headgate.adapters.redis import RedisStore

HOUR = 3_600_000_000
FIVE = Meter(Rate(5, HOUR), Algorithm.FIXED_WINDOW)
METERS = [Meter(Rate(5, HOUR), algorithm) for algorithm in ALGORITHMS if algorithm is not Algorithm.CONCURRENCY]
METERS.append(Meter(Slots(5, HOUR), Algorithm.CONCURRENCY))
PATIENT = "deadline_ms=5000"


class Place:
    """Servers, and the address of a store on them."""

    def __init__(self, url: str, servers: list[Server]) -> None:
        self.url = url
        self.servers = servers

    def contents(self) -> dict[bytes, bytes]:
        return {key: dump for server in self.servers for key, dump in server.contents().items() if key != b"rl:probe"}

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[RedisStore]:
        store = store_at(f"{self.url}?{PATIENT}")
        await store.connect()
        try:
            yield store
        finally:
            await store.close()


@pytest.fixture
def ring(ring_servers: list[Server]) -> Place:
    return Place(ring_url(ring_servers), ring_servers)


@pytest.fixture
def cluster(cluster_setup: ClusterSetup) -> Place:
    return Place(cluster_setup.url, cluster_setup.primaries())


@pytest.fixture(params=["ring", "cluster"])
def place(request: pytest.FixtureRequest) -> Place:
    """Keys in several places."""
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Place)
    return found


def hit(name: str, meter: Meter = FIVE, cost: int = 1) -> Hit:
    holder = f"holder of {name}" if meter.algorithm is Algorithm.CONCURRENCY else None
    return Hit(f"rl:{{u={name}}}:rule:{meter.code}", meter, cost, holder)


@pytest.mark.parametrize("meter", METERS, ids=lambda meter: meter.algorithm.value)
def test_a_denied_request_leaves_every_place_as_it_was(place: Place, meter: Meter) -> None:
    """If one place refuses, what the others took is given back: no key is left, and the same is left of each limit."""

    async def scenario() -> None:
        async with place.opened() as store:
            await store.take([hit("full", FIVE, 5)])
            used = [hit(f"used{number}", meter, 2) for number in range(4)]
            for each in used:
                await store.take([each])
            standing = [(await store.peek([each._replace(cost=0)]))[0].remaining for each in used]
            before = set(place.contents())
            fresh = [hit(f"fresh{number}", meter) for number in range(4)]
            again = [each._replace(holder=None if each.holder is None else "another", cost=1) for each in used]
            decisions = await store.take([*fresh, *again, hit("full")])
            assert [decision.allowed for decision in decisions] == [True] * 8 + [False]
            assert [decision.remaining for decision in decisions] == [5] * 4 + standing + [0]
            assert set(place.contents()) == before
            after = [(await store.peek([each._replace(cost=0)]))[0].remaining for each in used]
            assert after == standing == [3] * 4

    asyncio.run(scenario())


@pytest.mark.parametrize("cost", [1, 2, 3])
def test_a_renewal_that_another_place_refuses_keeps_the_slots(place: Place, cost: int) -> None:
    """A holder that renews its slots beside a counter that is full keeps what it had, whatever it asked for."""
    slots = Meter(Slots(3, HOUR), Algorithm.CONCURRENCY)

    async def scenario() -> None:
        async with place.opened() as store:
            held = [hit(f"held{number}", slots, 2) for number in range(6)]
            await store.take([hit("full", FIVE, 5)])
            await store.take(held)
            before = place.contents()
            renewed = [each._replace(cost=cost) for each in held]
            decisions = await store.take([*renewed, hit("full")])
            assert [decision.allowed for decision in decisions] == [True] * 6 + [False]
            assert [decision.remaining for decision in decisions] == [1] * 6 + [0]
            assert place.contents() == before
            receipts = [Receipt(each.key, each.meter, each.holder or "", cost, "released") for each in held]
            await store.give_back(receipts)
            assert [decision.remaining for decision in await store.peek(held)] == [1] * 6

    asyncio.run(scenario())


def test_an_admitted_request_counts_in_every_place(place: Place) -> None:
    """All counters of an admitted request are taken, wherever they are, and can be given back and reset."""

    async def scenario() -> None:
        hits = [hit(f"s{number}") for number in range(6)]
        async with place.opened() as store:
            decisions = await store.take(hits)
            assert [decision.remaining for decision in decisions] == [4] * 6
            receipts = [
                Receipt(each.key, FIVE, decision.stamp, 1, "once")
                for each, decision in zip(hits, decisions, strict=True)
            ]
            await store.give_back(receipts)
            await store.give_back(receipts)
            assert [decision.remaining for decision in await store.peek(hits)] == [4] * 6
            await store.take(hits)
            await store.reset([each.key for each in hits])
            assert [decision.remaining for decision in await store.peek(hits)] == [4] * 6

    asyncio.run(scenario())


def test_a_peek_over_several_places_says_what_a_take_would(place: Place) -> None:
    """Peeking at a request that would be refused says how the other counters stand, and changes nothing."""

    async def scenario() -> None:
        async with place.opened() as store:
            await store.take([hit("full", FIVE, 5)])
            before = place.contents()
            hits = [hit("free"), hit("other"), hit("full")]
            looked = await store.peek(hits)
            assert [decision.remaining for decision in looked] == [5, 5, 0]
            assert place.contents() == before
            taken = await store.take(hits)
            assert [each[:2] for each in looked] == [each[:2] for each in taken]

    asyncio.run(scenario())


def test_no_limit_is_exceeded_however_many_come_at_once(place: Place) -> None:
    """Requests over several places that race never get more than the limit allows of any counter."""

    async def scenario() -> None:
        async with place.opened() as store:
            narrow, wide = (
                hit("narrow", Meter(Rate(20, HOUR), Algorithm.FIXED_WINDOW)),
                [hit(f"w{n}") for n in range(9)],
            )
            asked = [store.take([wide[number % 9], narrow]) for number in range(200)]
            answers = await asyncio.gather(*asked)
            admitted = sum(all(decision.allowed for decision in decisions) for decisions in answers)
            assert admitted <= 20
            left = (await store.peek([narrow._replace(cost=0)]))[0].remaining
            assert left == 20 - admitted

    asyncio.run(scenario())


def test_a_foreign_key_in_one_place_costs_nothing_in_the_others(place: Place) -> None:
    """A counter that holds something else is an error for good; what its request took elsewhere is given back."""

    async def scenario() -> None:
        async with place.opened() as store:
            foreign = hit("foreign")
            await store.take([foreign])
            for server in place.servers:
                if foreign.key.encode() in server.contents():
                    server.ask("DEL", foreign.key)
                    server.ask("LPUSH", foreign.key, "x")
            with pytest.raises(StoreError) as caught:
                await store.take([hit("a"), hit("b"), hit("c"), foreign])
            assert not caught.value.transient
            left = await store.peek([hit("a"), hit("b"), hit("c")])
            assert [decision.remaining for decision in left] == [4, 4, 4]

    asyncio.run(scenario())


def test_a_lost_server_of_a_ring_degrades_its_own_keys_only(ring: Place) -> None:
    """Keys of the other servers are counted as before; of a request over several, what was answered is told."""

    async def scenario() -> None:
        async with ring.opened() as store:
            hits = [hit(f"s{number}") for number in range(20)]
            lost = ring.servers[0]
            mine = [each for each in hits if store.topology.shard_of(each.key) == 0]
            others = [each for each in hits if store.topology.shard_of(each.key) != 0]
            assert mine
            assert others
            lost.kill()
            for each in mine:
                with pytest.raises(StoreError) as caught:
                    await store.take([each])
                assert caught.value.transient
            for each in others:
                assert (await store.take([each]))[0].remaining == 4
            with pytest.raises(PartlyAnswered) as partly:
                await store.take([mine[0], others[0]])
            first, second = partly.value.decisions
            assert first is None
            assert second is not None
            assert second.remaining == 3

    asyncio.run(scenario())


def test_a_ring_spreads_its_keys() -> None:
    """Each server gets its part of the subjects, with all their counters, and few move to a new one."""
    three, four = store_at("redis+ring://a,b,c").topology, store_at("redis+ring://a,b,c,d").topology
    keys = [f"rl:{{u=user{number}}}:search:sc1h" for number in range(3_000)]
    placed = [three.shard_of(key) for key in keys]
    assert all(600 < placed.count(place) < 1_400 for place in range(3))
    assert [three.shard_of(key.replace("search", "other")) for key in keys] == placed
    moved = [(before, four.shard_of(key)) for key, before in zip(keys, placed, strict=True)]
    assert all(after in {before, 3} for before, after in moved)
    assert 400 < sum(after == 3 for _, after in moved) < 1_200


def test_a_slot_is_what_the_server_says(cluster: Place) -> None:
    """Slots are computed as the cluster computes them, with and without a tag."""
    for key in ("foo", "rl:{u=42}:a:b", "a{}b", "{x", "x}y{z}", "rl:h:fw1m:login", "", "ü"):
        assert cluster.servers[0].ask("CLUSTER", "KEYSLOT", key) == slot_of(key), tag_of(key)
