from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from headgate.adapters.blocking import BlockingStore
from headgate.adapters.memory import MemoryStore
from headgate.testing import CounterStoreContract

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from headgate.testing import FakeClock


class TestBlockingStore(CounterStoreContract):
    """A store keeps every promise of the port when threads block on it."""

    @asynccontextmanager
    async def open_store(self, clock: FakeClock) -> AsyncIterator[BlockingStore]:
        store = BlockingStore(lambda: MemoryStore(clock))
        yield store
        await store.close()
