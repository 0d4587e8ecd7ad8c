from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from headgate.adapters.memory import MemoryStore
from headgate.testing import CounterStoreContract

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from headgate.testing import FakeClock


class TestMemoryStore(CounterStoreContract):
    """The memory store keeps every promise of the port."""

    @asynccontextmanager
    async def open_store(self, clock: FakeClock) -> AsyncIterator[MemoryStore]:
        store = MemoryStore(clock)
        yield store
        await store.close()
