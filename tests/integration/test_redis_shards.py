"""Counters in parts on a real cluster and on a ring."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.contract.test_sharded import TestFourShards as FourShards
from tests.contract.test_sharded import TestOneShard as OneShard
from tests.support.servers import ring_url
from tests.support.spreading import Renamed

from headgate import Limiter, Request
from headgate.adapters.redis import store_at
from headgate.core.meter import Algorithm
from headgate.dataplane.sharded import Sharded
from headgate.testing.contract.trial import StoreCase, scenario

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.cluster import ClusterSetup
    from tests.support.valkey import Server

    from headgate.ports import CounterStore
    from headgate.testing import FakeClock
    from headgate.testing.contract.trial import Trial

PATIENT = "deadline_ms=5000"
_ROOT = Path(__file__).parents[2]
LIMIT = 2_000
RULES = {"rules": [{"name": "all", "limits": f"{LIMIT}/day", "algorithm": "fixed_window", "spread": {"shards": 8}}]}
PROCESSES = 8


@asynccontextmanager
async def opened(url: str, clock: FakeClock, mark: str) -> AsyncIterator[CounterStore]:
    store = store_at(f"{url}?{PATIENT}", clock, 600)
    await store.connect()
    yield Renamed(Sharded(store, store.server_of, clock), mark)
    await store.close()


class OnServers(StoreCase):
    """Overrides for counters that are on several servers."""

    @scenario
    async def test_a_refused_renewal_loses_nothing(self, trial: Trial) -> None:
        """A holder that asks for too many slots keeps its slots.

        Beside a counter on another server it would not: a request that is refused there gives its slots back.
        """
        counter = trial.counter("3 concurrent ttl 30s", Algorithm.CONCURRENCY)
        await counter.admitted(1, "a")
        await counter.admitted(1, "b")
        assert (await counter.refused(3, "a")).remaining == 1
        assert await counter.remaining() == 1


class TestClusterInFour(OnServers, FourShards):
    """What is true of counters in parts is true of them on a cluster."""

    @pytest.fixture(autouse=True)
    def _servers(self, cluster_setup: ClusterSetup) -> None:
        self.url = cluster_setup.url

    @asynccontextmanager
    async def open_store(self, clock: FakeClock) -> AsyncIterator[CounterStore]:
        async with opened(self.url, clock, "|#4") as store:
            yield store


class TestRingInOne(OnServers, OneShard):
    """A counter in one part on a ring keeps every promise of the port."""

    @pytest.fixture(autouse=True)
    def _servers(self, ring_servers: list[Server]) -> None:
        self.url = ring_url(ring_servers)

    @asynccontextmanager
    async def open_store(self, clock: FakeClock) -> AsyncIterator[CounterStore]:
        async with opened(self.url, clock, "|#1") as store:
            yield store


async def _crowd(url: str) -> list[int]:
    """How many requests each of eight processes gets admitted until all are refused."""
    started = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.support.taker", json.dumps([url, RULES])),
            cwd=_ROOT,
            stdout=asyncio.subprocess.PIPE,
        )
        for _ in range(PROCESSES)
    ]
    return [int((await process.communicate())[0]) for process in started]


def _calls(server: Server) -> int:
    """How many script calls a server has run."""
    stats = server.text("INFO", "commandstats")
    rows = [line for line in stats.splitlines() if line.startswith("cmdstat_evalsha:")]
    return sum(int(row.partition("calls=")[2].partition(",")[0]) for row in rows)


_BELOW_WINDOW = 1_000_000
"""The last digits of a window's state are the count."""


def _admitted(server: Server) -> int:
    """What the parts of counters on a server have counted."""
    states = [int(server.text("GET", key.decode())) for key in server.contents() if b"|#" in key]
    return sum(state % _BELOW_WINDOW for state in states)


def test_eight_processes_get_exactly_the_limit(cluster_setup: ClusterSetup) -> None:
    """The sum is exact, and all servers have admitted the same, to a fifth of an even share."""
    primaries = cluster_setup.primaries()
    before = [_calls(server) for server in primaries]
    admitted = asyncio.run(_crowd(f"{cluster_setup.url}?{PATIENT}"))
    assert sum(admitted) == LIMIT
    assert all(_calls(server) > earlier for server, earlier in zip(primaries, before, strict=True))
    parts = [_admitted(server) for server in primaries]
    assert sum(parts) == LIMIT
    assert all(0.8 * LIMIT / 3 <= part <= 1.2 * LIMIT / 3 for part in parts), parts


def test_a_request_by_rules_is_counted_in_parts(cluster_setup: ClusterSetup) -> None:
    """Checked, looked at, reserved, settled, refunded and reset: as a counter in one piece."""
    rule = {"name": "all", "limits": "20/hour", "algorithm": "fixed_window", "spread": {"shards": 8}}

    async def scenario() -> None:
        async with Limiter.open(f"{cluster_setup.url}?{PATIENT}", [rule], deny_cache_mb=0) as limiter:
            request = Request(path="/")
            verdict = await limiter.check(request, cost=20)
            assert (verdict.allowed, verdict.remaining) == (True, 0)
            assert not (await limiter.check(request)).allowed
            await limiter.refund(verdict, 15)
            assert (await limiter.peek(request, cost=0)).remaining == 15
            async with limiter.reserve(request, cost=10) as reservation:
                reservation.settle(actual=12)
            assert (await limiter.peek(request, cost=0)).remaining == 3
            await limiter.reset(request)
            assert (await limiter.peek(request, cost=0)).remaining == 20

    asyncio.run(scenario())
    keys = [key for server in cluster_setup.primaries() for key in server.contents()]
    assert not [key for key in keys if b"|#12" in key and b"|~" not in key]
