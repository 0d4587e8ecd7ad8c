"""Giving back on a server where something else lies in the way."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from headgate.adapters.redis import store_at
from headgate.core.decision import Hit, Receipt
from headgate.core.limit import Rate, Slots
from headgate.core.meter import ALGORITHMS, Algorithm, Meter
from headgate.core.units import HOUR
from headgate.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.valkey import Server

    from headgate.adapters.redis import RedisStore


@asynccontextmanager
async def opened(server: Server) -> AsyncIterator[RedisStore]:
    store = store_at(f"{server.url}?deadline_ms=5000")
    await store.connect()
    yield store
    await store.close()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_receipt_that_cannot_be_honoured_is_not_used_up(valkey: Server, algorithm: Algorithm) -> None:
    """Beside a key that holds something else receipts count, each once; its own counts when the key is well again."""
    meter = Meter(Slots(5, HOUR) if algorithm is Algorithm.CONCURRENCY else Rate(5, HOUR), algorithm)

    async def scenario() -> None:
        async with opened(valkey) as store:
            hits = [Hit(name, meter, 5, name) for name in ("a", "mine", "b")]
            taken = [(await store.take((hit,)))[0] for hit in hits]
            receipts = [
                Receipt(hit.key, meter, decision.stamp, 5, f"receipt-{hit.key}")
                for hit, decision in zip(hits, taken, strict=True)
            ]
            valkey.ask("RENAME", "mine", "kept")
            valkey.ask("LPUSH", "mine", "x")
            with pytest.raises(StoreError, match="WRONGTYPE") as caught:
                await store.give_back(receipts)
            assert not caught.value.transient
            valkey.ask("RENAME", "kept", "mine")
            assert [decision.remaining for decision in await store.peek([hit._replace(cost=0) for hit in hits])] == [
                5,
                0,
                5,
            ]
            await store.give_back(receipts)
            assert all(decision.allowed for decision in await store.take(hits))

    asyncio.run(scenario())
