"""Makes stores, feeds and counter copies from addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.adapters.redis.address import StoreAddress
from headgate.adapters.redis.cluster import Cluster
from headgate.adapters.redis.counter_copies import CounterCopies
from headgate.adapters.redis.feed import SECONDS, RedisFeed
from headgate.adapters.redis.sentinel import Sentinel
from headgate.adapters.redis.store import RedisStore
from headgate.adapters.redis.timeouts import Timeouts
from headgate.adapters.redis.topology import OneServer, Ring

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.adapters.redis.address import ServerAddress
    from headgate.adapters.redis.topology import Topology
    from headgate.core.units import Micros


def store_at(
    url: str,
    clock: Callable[[], Micros] | None = None,
    least_ttl_seconds: float = 0,
    max_wait: float | None = None,
) -> RedisStore:
    """The store at a URL, as `RedisStore` describes it. Nothing is connected yet."""
    address = StoreAddress.parse(url)
    return RedisStore(lambda: _topology(address), clock, least_ttl_seconds, max_wait)


def store_on(
    server: ServerAddress, clock: Callable[[], Micros] | None = None, max_wait: float | None = None
) -> RedisStore:
    """The store on one server. Nothing is connected yet."""
    return RedisStore(lambda: OneServer.at(server), clock, max_wait=max_wait)


def feed_at(url: str, seconds: float = SECONDS) -> RedisFeed:
    """The feed at a URL, as `RedisFeed` describes it. Nothing is connected yet."""
    return RedisFeed(_topology(StoreAddress.parse(url)), seconds)


def feed_on(server: ServerAddress) -> RedisFeed:
    """The feed on one server. Nothing is connected yet."""
    return RedisFeed(OneServer.at(server))


def copies_at(url: str) -> CounterCopies:
    """Copies of the counters at a URL. Nothing is connected yet."""
    return CounterCopies(_topology(StoreAddress.parse(url)))


def copies_on(server: ServerAddress) -> CounterCopies:
    """Copies of the counters on one server. Nothing is connected yet."""
    return CounterCopies(OneServer.at(server))


def _topology(address: StoreAddress) -> Topology:
    timeouts = Timeouts(address.deadline, address.probe_every)
    if address.kind == "sentinel":
        return Sentinel(address.servers, address.name, address.primary, timeouts)
    if address.kind == "cluster":
        return Cluster(address.servers, timeouts)
    if address.kind == "ring":
        return Ring(address.servers, timeouts)
    return OneServer.at(address.servers[0], timeouts)
