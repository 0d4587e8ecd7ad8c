from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from tests.support.servers import ring_url

from headgate.adapters.redis import store_at
from headgate.testing import CounterStoreContract

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.cluster import ClusterSetup
    from tests.support.sentinel import SentinelSetup
    from tests.support.valkey import Server

    from headgate.adapters.redis import RedisStore
    from headgate.testing import FakeClock

REAL_TIME = 600
"""Keys live at least so many seconds, because the fake clock does not move with the server's."""
PATIENT = "deadline_ms=5000"


class RedisStoreContract(CounterStoreContract):
    """The Redis store keeps every promise of the port, on real servers."""

    url: str

    @asynccontextmanager
    async def open_store(self, clock: FakeClock) -> AsyncIterator[RedisStore]:
        store = store_at(f"{self.url}?{PATIENT}", clock, REAL_TIME)
        await store.connect()
        yield store
        await store.close()


class TestOneValkey(RedisStoreContract):
    @pytest.fixture(autouse=True)
    def _servers(self, valkey: Server) -> None:
        self.url = valkey.url


class TestRedis(RedisStoreContract):
    @pytest.fixture(autouse=True)
    def _servers(self, redis_server: Server) -> None:
        self.url = redis_server.url


class TestSentinel(RedisStoreContract):
    @pytest.fixture(autouse=True)
    def _servers(self, sentinel_setup: SentinelSetup) -> None:
        self.url = sentinel_setup.url


class TestCluster(RedisStoreContract):
    @pytest.fixture(autouse=True)
    def _servers(self, cluster_setup: ClusterSetup) -> None:
        self.url = cluster_setup.url


class TestRing(RedisStoreContract):
    @pytest.fixture(autouse=True)
    def _servers(self, ring_servers: list[Server]) -> None:
        self.url = ring_url(ring_servers)
