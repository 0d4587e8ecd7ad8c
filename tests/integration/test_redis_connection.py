from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from headgate.adapters.redis import store_at
from headgate.core.decision import Hit, Receipt
from headgate.core.limit import Rate
from headgate.core.meter import ALGORITHMS, Algorithm, Meter
from headgate.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.valkey import Server

    from headgate.adapters.redis import RedisStore

HOUR = 3_600_000_000
METERS = [Meter(Rate(5, HOUR), algorithm) for algorithm in ALGORITHMS if algorithm is not Algorithm.CONCURRENCY]


@asynccontextmanager
async def opened(server: Server) -> AsyncIterator[RedisStore]:
    store = store_at(f"{server.url}?deadline_ms=5000")
    await store.connect()
    try:
        yield store
    finally:
        await store.close()


def test_checks_of_one_turn_travel_together(valkey: Server) -> None:
    """Checks that are asked in one turn of the event loop cost one script call per 16 of them."""

    async def scenario() -> None:
        async with opened(valkey) as store:
            await store.take((Hit("warm", METERS[0], 1),))
            before = valkey.script_calls()
            hits = [Hit(f"k{index}", METERS[0], 1) for index in range(128)]
            await asyncio.gather(*(store.take((hit,)) for hit in hits))
            assert valkey.script_calls() == before + 8

    asyncio.run(scenario())


def test_a_cancelled_check_shifts_nobodys_answer(valkey: Server) -> None:
    """However many checks are cancelled on the way, each of the others gets its own answer."""

    async def scenario() -> None:
        chance = random.Random(7)
        async with opened(valkey) as store:

            async def one(index: int) -> None:
                # Each key has its own amount, so an answer to another caller would show.
                meter = Meter(Rate(index + 1, HOUR), Algorithm.FIXED_WINDOW)
                (decision,) = await store.take((Hit(f"own{index}", meter, 1),))
                assert decision.remaining == index

            for round_ in range(20):
                tasks = [asyncio.create_task(one(round_ * 500 + index)) for index in range(500)]
                await asyncio.sleep(0)
                for task in chance.sample(tasks, 250):
                    task.cancel()
                results = await asyncio.gather(*tasks, return_exceptions=True)
                assert {type(result) for result in results} <= {type(None), asyncio.CancelledError}

    asyncio.run(scenario())


def test_a_server_that_forgot_the_scripts_is_told_again(valkey: Server) -> None:
    """After SCRIPT FLUSH the next check is answered and counted once."""

    async def scenario() -> None:
        async with opened(valkey) as store:
            await store.take((Hit("flushed", METERS[0], 1),))
            valkey.ask("SCRIPT", "FLUSH")
            (decision,) = await store.take((Hit("flushed", METERS[0], 1),))
            assert decision.remaining == 3

    asyncio.run(scenario())


@pytest.mark.parametrize("meter", METERS, ids=lambda meter: meter.algorithm.value)
def test_a_denial_leaves_the_database_unchanged(valkey: Server, meter: Meter) -> None:
    """A denied request of several limits changes no byte of any counter."""

    async def scenario() -> None:
        async with opened(valkey) as store:
            full, free = Hit("rl:{a}:full", meter, 5), Hit("rl:{a}:free", METERS[0], 1)
            await store.take((full, free))
            before = valkey.contents()
            decisions = await store.take((full, free))
            assert [decision.allowed for decision in decisions] == [False, True]
            assert valkey.contents() == before

    asyncio.run(scenario())


def test_every_key_has_a_time_to_live(valkey: Server) -> None:
    """Counters, and what remembers that a receipt was given back, go away by themselves."""

    async def scenario() -> None:
        async with opened(valkey) as store:
            for meter in METERS:
                hit = Hit(f"rl:{{a}}:{meter.code}", meter, 2)
                (decision,) = await store.take((hit,))
                await store.take((hit._replace(forced=True, cost=50),))
                await store.give_back([Receipt(hit.key, meter, decision.stamp, 1, f"receipt-{meter.code}")])
            keys = list(valkey.contents())
            assert len(keys) == 2 * len(METERS)
            assert all(0 < int(str(valkey.ask("PTTL", key))) <= 12 * HOUR // 1000 for key in keys)

    asyncio.run(scenario())


def test_a_foreign_key_spoils_only_its_own_request(valkey: Server) -> None:
    """A key that holds something else is an error that is not transient; checks beside it are answered."""
    valkey.ask("LPUSH", "mine", "x")

    async def scenario() -> None:
        async with opened(valkey) as store:
            hits = [Hit(name, METERS[0], 1) for name in ("a", "mine", "b")]
            answers = await asyncio.gather(*(store.take((hit,)) for hit in hits), return_exceptions=True)
            error = answers[1]
            assert isinstance(error, StoreError)
            assert not error.transient
            assert all(isinstance(answers[index], list) for index in (0, 2))

    asyncio.run(scenario())


def test_a_lost_connection_fails_what_was_in_flight_and_comes_back(valkey: Server) -> None:
    """What was in flight when the connection died fails as transient; later checks go through again."""

    async def scenario() -> None:
        async with opened(valkey) as store:
            await store.take((Hit("k", METERS[0], 1),))
            node = store.topology.node(0)
            lost = node._connector.connection
            assert lost is not None
            waiting = asyncio.ensure_future(store.take((Hit("k", METERS[0], 1),)))
            while not lost.in_flight:  # noqa: ASYNC110 (two turns of the loop, not a wait)
                await asyncio.sleep(0)
            lost.abort(ConnectionResetError("cut"))
            with pytest.raises(StoreError, match="connection to redis was lost") as caught:
                await waiting
            assert caught.value.transient
            recovering = node._recovering
            assert recovering is not None
            await recovering
            (decision,) = await store.take((Hit("k", METERS[0], 0),))
            assert decision.allowed

    asyncio.run(scenario())


def test_a_server_that_is_not_there_is_said_so() -> None:
    """Connecting to nothing raises a transient store error that names the place."""
    with pytest.raises(StoreError, match=r"cannot connect to /nowhere\.sock") as caught:
        asyncio.run(store_at("unix:///nowhere.sock").connect())
    assert caught.value.transient


@pytest.mark.parametrize("protocol", [2, 3])
def test_both_protocols_and_a_database_number(valkey: Server, protocol: int) -> None:
    """RESP 2 and RESP 3 work, and another database is another set of counters."""

    async def scenario() -> None:
        store = store_at(f"{valkey.url}?protocol={protocol}&db=1")
        await store.connect()
        await store.take((Hit("k", METERS[0], 1),))
        await store.reset(["k"])
        (decision,) = await store.take((Hit("k", METERS[0], 1),))
        assert decision.remaining == 4
        await store.close()

    asyncio.run(scenario())
    assert valkey.contents() == {}
