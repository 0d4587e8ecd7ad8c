"""The servers that other tests stand on do what those tests believe."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import hiredis
import pytest
from tests.support.valkey import Server, free_port
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.cluster import ClusterSetup
    from tests.support.sentinel import SentinelSetup

KEY = "{tag}:counter"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path / "server", free_port())
    yield server
    server.kill()


@pytest.fixture
def slot(cluster_setup: ClusterSetup) -> int:
    """Where `KEY` lives."""
    return int(str(cluster_setup.nodes[0].ask("CLUSTER", "KEYSLOT", KEY)))


def elsewhere(cluster: ClusterSetup, slot: int) -> Server:
    """A primary that does not serve the slot."""
    return next(node for node in cluster.primaries() if node is not cluster.node_of(slot))


def test_a_killed_server_comes_back_empty_in_the_same_place(server: Server) -> None:
    """A server is lost with its memory, refuses connections while it is, and is found again where it was."""
    server.ask("SET", KEY, "1")
    server.kill()
    with pytest.raises(ConnectionRefusedError):
        server.ask("PING")
    server.restart()
    assert server.ask("GET", KEY) is None


def test_a_frozen_server_keeps_what_it_knows(server: Server) -> None:
    """A frozen server does not answer; thawed, it goes on with all that it had."""
    server.ask("SET", KEY, "1")
    server.freeze()
    assert not server.answers
    server.thaw()
    assert server.ask("GET", KEY) == b"1"


def test_servers_do_not_outlive_the_test_run(tmp_path: Path) -> None:
    """Even a run that is killed leaves no server behind, not even a frozen one."""
    run = (
        "import os, pathlib, signal; from tests.support.valkey import Server\n"
        f"server = Server(pathlib.Path({str(tmp_path / 'server')!r})); server.freeze()\n"
        "print(server.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    root = Path(__file__).parents[2]
    ran = subprocess.run(  # noqa: S603 (our own words)
        [sys.executable, "-c", run], cwd=root, stdout=subprocess.PIPE, text=True, check=False
    )

    def is_gone() -> bool:
        try:
            os.kill(int(ran.stdout), 0)
        except ProcessLookupError:
            return True
        return False

    wait_until(is_gone, "the server is gone")


def test_sentinels_agree_on_a_primary(sentinel_setup: SentinelSetup) -> None:
    """The primary that the sentinels name takes writes, and two replicas follow it."""
    primary = sentinel_setup.primary()
    primary.ask("SET", KEY, "1")
    for replica in sentinel_setup.replicas():
        wait_until(partial(replica.ask, "GET", KEY), "a replica has what was written")
        with pytest.raises(hiredis.ReplyError, match="READONLY"):
            replica.ask("SET", KEY, "2")


def test_sentinels_elect_another_primary(sentinel_setup: SentinelSetup) -> None:
    """When the primary is killed, the sentinels make a replica primary; the old one comes back as a replica."""
    lost = sentinel_setup.primary()
    lost.kill()
    wait_until(lambda: sentinel_setup.primary() is not lost, "the sentinels name another primary")
    sentinel_setup.primary().ask("SET", KEY, "1")
    sentinel_setup.heal()
    assert lost in sentinel_setup.replicas()
    wait_until(lambda: lost.ask("GET", KEY) == b"1", "the old primary follows the new one")


def test_a_frozen_primary_is_replaced(sentinel_setup: SentinelSetup) -> None:
    """A primary that is there but silent is replaced too."""
    lost = sentinel_setup.primary()
    lost.freeze()
    wait_until(lambda: sentinel_setup.primary() is not lost, "the sentinels name another primary")


def test_a_sentinel_that_was_frozen_watches_again(sentinel_setup: SentinelSetup) -> None:
    """Two sentinels are enough to name the primary while the third is frozen, and it joins them again."""
    third = sentinel_setup.sentinels[2]
    third.freeze()
    primary = sentinel_setup.primary()
    sentinel_setup.heal()
    assert third.answers
    assert sentinel_setup.primary() is primary


def test_a_cluster_serves_all_slots(cluster_setup: ClusterSetup, slot: int) -> None:
    """Three primaries share the slots; the owner of a slot answers, the others point to it."""
    assert len(cluster_setup.primaries()) == 3
    owner = cluster_setup.node_of(slot)
    owner.ask("SET", KEY, "1")
    with pytest.raises(hiredis.ReplyError, match=f"MOVED {slot} 127.0.0.1:{owner.port}"):
        elsewhere(cluster_setup, slot).ask("GET", KEY)


def test_a_replica_takes_over_in_a_cluster(cluster_setup: ClusterSetup, slot: int) -> None:
    """When a primary is killed, its replica serves its slots; the old primary comes back as a replica."""
    lost = cluster_setup.node_of(slot)
    heir = cluster_setup.replica_of(lost)
    lost.kill()
    wait_until(lambda: heir.ask("SET", KEY, "1") == b"OK", "the replica takes writes")
    cluster_setup.heal()
    assert cluster_setup.node_of(slot) is heir
    assert cluster_setup.replica_of(heir) is lost


def test_a_slot_moves_with_its_keys(cluster_setup: ClusterSetup, slot: int) -> None:
    """In the middle of a move the owner redirects requests for keys it lacks; then it points to the new owner."""
    source, to = cluster_setup.node_of(slot), elsewhere(cluster_setup, slot)
    source.ask("MSET", KEY, "1", "{tag}:left", "2")
    cluster_setup.begin_move(slot, to)
    assert source.ask("GET", KEY) == b"1"
    with pytest.raises(hiredis.ReplyError, match=f"ASK {slot} 127.0.0.1:{to.port}"):
        source.ask("GET", "{tag}:other")
    cluster_setup.move_key(slot, KEY)
    with pytest.raises(hiredis.ReplyError, match="TRYAGAIN"):
        source.ask("MGET", KEY, "{tag}:left")
    cluster_setup.finish_move(slot)
    assert to.ask("MGET", KEY, "{tag}:left") == [b"1", b"2"]
    with pytest.raises(hiredis.ReplyError, match=f"MOVED {slot} 127.0.0.1:{to.port}"):
        source.ask("GET", KEY)


def test_a_slot_moves_without_its_keys(cluster_setup: ClusterSetup, slot: int) -> None:
    """A slot can be moved so that what was counted in it is lost."""
    cluster_setup.node_of(slot).ask("SET", KEY, "1")
    to = elsewhere(cluster_setup, slot)
    cluster_setup.move_slot(slot, to, keys=False)
    assert to.ask("GET", KEY) is None


def test_a_move_that_was_not_finished_is_given_up(cluster_setup: ClusterSetup, slot: int) -> None:
    """A test that leaves a slot half moved does not trouble the next one."""
    source = cluster_setup.node_of(slot)
    cluster_setup.begin_move(slot, elsewhere(cluster_setup, slot))
    cluster_setup.clean()
    assert source.ask("GET", KEY) is None


def test_redis_itself(redis_server: Server) -> None:
    """Where this machine has a Redis of its own, tests can run on it."""
    assert "redis_version" in redis_server.text("INFO", "server")
