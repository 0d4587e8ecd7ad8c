"""Primaries that die under load, and servers that lose data: all checks are answered, and limits recover soon."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

import pytest
from tests.chaos.load import Load, share
from tests.support.sentinel import NAME
from tests.support.waiting import wait_until

from headgate import Limiter, Request
from headgate.adapters.redis.topology import slot_of
from headgate.core.decision import Source

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.chaos.conftest import Place
    from tests.chaos.figures import Figures
    from tests.support.cluster import ClusterSetup
    from tests.support.sentinel import SentinelSetup
    from tests.support.valkey import Server

_RATE: Final = 500
_AMOUNT: Final = 300
_KEYS: Final = 4
_LIMIT: Final = f"{_AMOUNT}/day"
_WITHOUT_A_WORD: Final = 3.0
"""Seconds that we may need beyond what the servers themselves take."""
_RECOVERED: Final = 4.0


async def _failover(
    case: str, url: str, fail: Callable[[], None], promoted: Callable[[], object], figures: Figures, subject: str = ""
) -> None:
    """Lose a server under load, wait until the others have another, and hold the answers against the limits."""
    async with Limiter.open(url, deny_cache_mb=0) as limiter:
        await limiter.hit("first", "1000/hour")
        async with Load(
            lambda number: limiter.hit(f"{subject}{number % _KEYS}", _LIMIT, algorithm="fixed_window"), _RATE
        ) as load:
            await asyncio.sleep(0.5)
            began = time.perf_counter()
            await asyncio.to_thread(fail)
            await asyncio.to_thread(wait_until, promoted, "another primary is there")
            elected = time.perf_counter()
            await asyncio.sleep(_RECOVERED)
    assert load.errors == []
    lost = [sample.asked for sample in load.between(began, elected + 60) if sample.source is not Source.STORE]
    assert lost, "no check was degraded"
    admitted = Counter(s.number % _KEYS for s in load.samples if s.source is Source.STORE and s.allowed)
    waits = [sample.wait - sample.queued for sample in load.between(began, elected + 60)]
    figures.note(case, "another primary after", elected - began, "s")
    figures.check(case, "enforcing again, after that", max(0.0, max(lost) - elected), "s", _WITHOUT_A_WORD)
    figures.check(case, "p99.9 of waits, machine aside", 1000 * share(waits, 0.999), "ms", 75)
    figures.note(case, "longest wait", 1000 * max(waits), "ms")
    figures.check(case, "admitted by the store, times the limit", max(admitted.values()) / _AMOUNT, "", 2)


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_a_primary_that_sentinels_watch(sentinel_setup: SentinelSetup, figures: Figures, how: str) -> None:
    """When a watched primary is lost, its successor counts within three seconds of being named."""
    lost = sentinel_setup.primary()
    asyncio.run(
        _failover(
            f"Sentinel, primary {how}",
            sentinel_setup.url,
            lost.kill if how == "killed" else lost.freeze,
            lambda: sentinel_setup.primary() is not lost,
            figures,
        )
    )


def test_a_planned_failover(sentinel_setup: SentinelSetup, figures: Figures) -> None:
    """After SENTINEL FAILOVER the old primary takes writes for seconds; hardly one of them is a check."""
    case, old = "Sentinel, planned failover", sentinel_setup.primary()
    for sentinel in sentinel_setup.sentinels:  # as they are by default
        sentinel.ask("SENTINEL", "DEBUG", "publish-period", "2000", "info-period", "1000")

    async def scenario() -> None:
        async with Limiter.open(sentinel_setup.url, deny_cache_mb=0) as limiter:
            await limiter.hit("first", "1000/hour")
            async with Load(
                lambda number: limiter.hit(f"p{number % _KEYS}", "1500/day", algorithm="fixed_window"), _RATE
            ) as load:
                await asyncio.sleep(0.5)
                await asyncio.to_thread(sentinel_setup.sentinels[0].ask, "SENTINEL", "FAILOVER", NAME)
                await asyncio.to_thread(wait_until, lambda: sentinel_setup.primary() is not old, "another primary")
                await asyncio.sleep(15)
        assert load.errors == []
        assert {sample.source for sample in load.samples} == {Source.STORE}
        admitted = Counter(s.number % _KEYS for s in load.samples if s.allowed)
        assert min(admitted.values()) >= 1500
        figures.check(case, "admitted by the store, times the limit", max(admitted.values()) / 1500, "", 1.15)

    try:
        asyncio.run(scenario())
    finally:
        sentinel_setup.heal()


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_a_primary_of_a_cluster(cluster_setup: ClusterSetup, figures: Figures, how: str) -> None:
    """When a cluster loses a primary, its replica counts within three seconds of taking over."""
    subject = "{victims}"
    slot = slot_of(subject)
    lost = cluster_setup.node_of(slot)
    asyncio.run(
        _failover(
            f"Cluster, primary {how}",
            cluster_setup.url,
            lost.kill if how == "killed" else lost.freeze,
            lambda: cluster_setup.node_of(slot) is not lost and "cluster_state:ok" in _info(cluster_setup, slot),
            figures,
            subject,
        )
    )


def _info(cluster: ClusterSetup, slot: int) -> str:
    return cluster.node_of(slot).text("CLUSTER", "INFO")


def test_a_ring_that_loses_a_server(ring: Place, figures: Figures) -> None:
    """A frozen server of a ring degrades only its own counters, and checks over two servers wait no longer."""
    case = "Ring, one of three frozen"
    rules = [
        {"name": "user", "per": "user", "limits": "1000000/day", "on_store_error": "deny"},
        {"name": "address", "per": "ip", "limits": "1000000/day"},
    ]

    async def scenario() -> Load:
        async with Limiter.open(ring.url, rules) as limiter:
            lost = {n for n in range(60) if limiter.store.store.store.topology.shard_of(f"rl:{{u=u{n}}}:user") == 0}  # type: ignore[attr-defined] # looks inside
            assert lost
            await limiter.check(Request(user="first", ip="192.0.2.1"))
            async with Load(
                lambda number: limiter.check(Request(user=f"u{number % 60}", ip=f"192.0.2.{number % 59}")), _RATE
            ) as load:
                await asyncio.sleep(0.5)
                ring.servers[0].freeze()
                began = time.perf_counter()
                await asyncio.sleep(_RECOVERED)
                ring.servers[0].thaw()
            during = load.between(began + 1, began + _RECOVERED)
            assert {s.source for s in during if s.number % 60 in lost} == {Source.DEGRADED_DENY}
            others = {s.source for s in during if s.number % 60 not in lost}
            assert others == {Source.STORE, Source.DEGRADED_ALLOW}
            waits = [s.wait - s.queued for s in load.between(began, began + _RECOVERED)]
            figures.note(case, "longest wait", 1000 * max(waits), "ms")
            figures.check(case, "p99.9 of waits, machine aside", 1000 * share(waits, 0.999), "ms", 75)
            return load

    assert asyncio.run(scenario()).errors == []


@pytest.mark.parametrize("what", ["SCRIPT FLUSH", "FLUSHALL", "restart"])
def test_a_server_that_forgets(valkey: Server, figures: Figures, what: str) -> None:
    """A server that lost its scripts, its keys or its life goes on counting; a limit is given twice at most."""

    async def scenario() -> None:
        async with Limiter.open(valkey.url, deny_cache_mb=0) as limiter:
            await limiter.hit("first", "1000/hour")
            async with Load(
                lambda number: limiter.hit(f"k{number % _KEYS}", _LIMIT, algorithm="fixed_window"), _RATE
            ) as load:
                await asyncio.sleep(0.5)
                await asyncio.to_thread(valkey.restart if what == "restart" else lambda: valkey.ask(*what.split()))
                ended = time.perf_counter()
                await asyncio.sleep(_RECOVERED)
        assert load.errors == []
        if what != "restart":
            assert {sample.source for sample in load.samples} == {Source.STORE}
        assert {sample.source for sample in load.between(ended + 2, ended + 60)} == {Source.STORE}
        admitted = Counter(s.number % _KEYS for s in load.samples if s.source is Source.STORE and s.allowed)
        bar = 1 if what == "SCRIPT FLUSH" else 2
        figures.check(what, "admitted by the store, times the limit", max(admitted.values()) / _AMOUNT, "", bar)
        assert min(admitted.values()) >= _AMOUNT

    asyncio.run(scenario())
