"""The recommended configurations in deploy/, read by the servers that they are for."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.cluster import ClusterSetup
from tests.support.optional_servers import find_server
from tests.support.sentinel import NAME, SentinelSetup
from tests.support.valkey import Server
from tests.support.waiting import wait_until

from headgate import Limiter
from headgate.core.decision import Source

if TYPE_CHECKING:
    from collections.abc import Iterator

FILE = Path(__file__).parents[2] / "deploy" / "redis" / "persistence.conf"


def _admitted(url: str, key: str, checks: int) -> int:
    """How many of some checks at once pass a limit of three."""

    async def run() -> int:
        async with Limiter.open(f"{url}?deadline_ms=5000") as limiter:  # beside many other tests servers are slow
            verdicts = await asyncio.gather(*(limiter.hit(key, "3/hour") for _ in range(checks)))
        assert {verdict.source for verdict in verdicts} <= {Source.STORE, Source.DENY_CACHE}
        return sum(verdict.allowed for verdict in verdicts)

    return asyncio.run(run())


@pytest.fixture(params=["valkey", pytest.param("redis", marks=pytest.mark.needs("redis-server"))])
def server(request: pytest.FixtureRequest, servers_folder: Path) -> Iterator[Server]:
    """A server with the recommended settings, of each kind that there is."""
    binary = find_server("redis-server") if request.param == "redis" else None
    made = Server(servers_folder / f"persistent-{request.param}", options=[str(FILE)], binary=binary)
    yield made
    made.kill()


def test_recommended_persistence(server: Server) -> None:
    """A server with the recommended settings forgets nothing that was on its disk, and throws nothing away."""
    wanted = {"appendonly": "yes", "appendfsync": "everysec", "maxmemory-policy": "noeviction"}
    for name, value in wanted.items():
        assert server.ask("CONFIG", "GET", name) == [name.encode(), value.encode()]
    server.ask("SET", "rl:h:fw1d:u1", "3", "EX", "86400")
    server.ask("CONFIG", "SET", "appendfsync", "always")
    server.ask("SET", "rl:h:fw1d:u2", "4", "EX", "86400")  # which brings all before it to the disk
    server.restart()
    assert server.ask("MGET", "rl:h:fw1d:u1", "rl:h:fw1d:u2") == [b"3", b"4"]


@pytest.mark.parametrize("name", ["archiving.conf", "recovery.conf"])
def test_every_setting_of_postgres_has_a_line(name: str) -> None:
    """The files for PostgreSQL consist of comments and settings; tests/chaos/test_point_in_time.py runs them."""
    text = (FILE.parents[1] / "postgres" / name).read_text(encoding="utf-8")
    assert all(not line or line.startswith("#") or " = " in line for line in text.splitlines())


def test_the_recommended_cluster(servers_folder: Path) -> None:
    """Six nodes with the recommended file are a cluster that counts, and goes on counting when a primary is lost."""
    file = FILE.with_name("cluster.conf")
    # Of the file only the time is another one, so that the test need not wait for it.
    folder = servers_folder / "recommended-cluster"
    folder.mkdir()
    setup = ClusterSetup(folder, (str(file), "--cluster-node-timeout", "1000"))
    try:
        for number, node in enumerate(setup.nodes):
            assert node.ask("CONFIG", "GET", "cluster-require-full-coverage") == [
                b"cluster-require-full-coverage",
                b"no",
            ]
            assert _admitted(setup.url, f"before-{number}", 5) == 3
        lost = setup.primaries()[0]
        replica = setup.replica_of(lost)
        lost.kill()
        wait_until(lambda: "role:master" in replica.text("INFO", "replication"), "a replica takes over")
        others = [node for node in setup.nodes if node is not lost]
        survivors = "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in others)

        def is_whole(node: Server) -> bool:
            return "cluster_state:ok" in node.text("CLUSTER", "INFO") and not setup.has_slots(lost, node)

        wait_until(lambda: all(map(is_whole, others)), "every node, of which any may be asked, knows the new primary")
        for number in range(6):
            assert _admitted(survivors, f"before-{number}", 5) == 0
            assert _admitted(survivors, f"after-{number}", 5) == 3
    finally:
        setup.stop()


def test_the_recommended_sentinels(servers_folder: Path) -> None:
    """Three sentinels with the recommended file elect another primary, which headgate finds and counts on."""
    text = FILE.with_name("sentinel.conf").read_text(encoding="utf-8")
    for recommended, here in (
        ("headgate 10.0.0.11 6379 2", f"{NAME} 127.0.0.1 {{port}} 2"),
        ("milliseconds headgate 5000", f"milliseconds {NAME} 500"),  # so that the test need not wait for it
        ("timeout headgate 15000", f"timeout {NAME} 1500"),
        ("syncs headgate 1", f"syncs {NAME} 1"),
        ("port 26379\n", ""),
    ):
        assert recommended in text
        text = text.replace(recommended, here)
    folder = servers_folder / "recommended-sentinels"
    folder.mkdir()
    setup = SentinelSetup(folder, text)
    try:
        assert _admitted(setup.url, "before", 5) == 3
        lost = setup.primary()
        lost.kill()
        wait_until(lambda: setup.primary() is not lost, "the sentinels name another primary")
        wait_until(lambda: "role:master" in setup.primary().text("INFO", "replication"), "it is one")
        assert _admitted(setup.url, "after", 5) == 3
    finally:
        setup.stop()
