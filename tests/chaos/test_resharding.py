"""Slots that move from one node of a cluster to another while requests for them keep coming."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Final

import pytest
from tests.chaos.load import Load, share

from headgate import Limiter, Request
from headgate.adapters.redis.topology import slot_of
from headgate.core.decision import Source

if TYPE_CHECKING:
    from tests.chaos.figures import Figures
    from tests.support.cluster import ClusterSetup
    from tests.support.valkey import Server

_PATIENT: Final = "?deadline_ms=5000"
_AMOUNT: Final = 400
_RATE: Final = 500
_USERS: Final = 8
RULES: Final = {
    "rules": [
        {"name": "short", "per": "user", "limits": f"{_AMOUNT}/day", "algorithm": "fixed_window", "layer": "a"},
        {"name": "long", "per": "user", "limits": f"{2 * _AMOUNT}/day", "algorithm": "token_bucket", "layer": "b"},
        {"name": "log", "per": "user", "limits": f"{3 * _AMOUNT}/day", "algorithm": "sliding_window_log", "layer": "c"},
    ]
}


def _keys(server: Server, slot: int) -> list[bytes]:
    keys = server.ask("CLUSTER", "GETKEYSINSLOT", str(slot), "100")
    assert isinstance(keys, list)
    return sorted(keys)


async def _used(limiter: Limiter, request: Request) -> dict[str, int]:
    """What is counted for a request, by rule."""
    findings = (await limiter.peek(request, cost=0)).findings
    return {finding.rule.name: finding.hit.meter.amount - finding.decision.remaining for finding in findings}


def _move_bit_by_bit(cluster: ClusterSetup, slot: int) -> None:
    """Move a slot so that for a while one of its keys is already there and the others are not."""
    source = cluster.node_of(slot)
    to = next(node for node in cluster.primaries() if node is not source)
    keys = _keys(source, slot)
    cluster.begin_move(slot, to)
    for key in keys:
        cluster.move_key(slot, key)
    cluster.finish_move(slot)


@pytest.mark.parametrize("patience", ["", _PATIENT], ids=["usual deadline", "patient"])
def test_slots_that_move(cluster_setup: ClusterSetup, figures: Figures, patience: str) -> None:
    """While slots move, key by key, every request is answered by the store, and no limit is exceeded."""
    case = f"slots moved under load, {'patient' if patience else 'deadline 50 ms'}"

    async def scenario() -> None:
        async with Limiter.open(cluster_setup.url + patience, RULES, deny_cache_mb=0) as limiter:
            async with Load(lambda number: limiter.check(Request(user=f"u{number % _USERS}")), _RATE) as load:
                await asyncio.sleep(0.5)
                for user in range(_USERS):
                    await asyncio.to_thread(_move_bit_by_bit, cluster_setup, slot_of(f"{{u=u{user}}}"))
                await asyncio.sleep(_AMOUNT * _USERS / _RATE)
            assert load.errors == []
            await _judge(limiter, load)

    async def _judge(limiter: Limiter, load: Load) -> None:
        degraded = [sample for sample in load.samples if sample.source is not Source.STORE]
        waits = [sample.wait for sample in load.samples]
        admitted = Counter(s.number % _USERS for s in load.samples if s.source is Source.STORE and s.allowed)
        figures.note(case, "checks", len(load.samples), "")
        figures.note(case, "longest wait", 1000 * max(waits), "ms")
        figures.note(case, "p99.9 of waits", 1000 * share(waits, 0.999), "ms")
        figures.check(case, "not answered by the store", len(degraded), "", 0 if patience else len(waits) // 100)
        figures.check(case, "admitted over a limit", max(admitted.values()) - _AMOUNT, "", 0)
        for user in range(_USERS):
            assert await _used(limiter, Request(user=f"u{user}")) == {"short": _AMOUNT, "long": _AMOUNT, "log": _AMOUNT}

    asyncio.run(scenario())


def test_a_request_whose_keys_are_in_two_places(cluster_setup: ClusterSetup, figures: Figures) -> None:
    """Half moved, the counters of one user are still taken all or none, by one question each."""
    request = Request(user="torn")
    slot = slot_of("{u=torn}")
    source = cluster_setup.node_of(slot)
    to = next(node for node in cluster_setup.primaries() if node is not source)

    async def scenario() -> None:
        async with Limiter.open(cluster_setup.url + _PATIENT, RULES, deny_cache_mb=0) as limiter:
            for _ in range(10):
                await limiter.check(request)
            cluster_setup.begin_move(slot, to)
            cluster_setup.move_key(slot, _keys(source, slot)[0])
            verdicts = await asyncio.gather(*[limiter.check(request) for _ in range(2 * _AMOUNT)])
            assert {verdict.source for verdict in verdicts} == {Source.STORE}
            admitted = 10 + sum(verdict.allowed for verdict in verdicts)
            figures.check("half of a user's keys moved", "admitted over the limit", admitted - _AMOUNT, "", 0)
            verdict = await limiter.check(request)
            await limiter.refund(verdict)
            cluster_setup.finish_move(slot)
            assert await _used(limiter, request) == {"short": admitted, "long": admitted, "log": admitted}

    asyncio.run(scenario())
