from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from headgate.adapters.redis import RedisStore, ServerAddress
from headgate.testing import CounterStoreContract

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.integration.conftest import Server

    from headgate.testing import FakeClock

REAL_TIME = 600
"""Keys live at least so many seconds, because the fake clock does not move with the server's."""


class TestRedisStore(CounterStoreContract):
    """The Redis store keeps every promise of the port, on a real Valkey."""

    @pytest.fixture(autouse=True)
    def _server(self, valkey: Server) -> None:
        self.address = ServerAddress.parse(valkey.url)

    @asynccontextmanager
    async def open_store(self, clock: FakeClock) -> AsyncIterator[RedisStore]:
        store = RedisStore(self.address, clock, REAL_TIME)
        await store.connect()
        yield store
        await store.close()
