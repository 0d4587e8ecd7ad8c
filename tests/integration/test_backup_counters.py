"""Counters in backups: copied out of every set-up of Redis, and back into any other."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest
from tests.support.servers import ring_url

from headgate import Limiter
from headgate.adapters.redis import copies_at
from headgate.cli.commands import run
from headgate.errors import ArchiveError, StoreError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.cluster import ClusterSetup
    from tests.support.postgres import Postgres
    from tests.support.sentinel import SentinelSetup
    from tests.support.valkey import Server

    from headgate.adapters.redis.counter_copies import Restored

USERS = 600  # more than one batch
LIMIT = "5/day"
SLOW = "?deadline_ms=5000"
"""On a busy machine an answer that is late is no outage."""


async def _used(url: str) -> None:
    async with Limiter.open(url) as limiter:
        await asyncio.gather(*[limiter.hit(f"u{number}", LIMIT, 2) for number in range(USERS)])
        await limiter.hit("log", "9/hour", 3, algorithm="sliding_window_log")
        await limiter.hit("forever", "9/hour", algorithm="token_bucket")


async def _remaining(url: str) -> list[int | None]:
    async with Limiter.open(url) as limiter:
        seen = [await limiter.hit(f"u{number}", LIMIT, 1) for number in (0, 1, USERS - 1)]
        seen.append(await limiter.hit("log", "9/hour", 1, algorithm="sliding_window_log"))
        return [verdict.remaining for verdict in seen]


async def _copy(url: str) -> tuple[int, list[bytes]]:
    pieces: list[bytes] = []

    async def sink(piece: bytes) -> None:
        pieces.append(piece)

    copies = copies_at(url)
    try:
        return await copies.read(sink), pieces
    finally:
        await copies.close()


async def _put(url: str, pieces: list[bytes]) -> Restored:
    async def source() -> AsyncIterator[bytes]:
        whole = b"".join(pieces)
        for start in range(0, len(whole), 777):  # in pieces that have nothing to do with what is in them
            yield whole[start : start + 777]

    copies = copies_at(url)
    try:
        return await copies.write(source())
    finally:
        await copies.close()


@pytest.mark.parametrize("kind", ["sentinel", "cluster", "ring"])
def test_counters_travel_between_all_set_ups(request: pytest.FixtureRequest, valkey: Server, kind: str) -> None:
    """What was counted on one server is counted on in another set-up, and the other way round."""
    if kind == "sentinel":
        sentinel: SentinelSetup = request.getfixturevalue("sentinel_setup")
        other = sentinel.url
    elif kind == "cluster":
        cluster: ClusterSetup = request.getfixturevalue("cluster_setup")
        other = cluster.url
    else:
        other = ring_url(request.getfixturevalue("ring_servers"))

    async def go() -> None:
        await _used(valkey.url + SLOW)
        count, pieces = await _copy(valkey.url)
        assert count >= USERS + 2
        assert await _put(other, pieces) == (count, 0, 0)
        assert await _remaining(other + SLOW) == [2, 2, 2, 5]
        again, pieces = await _copy(other)
        valkey.ask("FLUSHALL")
        assert (await _put(valkey.url, pieces)).restored == again
        assert await _remaining(valkey.url + SLOW) == [1, 1, 1, 4]

    asyncio.run(go())


def test_counters_that_are_there_stay(valkey: Server) -> None:
    """A copy never takes back what was counted since: a counter that is there has counted longer."""

    async def go() -> None:
        await _used(valkey.url + SLOW)
        count, pieces = await _copy(valkey.url)
        assert await _remaining(valkey.url + SLOW) == [2, 2, 2, 5]
        assert await _put(valkey.url, pieces) == (0, count, 0)
        assert await _remaining(valkey.url + SLOW) == [1, 1, 1, 4]

    asyncio.run(go())


def test_counters_end_when_they_would_have(valkey: Server) -> None:
    """A restored counter has the time to live that it had left, and one whose time is over is left out."""
    valkey.ask("SET", "rl:h:fw1d:late", "1", "PX", "86400000")
    valkey.ask("SET", "rl:h:fw1d:over", "1", "PX", "86400000")
    valkey.ask("SET", "rl:h:fw1d:always", "1")
    valkey.ask("SET", "another:program", "1")
    count, pieces = asyncio.run(_copy(valkey.url))
    assert count == 3
    copy = bytearray(b"".join(pieces))
    at = copy.index(b"rl:h:fw1d:over") - 12
    copy[at : at + 8] = (1_000).to_bytes(8)  # it ended in 1970
    valkey.ask("FLUSHALL")
    assert asyncio.run(_put(valkey.url, [bytes(copy)])) == (2, 0, 1)
    left = valkey.ask("PTTL", "rl:h:fw1d:late")
    assert isinstance(left, int)
    assert 86_000_000 < left <= 86_400_100
    assert valkey.ask("PTTL", "rl:h:fw1d:always") == -1
    assert set(valkey.contents()) == {b"rl:h:fw1d:late", b"rl:h:fw1d:always"}


def test_nothing_but_counters_gets_into_redis(valkey: Server) -> None:
    """A copy that names other keys, that is cut off, or whose values no server has dumped, is refused."""
    valkey.ask("SET", "rl:h:fw1d:one", "1")
    _, (good,) = asyncio.run(_copy(valkey.url))
    valkey.ask("FLUSHALL")
    for bad in (good.replace(b"rl:h:", b"hg:{c"), good[:-1], b"\xff" * 99, good[:3]):
        with pytest.raises(ArchiveError, match="only counters of headgate are restored to Redis"):
            asyncio.run(_put(valkey.url, [bad]))
    with pytest.raises(StoreError, match="DUMP payload"):
        asyncio.run(_put(valkey.url, [good[:-1] + b"x"]))
    assert valkey.contents() == {}


def test_a_backup_with_counters(
    postgres: Postgres,
    valkey: Server,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With --redis a backup has the counters and restores them; without, a restore asks for none."""
    monkeypatch.setenv("HEADGATE_ARCHIVE_URL", str(tmp_path_factory.mktemp("archive")))
    monkeypatch.setenv("HEADGATE_DATABASE_URL", postgres.new_database())
    monkeypatch.setenv("HEADGATE_REDIS_URL", valkey.url)
    asyncio.run(_used(valkey.url + SLOW))
    assert run(["backup", "--redis", "--json"]) == 0
    counters = json.loads(capsys.readouterr().out)["files"][-1]
    assert counters["name"] == "counters.dump.gz"
    valkey.ask("FLUSHALL")
    assert run(["restore", "latest", "--redis", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["counters"] == {"restored": counters["count"], "kept": 0, "ended": 0}
    assert asyncio.run(_remaining(valkey.url + SLOW)) == [2, 2, 2, 5]
    assert run(["backup"]) == 0
    capsys.readouterr()
    assert run(["restore", "latest", "--redis"]) == 1
    assert "has no counters; restore it without --redis" in capsys.readouterr().err
    monkeypatch.setenv("HEADGATE_REDIS_URL", "memory://")
    assert run(["backup", "--redis"]) == 1
    assert "set HEADGATE_REDIS_URL, or leave out --redis" in capsys.readouterr().err
    monkeypatch.setenv("HEADGATE_REDIS_URL", "redis://127.0.0.1:1")
    assert run(["backup", "--redis"]) == 1
    assert "cannot connect to 127.0.0.1:1" in capsys.readouterr().err
