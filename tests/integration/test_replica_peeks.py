"""Peeks that replicas answer, on real servers: stale by their own word, and never what decides."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.support.waiting import wait_until

import headgate.sync
from headgate import Limiter, Request
from headgate.core.decision import Source
from headgate.dataplane.inspection import explain, quota
from headgate.dataplane.limiter import Limiter as DecidingLimiter

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.cluster import ClusterSetup
    from tests.support.sentinel import SentinelSetup
    from tests.support.valkey import Server

_RULES = """
rules:
  - {name: all, per: [global], limits: 1000/hour}
  - {name: each, per: [user], limits: 5/hour, algorithm: fixed_window}
  - {name: bursts, per: [user, endpoint], limits: 9/hour, algorithm: token_bucket}
  - {name: watched, per: [tenant], limits: 7/hour, action: log, algorithm: sliding_window_log}
"""


def _servers(setup: SentinelSetup | ClusterSetup, *, are_primaries: bool) -> list[Server]:
    every = getattr(setup, "nodes", None) or getattr(setup, "servers", [])
    return [server for server in every if ("role:master" in server.text("INFO", "replication")) is are_primaries]


@pytest.mark.parametrize("kind", ["sentinel", "cluster"])
def test_a_replica_answers_a_peek_and_says_so(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """It has what was counted, in every algorithm; no primary runs a script for it, and the next check counts there."""
    setup: SentinelSetup | ClusterSetup = request.getfixturevalue(f"{kind}_setup")
    rules = tmp_path / "rules.yaml"
    rules.write_text(_RULES, encoding="utf-8")
    asked = Request(user="u1", tenant="t1", path="/a")

    async def run() -> None:
        async with Limiter.open(setup.url, rules) as limiter:
            for _ in range(2):
                assert (await limiter.check(asked)).source is Source.STORE
            seen: list[tuple[str, int]] = []

            async def has_all() -> bool:
                verdict = await limiter.peek(asked, cost=0, replica=True)
                seen[:] = [(verdict.source.value, decision.remaining) for decision in verdict.decisions]
                return sorted(remaining for _, remaining in seen) == [3, 7, 998]

            async with asyncio.timeout(60):
                while not await has_all():  # noqa: ASYNC110 (the servers tell no one)
                    await asyncio.sleep(0.01)
            assert {source for source, _ in seen} == {"replica"}
            before = [server.script_calls() for server in _servers(setup, are_primaries=True)]
            verdict = await limiter.peek(asked, cost=4, replica=True)
            assert (verdict.allowed, verdict.source, verdict.as_dict()["source"]) == (False, Source.REPLICA, "replica")
            assert [server.script_calls() for server in _servers(setup, are_primaries=True)] == before
            assert (await limiter.peek(asked, cost=0)).source is Source.STORE
            assert (await limiter.check(asked)).source is Source.STORE

    asyncio.run(run())


@pytest.mark.parametrize("kind", ["sentinel", "cluster"])
def test_without_a_replica_the_primary_answers(kind: str, request: pytest.FixtureRequest) -> None:
    """Replicas that are silent cost a peek their deadlines at most; it says that the store answered."""
    setup: SentinelSetup | ClusterSetup = request.getfixturevalue(f"{kind}_setup")

    async def run() -> None:
        async with Limiter.open(setup.url) as limiter:
            await limiter.hit("u1", "5/hour")
            for replica in _servers(setup, are_primaries=False):
                replica.freeze()
            verdict = await limiter.peek("u1", "5/hour", 0, replica=True)
            assert (verdict.remaining, verdict.source) == (4, Source.STORE)

    asyncio.run(run())


def test_monitoring_reads_replicas_if_the_limiter_may(sentinel_setup: SentinelSetup, tmp_path: Path) -> None:
    """`explain` and `quota` ask a replica; who asks for the primary gets it."""
    rules = tmp_path / "rules.yaml"
    rules.write_text(_RULES, encoding="utf-8")
    asked = Request(user="u1", tenant="t1", path="/a")

    async def run() -> None:
        async with Limiter.open(sentinel_setup.url, rules) as opened:
            limiter = DecidingLimiter(opened.store, opened.snapshots, opened.bare_keys, peeks_replicas=True)
            assert (await explain(limiter, asked))["verdict"]["source"] == "replica"
            assert {entry.as_dict()["source"] for entry in await quota(limiter, asked)} == {"replica", None}
            assert {entry.as_dict()["source"] for entry in await quota(limiter, asked, replica=False)} == {
                "store",
                None,
            }

    asyncio.run(run())


def test_threads_and_servers_without_replicas(sentinel_setup: SentinelSetup, valkey: Server) -> None:
    """A synchronous program may ask for replicas too; where none are known, the server itself answers."""
    with headgate.sync.Limiter.open(sentinel_setup.url) as limiter:
        limiter.hit("u1", "5/hour")
        wait_until(lambda: limiter.peek("u1", "5/hour", 0, replica=True).remaining == 4, "a replica has it")
        assert limiter.peek("u1", "5/hour", 0, replica=True).source is Source.REPLICA
    with headgate.sync.Limiter.open(valkey.url) as limiter:
        limiter.hit("u1", "5/hour")
        verdict = limiter.peek("u1", "5/hour", 0, replica=True)
        assert (verdict.remaining, verdict.source) == (4, Source.STORE)
