"""From an address to a store: counters in memory here, on a server in `shared_stores`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from headgate.adapters.clock import wall_clock
from headgate.adapters.memory import MemoryCache, MemoryFeed, MemoryStore
from headgate.dataplane.deny_cache import DEFAULT_MEGABYTES
from headgate.wiring.memory_address import memory_address, memory_options
from headgate.wiring.regions import NO_REGIONS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from headgate.adapters.redis import RedisStore
    from headgate.core.failure_policy import FailurePolicy
    from headgate.core.units import Micros
    from headgate.dataplane.hot_counters import HotCounters
    from headgate.ports import Cache, CounterStore, Feed
    from headgate.wiring.regions import Regions

T = TypeVar("T")


class Counters(NamedTuple):
    """What is at a store's address: counters, the feed of changes, and a cache that processes share."""

    store: CounterStore
    feed: Feed
    cache: Cache
    shared: RedisStore | None = None
    """The Redis store inside `store`, if there is one."""
    hot: HotCounters | None = None
    """Which counters are hot, if they are on a server."""

    def shedding_for(self) -> float:
        """For how many seconds checks have been shed; 0 if none are."""
        return 0.0 if self.shared is None else self.shared.load.shedding_for


def open_counters(
    url: str,
    clock: Callable[[], Micros] = wall_clock,
    data_dir: Path | None = None,
    max_wait: float | None = None,
    *,
    deny_cache_mb: int = DEFAULT_MEGABYTES,
    processes: int = 1,
    leases: bool = True,
    regions: Regions = NO_REGIONS,
) -> Counters:
    """Counters, feed and cache at an address. ``memory://?max_counters=100000&when_full=deny`` needs no server.

    On a server, a check waits up to `max_wait` seconds for room in flight (None: until there is room), the
    deny cache has `deny_cache_mb` megabytes, at least `processes` processes count there, and `leases` of hot
    counters are held here.
    """
    address = memory_address(url)
    if address is not None:
        return Counters(MemoryStore(clock, *memory_options(address)), MemoryFeed(), MemoryCache(clock))
    from headgate.wiring import shared_stores  # noqa: PLC0415 (a store in memory needs no Redis)

    return shared_stores.open_shared(
        url,
        clock,
        data_dir,
        max_wait,
        deny_cache_mb=deny_cache_mb,
        processes=processes,
        leases=leases,
        regions=regions,
    )


def open_store(
    url: str,
    clock: Callable[[], Micros] = wall_clock,
    data_dir: Path | None = None,
    *,
    deny_cache_mb: int = DEFAULT_MEGABYTES,
    leases: bool = True,
    regions: Regions = NO_REGIONS,
) -> CounterStore:
    """The counters at an address that `open_counters` takes."""
    processes = 1
    if memory_address(url) is None:
        from headgate.wiring import shared_stores  # noqa: PLC0415 (as above)

        processes = shared_stores.processes_of_this_program()
    opened = open_counters(
        url, clock, data_dir, deny_cache_mb=deny_cache_mb, processes=processes, leases=leases, regions=regions
    )
    return opened.store


def blocking_store(
    url: str,
    clock: Callable[[], Micros] = wall_clock,
    *,
    deny_cache_mb: int = DEFAULT_MEGABYTES,
    regions: Regions = NO_REGIONS,
) -> CounterStore:
    """The store at an address that `open_store` takes, for programs without an event loop."""
    from headgate.wiring import shared_stores  # noqa: PLC0415 (as above)

    return shared_stores.open_blocking(url, clock, deny_cache_mb, regions)


def layer(store: object, kind: type[T]) -> T | None:
    """The store of a kind among those that wrap each other, the outermost first."""
    return store if store is None or isinstance(store, kind) else layer(getattr(store, "store", None), kind)


def failure_policy(url: str) -> FailurePolicy | None:
    """The failure policy of bare keys on the store at an address; None in memory, which does not fail."""
    if memory_address(url) is not None:
        return None
    from headgate.wiring import shared_stores  # noqa: PLC0415 (as above)

    return shared_stores.failure_policy(url)
