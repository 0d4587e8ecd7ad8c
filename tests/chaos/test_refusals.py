"""Servers that refuse for good reasons of their own: full, read-only, locked, or holding something else."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import pytest
from tests.chaos.load import Told
from tests.support.valkey import Server

from headgate import Limiter, StoreError
from headgate.core.decision import Source

if TYPE_CHECKING:
    from pathlib import Path

    from tests.chaos.figures import Figures
    from tests.support.sentinel import SentinelSetup

LIMIT: Final = "1000/hour"
_PATIENCE: Final = 10.0


async def _until_circuit_opens(limiter: Limiter, told: Told) -> str:
    """Ask until the log says that the circuit is open, and why; every answer is a degraded one."""
    async with asyncio.timeout(_PATIENCE):
        while not told.lines:
            verdict = await limiter.hit("k", LIMIT)
            assert (verdict.allowed, verdict.source) == (True, Source.DEGRADED_ALLOW)
            await asyncio.sleep(0.01)
    return told.lines[0][1]


async def _until_back(limiter: Limiter) -> None:
    async with asyncio.timeout(_PATIENCE):
        while (await limiter.hit("k", LIMIT)).source is not Source.STORE:  # noqa: ASYNC110 (callers find out by asking)
            await asyncio.sleep(0.01)


def test_a_server_without_memory_left(valkey: Server) -> None:
    """A server that is full and may evict nothing is unavailable until it has room again."""

    async def scenario() -> None:
        async with Limiter.open(f"{valkey.url}?probe_ms=100") as limiter:
            await _until_back(limiter)
            with Told() as told:
                valkey.ask("CONFIG", "SET", "maxmemory", "1mb")
                assert "OOM" in await _until_circuit_opens(limiter, told)
                valkey.ask("CONFIG", "SET", "maxmemory", "0")
                await _until_back(limiter)

    asyncio.run(scenario())


def test_the_address_of_a_replica(sentinel_setup: SentinelSetup) -> None:
    """Who names a read-only replica gets degraded answers, and a log line that says what is wrong."""

    async def scenario() -> None:
        with Told() as told:
            async with Limiter.open(sentinel_setup.replicas()[0].url) as limiter:
                assert "READONLY" in await _until_circuit_opens(limiter, told)

    asyncio.run(scenario())


@pytest.mark.parametrize(("entry", "reason"), [("", "NOAUTH"), (":wrong@", "WRONGPASS"), ("unknown:x@", "WRONGPASS")])
def test_a_wrong_password(servers_folder: Path, entry: str, reason: str) -> None:
    """Without the right password answers are degraded, and the log says why without naming the password."""
    server = Server(servers_folder / f"locked-{entry[:3]}")
    server.ask("CONFIG", "SET", "requirepass", "right")

    async def scenario() -> None:
        with Told() as told:
            async with Limiter.open(server.url.replace("unix://", f"redis+unix://{entry}")) as limiter:
                line = await _until_circuit_opens(limiter, told)
                assert reason in line
                assert "wrong" not in line.replace("WRONGPASS", "").lower()

    try:
        asyncio.run(scenario())
    finally:
        server.kill()


def test_keys_of_another_program(valkey: Server) -> None:
    """A key that holds something else is an error for who asks for it, however often, and never an outage."""
    valkey.ask("LPUSH", "rl:h:sc1h:foreign", "x")

    async def scenario() -> None:
        async with Limiter.open(f"{valkey.url}?deadline_ms=60000") as limiter:
            with Told() as told:
                for _ in range(1_000):
                    asked = [limiter.hit("foreign", LIMIT), limiter.hit("k", "1000000/hour")]
                    foreign, fine = await asyncio.gather(*asked, return_exceptions=True)
                    assert isinstance(foreign, StoreError)
                    assert not foreign.transient
                    assert not isinstance(fine, BaseException)
                    assert fine.source is Source.STORE
            assert told.lines == []

    asyncio.run(scenario())


def test_a_hundred_thousand_checks_in_one_turn(valkey: Server, figures: Figures) -> None:
    """However many ask at once, those that can be sent are decided by the store, and it stays in use."""
    asked = 101_000

    async def scenario() -> None:
        async with Limiter.open(f"{valkey.url}?deadline_ms=60000", deny_cache_mb=0) as limiter:
            await limiter.hit("first", LIMIT)
            with Told() as told:
                verdicts = await asyncio.gather(*[limiter.hit("k", LIMIT) for _ in range(asked)])
                assert (await limiter.hit("k", LIMIT)).source is Source.STORE
            by_store = [verdict for verdict in verdicts if verdict.source is Source.STORE]
            figures.note("checks of one turn", "asked", len(verdicts), "")
            figures.note("checks of one turn", "answered by the store", len(by_store), "")
            assert len(by_store) > 10_000
            assert sum(verdict.allowed for verdict in by_store) == 1_000
            assert told.lines == []

    asyncio.run(scenario())
