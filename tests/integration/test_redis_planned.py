"""Changes of a primary that lose no connection: a planned failover, and a cluster node that was cut off."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.test_redis_sentinel import PRIMARY, Actors, _at
from tests.support.sentinel import NAME
from tests.support.waiting import wait_until_async

from headgate.adapters.redis import feed_at, sentinel_watch, store_at
from headgate.adapters.redis.topology import slot_of
from headgate.core.decision import Hit, Source
from headgate.core.limit import Rate
from headgate.core.meter import Algorithm, Meter
from headgate.errors import StoreError
from headgate.ports import Announcement, Position

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.cluster import ClusterSetup
    from tests.support.sentinel import SentinelSetup
    from tests.support.valkey import Server

_KEY = "rl:{u=planned}:r:fw1d"
_HIT = Hit(_KEY, Meter(Rate(1_000_000, 86_400_000_000), Algorithm.FIXED_WINDOW), 1)


@pytest.fixture
def undemoted(sentinel_setup: SentinelSetup) -> Iterator[SentinelSetup]:
    """Sentinels that leave an old primary as it is for minutes after a planned failover; by default for ten seconds."""
    for sentinel in sentinel_setup.sentinels:
        sentinel.ask("SENTINEL", "DEBUG", "publish-period", "60000")
    yield sentinel_setup
    sentinel_setup.heal()


def _has_key(server: Server) -> bool:
    return server.ask("EXISTS", _KEY) == 1


def test_a_planned_failover_is_followed(undemoted: SentinelSetup, caplog: pytest.LogCaptureFixture) -> None:
    """After SENTINEL FAILOVER checks go to the new primary although the old one still takes them, and none is lost."""
    caplog.set_level(logging.INFO, "headgate")
    old = undemoted.primary()

    async def scenario() -> None:
        store = store_at(f"{undemoted.url}?deadline_ms=5000")
        await store.take([_HIT])
        await asyncio.to_thread(undemoted.sentinels[0].ask, "SENTINEL", "FAILOVER", NAME)
        await wait_until_async(lambda: undemoted.primary() is not old, interval=0.05)
        new = undemoted.primary()
        await asyncio.to_thread(new.ask, "DEL", _KEY)

        async def is_counted_there() -> bool:
            decisions = [taken for (taken,) in await asyncio.gather(*[store.take([_HIT]) for _ in range(50)])]
            assert {decision.source for decision in decisions} == {Source.STORE}
            return _has_key(new)

        await wait_until_async(is_counted_there, interval=0.01)
        assert "role:master" in old.text("INFO", "replication"), "it was demoted; then its replies say so"
        await store.close()

    asyncio.run(asyncio.wait_for(scenario(), 60))
    (line,) = [record.getMessage() for record in caplog.records if "primary changed" in record.getMessage()]
    assert line.startswith(f"primary changed: redis {NAME} (by Sentinel), from 127.0.0.1:{old.port} to 127.0.0.1:")


def test_a_message_is_enough_to_follow(undemoted: SentinelSetup, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentinels publish that the primary changes; nothing is asked by the clock here."""
    monkeypatch.setattr(sentinel_watch, "_SECONDS", 600.0)
    old = undemoted.primary()

    async def scenario() -> None:
        store = store_at(f"{undemoted.url}?deadline_ms=5000")
        await store.take([_HIT])
        topology: Any = store.topology
        watch = topology._watch
        await wait_until_async(lambda: len([*filter(None, watch._subscribed.values())]) == 3, interval=0.02)
        await wait_until_async(lambda: watch._timer is not None, interval=0.02)
        await asyncio.to_thread(undemoted.sentinels[0].ask, "SENTINEL", "FAILOVER", NAME)
        await wait_until_async(lambda: topology._in_use.port != old.port, interval=0.05)
        await store.take([_HIT])
        assert "role:master" in old.text("INFO", "replication"), "it was demoted; then its replies say so"
        await store.close()

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_the_feed_follows_a_planned_failover(undemoted: SentinelSetup) -> None:
    """What is announced on the new primary arrives, and what is written goes there."""
    old = undemoted.primary()

    async def scenario() -> None:
        feed, writer = feed_at(undemoted.url), feed_at(undemoted.url)
        await writer.announce(Announcement(0, Position("a", 1, "x"), ()))
        listening = feed.announcements()
        assert await anext(listening) is None
        await asyncio.to_thread(undemoted.sentinels[0].ask, "SENTINEL", "FAILOVER", NAME)
        with pytest.raises(Exception, match="the connection to redis was lost"):  # which has the subscriber come again
            await anext(listening)
        await wait_until_async(lambda: undemoted.primary() is not old, interval=0.05)
        new = undemoted.primary()
        await wait_until_async(lambda: _announced(writer, new), interval=0.05)
        await feed.close()
        await writer.close()

    async def _announced(writer: object, new: Server) -> bool:
        with suppress(StoreError):  # its connection may be lost just now, as the notifier expects
            await writer.announce(Announcement(1, Position("a", 2, "y"), ()))  # type: ignore[attr-defined] # a feed
        return new.ask("HGET", "hg:{control}:position", "number") == b"2"

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_sentinels_that_allow_no_subscription_are_asked(caplog: pytest.LogCaptureFixture) -> None:
    """Without permission to subscribe a new primary is found by asking, and the log says so once for each sentinel."""
    caplog.set_level(logging.INFO, "headgate")

    async def scenario() -> None:
        async with Actors() as actors:
            old, new = await actors.play({b"ROLE": PRIMARY}), await actors.play({b"ROLE": PRIMARY})
            answers = [_at(old), _at(old)]
            url = await actors.url(*answers)
            topology = store_at(url).topology
            await topology._find()  # type: ignore[attr-defined] # looks inside
            answers[0].update(_at(new))
            answers[1].update(_at(new))
            await wait_until_async(lambda: topology._in_use.port == new, interval=0.05)  # type: ignore[attr-defined] # looks inside
            await topology.close()

    asyncio.run(asyncio.wait_for(scenario(), 60))
    lines = [record.getMessage() for record in caplog.records if "no subscription" in record.getMessage()]
    assert len(lines) == 2
    assert "polling it every 2 s instead" in lines[0]


def test_one_of_two_sentinels_moves_nothing() -> None:
    """While as many sentinels name the server in use as another, it stays in use."""

    async def scenario() -> None:
        async with Actors() as actors:
            old, new = await actors.play({b"ROLE": PRIMARY}), await actors.play({b"ROLE": PRIMARY})
            answers = [_at(old), _at(old)]
            topology = store_at(await actors.url(*answers)).topology
            await topology._find()  # type: ignore[attr-defined] # looks inside
            answers[0].update(_at(new))
            assert not await topology._follow()  # type: ignore[attr-defined] # looks inside
            answers[1].update(_at(new))
            assert await topology._follow()  # type: ignore[attr-defined] # looks inside
            await topology.close()

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_a_node_that_was_cut_off_is_left(cluster_setup: ClusterSetup, caplog: pytest.LogCaptureFixture) -> None:
    """When a replica has taken over from a node that does not know it, checks follow the higher epoch."""
    caplog.set_level(logging.INFO, "headgate")
    slot = slot_of(_KEY)
    old = cluster_setup.node_of(slot)
    new = cluster_setup.replica_of(old)

    async def scenario() -> None:
        store = store_at(f"{cluster_setup.url}?deadline_ms=5000")
        await store.connect()  # reads the slot map before the change, so that the change is one
        await store.take([_HIT])
        old.ask("CONFIG", "SET", "cluster-node-timeout", "600000")  # it takes itself for well
        old.ask("DEBUG", "DROP-CLUSTER-PACKET-FILTER", "-2")
        new.ask("CLUSTER", "FAILOVER", "TAKEOVER")
        await wait_until_async(lambda: "role:master" in new.text("INFO", "replication"), interval=0.05)
        new.ask("DEL", _KEY)

        async def is_counted_there() -> bool:
            await store.take([_HIT])
            return _has_key(new)

        await wait_until_async(is_counted_there, interval=0.05)
        assert "myself,master" in old.text("CLUSTER", "NODES"), "it noticed; then it redirects"
        await store.close()

    try:
        asyncio.run(asyncio.wait_for(scenario(), 60))
    finally:
        old.ask("DEBUG", "DROP-CLUSTER-PACKET-FILTER", "-1")
        old.ask("CONFIG", "SET", "cluster-node-timeout", "1000")
        cluster_setup.heal()
    assert any(record.getMessage().startswith("slot map changed: redis cluster, epoch ") for record in caplog.records)
