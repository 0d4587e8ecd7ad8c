"""Stores on a server: Redis at an address, or an embedded Valkey."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from headgate.adapters.blocking import BlockingStore
from headgate.adapters.clock import monotonic_ns, wall_clock
from headgate.adapters.embedded import VALKEY, EmbeddedServer, EmbeddedStore, named_folder
from headgate.adapters.memory import MemoryStore
from headgate.adapters.redis import (
    DirectStore,
    RedisCache,
    RedisHotLists,
    ServerAddress,
    StoreAddress,
    feed_at,
    feed_on,
    is_redis_url,
    store_at,
    store_on,
)
from headgate.core.failure_policy import failure_policy_of
from headgate.core.spread import Spread
from headgate.dataplane.deny_cache import DenyCache
from headgate.dataplane.guarded import Guarded
from headgate.dataplane.hot_counters import HotCounters
from headgate.dataplane.leased import Leased
from headgate.dataplane.local_share import LocalShare
from headgate.dataplane.sharded import Sharded
from headgate.edge.frameworks.gate import workers_of
from headgate.errors import InvalidSettings, short_repr
from headgate.settings import DEFAULT_DATA_DIR, web_concurrency
from headgate.wiring.regions import regional
from headgate.wiring.stores import Counters, open_store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from urllib.parse import SplitResult

    from headgate.adapters.redis import RedisStore
    from headgate.core.denial import Nanos
    from headgate.core.failure_policy import FailurePolicy
    from headgate.core.units import Micros
    from headgate.ports import CounterStore, Feed, SharedStore
    from headgate.wiring.regions import Regions


def open_shared(
    url: str,
    clock: Callable[[], Micros],
    data_dir: Path | None,
    max_wait: float | None,
    *,
    deny_cache_mb: int,
    processes: int,
    leases: bool,
    regions: Regions,
) -> Counters:
    """See `stores.open_counters`; `InvalidSettings` for an address of no kind."""
    # The server's clock decides, not the clocks of its clients; except in tests.
    test_clock = None if clock is wall_clock else clock
    if is_redis_url(url):
        shared = store_at(url, test_clock, max_wait=max_wait)
        parted = shared if shared.topology.is_single_shard else Sharded(shared, shared.server_of, clock)
        guarded = _guarded(regional(parted, regions, clock), clock, processes)
        store = _with_deny_cache(guarded, clock, deny_cache_mb)
        return _counters(store, shared, feed_at(url), _leased(store, guarded, clock) if leases else None)
    server = EmbeddedServer(named_folder(_embedded_address(url), data_dir or DEFAULT_DATA_DIR, "valkey"), VALKEY)
    socket = ServerAddress(path=str(server.socket))
    shared = store_on(socket, test_clock, max_wait)
    guarded = _guarded(regional(shared, regions, clock), clock, processes)
    store = _with_deny_cache(EmbeddedStore(server, guarded), clock, deny_cache_mb)
    return _counters(store, shared, feed_on(socket), _leased(store, guarded, clock) if leases else None)


def _counters(store: CounterStore, shared: RedisStore, feed: Feed, leased: Leased | None) -> Counters:
    hot = None if leased is None else HotCounters(leased, RedisHotLists(shared))
    return Counters(leased or store, feed, RedisCache(shared), shared, hot)


def open_blocking(url: str, clock: Callable[[], Micros], deny_cache_mb: int, regions: Regions) -> CounterStore:
    """See `stores.blocking_store`."""
    # The calling thread answers what is held and known denials itself, so both are in front.
    cached = _with_deny_cache(_blocking_store(url, clock, regions), clock, deny_cache_mb, blocks=True)
    processes = processes_of_this_program()
    return Leased(cached, _nanos(clock), processes=lambda: processes, blocks=True)


def failure_policy(url: str) -> FailurePolicy | None:
    """What keys without a rule do when the store at `url` fails; None without a server of that name."""
    if not is_redis_url(url):
        return None
    address = StoreAddress.parse(url)
    return failure_policy_of(address.on_store_error, on_overload=address.on_overload, spread=Spread(address.spread))


def processes_of_this_program() -> int:
    """How many processes a web server runs of this program, as far as its command line and environment say."""
    return max(workers_of(sys.argv), web_concurrency())


def _blocking_store(url: str, clock: Callable[[], Micros], regions: Regions) -> CounterStore:
    slow_path = BlockingStore(lambda: open_store(url, clock, deny_cache_mb=0, regions=regions, leases=False))
    if not is_redis_url(url) or clock is not wall_clock or regions.name is not None:
        return slow_path
    address = StoreAddress.parse(url)
    server = address.servers[0]
    if address.kind or server.tls is not None:
        return slow_path
    return DirectStore(server, address.deadline, clock, slow_path)


def _with_deny_cache(
    store: CounterStore, clock: Callable[[], Micros], megabytes: int, *, blocks: bool = False
) -> CounterStore:
    """The same store behind a deny cache; 0 megabytes is none."""
    return DenyCache(store, _nanos(clock), megabytes, blocks=blocks) if megabytes else store


def _leased(store: CounterStore, guarded: Guarded, clock: Callable[[], Micros]) -> Leased:
    return Leased(store, _nanos(clock), processes=guarded.live_processes)


def _nanos(clock: Callable[[], Micros]) -> Callable[[], Nanos]:
    """The monotonic clock that goes with a clock; in tests it is the same."""
    return monotonic_ns if clock is wall_clock else lambda: clock() * 1_000


def _guarded(store: SharedStore, clock: Callable[[], Micros], processes: int) -> Guarded:
    return Guarded(store, LocalShare(MemoryStore(clock), processes), clock)


def _embedded_address(url: str) -> SplitResult:
    try:
        address = urlsplit(url)
    except (AttributeError, TypeError, ValueError):
        # Text is not repeated: it may hold a password.
        what = "that" if isinstance(url, str) else short_repr(url)
        msg = f"{what} is not the address of a store; write for example memory://"
        raise InvalidSettings(msg) from None
    if address.scheme != "embedded":
        # Only the scheme is named: the rest of an address may hold a password.
        msg = f"{short_repr(address.scheme)} is not a kind of store; write memory://, embedded:// or redis://host:6379"
        raise InvalidSettings(msg)
    return address
