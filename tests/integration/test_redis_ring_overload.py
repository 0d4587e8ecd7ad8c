"""Requests over several servers under overload and outages: a denial stays one, and what is shed is said so."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from tests.support.valkey import Server, free_port

from headgate import Limiter, Overloaded, Request
from headgate.adapters.clock import wall_clock
from headgate.adapters.memory import MemoryStore
from headgate.adapters.redis import store_at
from headgate.core.decision import Hit, Source
from headgate.core.failure_policy import FailurePolicy, OnOverload
from headgate.core.limit import Rate
from headgate.core.meter import Algorithm, Meter
from headgate.dataplane.guarded import Guarded
from headgate.dataplane.local_share import LocalShare

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from headgate.adapters.redis import RedisStore
    from headgate.core.decision import Key

DAY = 86_400_000_000
WIDE = Meter(Rate(10**6, DAY), Algorithm.FIXED_WINDOW)
NARROW = Meter(Rate(1, DAY), Algorithm.FIXED_WINDOW)


@pytest.fixture(scope="module")
def pair(servers_folder: Path) -> Iterator[list[Server]]:
    """Two servers that know nothing of each other."""
    servers = [Server(servers_folder / f"pair-{number}", free_port()) for number in range(2)]
    yield servers
    for server in servers:
        server.kill()


def opened(pair: Sequence[Server]) -> RedisStore:
    """A store on both servers, without a key."""
    for server in pair:
        server.revive()
        server.ask("FLUSHALL")
    return store_at("redis+ring://" + ",".join(f"127.0.0.1:{server.port}" for server in pair))


def two_keys(store: RedisStore) -> tuple[Key, Key]:
    """Keys of two servers."""
    first = "rl:k0"
    return first, next(
        f"rl:k{n}" for n in range(999) if store.topology.shard_of(f"rl:k{n}") != store.topology.shard_of(first)
    )


def test_a_denial_stays_one_when_another_server_goes_silent(pair: list[Server]) -> None:
    """What one server has refused is refused, although the other dies before it is looked at again."""

    async def scenario() -> None:
        store = opened(pair)
        guarded = Guarded(store, LocalShare(MemoryStore(wall_clock)), wall_clock)
        wide, narrow = two_keys(store)
        hits = [Hit(wide, WIDE, 1), Hit(narrow, NARROW, 1)]
        assert [decision.allowed for decision in await guarded.take(hits)] == [True, True]
        name = store.topology.node(store.topology.shard_of(wide)).name
        victim = next(server for server in pair if name.endswith(str(server.port)))
        undo = store._cross_slot._undo_all

        async def dies_then(*args: object) -> None:
            victim.freeze()
            await undo(*args)  # type: ignore[arg-type] # as it was called

        store._cross_slot._undo_all = dies_then  # type: ignore[method-assign, assignment] # the moment that matters
        decisions = await guarded.take(hits)
        assert not decisions[1].allowed
        assert decisions[1].source is Source.STORE
        victim.thaw()
        await store.close()

    asyncio.run(scenario())


def test_what_is_shed_is_overloaded_and_nothing_else(pair: list[Server]) -> None:
    """However a request over two servers is shed, its caller gets a decision or `Overloaded`; nothing stays taken."""

    async def scenario() -> None:
        store = opened(pair)
        await store.connect()
        wide, narrow = two_keys(store)
        hasty = FailurePolicy(on_overload=OnOverload.DENY)
        await store.take([Hit(narrow, NARROW, 1)])
        seen: Counter[object] = Counter()

        async def ask() -> None:
            for _ in range(5):
                try:
                    decisions = await store.take(
                        [Hit(wide, WIDE, 1, failure_policy=hasty), Hit(narrow, NARROW, 1, failure_policy=hasty)]
                    )
                    seen[all(decision.allowed for decision in decisions)] += 1
                except Overloaded:
                    seen[Overloaded] += 1

        await asyncio.gather(*[ask() for _ in range(700)])
        assert seen.keys() <= {False, Overloaded}
        assert seen[False]
        assert store.load.in_flight == 0
        (left,) = await store.peek([Hit(wide, WIDE, 0)])
        assert left.remaining == 10**6
        await store.close()

    asyncio.run(scenario())


def test_what_was_used_is_charged_under_overload(valkey: Server) -> None:
    """Settling charges and gives back, whatever crowd there is and whatever the key's `on_overload` says."""

    async def scenario() -> None:
        async with Limiter.open(f"{valkey.url}?on_overload=deny") as limiter:
            above = await limiter.reserve("above", "1000/day", 1)
            below = await limiter.reserve("below", "1000/day", 500)
            crowd = [asyncio.ensure_future(limiter.hit(f"c{number}", "5/day")) for number in range(3_000)]
            await asyncio.sleep(0)
            await above.close(400)
            await below.close(1)
            await asyncio.gather(*crowd, return_exceptions=True)
            assert (await limiter.peek("above", "1000/day", 0)).remaining == 600
            assert (await limiter.peek("below", "1000/day", 0)).remaining == 999

    asyncio.run(scenario())


def test_a_rule_that_only_watches_undoes_nothing(valkey: Server) -> None:
    """A `log` rule that is shed does not take back what the others have decided and counted."""
    rules = [
        {"name": "quota", "per": "global", "limits": "100000/day"},
        {"name": "watched", "per": "global", "limits": "5/day", "action": "log", "on_overload": "deny"},
    ]

    async def scenario() -> None:
        async with Limiter.open(valkey.url, rules) as limiter:
            verdicts = await asyncio.gather(*[limiter.check(Request(user="u")) for _ in range(3_000)])
            assert all(verdict.allowed and verdict.source is Source.STORE for verdict in verdicts)
            assert (await limiter.peek(Request(user="u"), cost=0)).remaining == 100_000 - 3_000

    asyncio.run(scenario())
