"""From an address to a store: counters in memory here, on a server in `shared_stores`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar
from urllib.parse import parse_qsl, urlsplit

from headgate.adapters.clock import wall_clock
from headgate.adapters.memory import DEFAULT_MAX_COUNTERS, MemoryCache, MemoryFeed, MemoryStore, WhenFull
from headgate.dataplane.deny_cache import DEFAULT_MEGABYTES
from headgate.errors import InvalidSettings, short_repr
from headgate.settings import DEFAULT_DATA_DIR

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from urllib.parse import SplitResult

    from headgate.adapters.redis import RedisStore
    from headgate.core.failure_policy import FailurePolicy
    from headgate.core.units import Micros
    from headgate.ports import Cache, CounterStore, Feed

T = TypeVar("T")
_MAX_COUNTERS: Final = 10**9
_WHOLE: Final = re.compile(r"[0-9]{1,12}")


class Counters(NamedTuple):
    """What is at a store's address: counters, the feed of changes, and a cache that processes share."""

    store: CounterStore
    feed: Feed
    cache: Cache
    shared: RedisStore | None = None
    """The Redis store inside `store`, if there is one."""

    def shedding_for(self) -> float:
        """For how many seconds checks have been shed; 0 if none are."""
        return 0.0 if self.shared is None else self.shared.load.shedding_for


def open_counters(
    url: str,
    clock: Callable[[], Micros] = wall_clock,
    data_dir: Path = DEFAULT_DATA_DIR,
    max_wait: float | None = None,
    *,
    deny_cache_mb: int = DEFAULT_MEGABYTES,
    processes: int = 1,
) -> Counters:
    """Counters, feed and cache at an address. ``memory://?max_counters=100000&when_full=deny`` needs no server.

    On a server, a check waits up to `max_wait` seconds for room in flight (None: until there is room), the
    deny cache has `deny_cache_mb` megabytes, and at least `processes` processes count there.
    """
    address = _memory_address(url)
    if address is not None:
        return Counters(MemoryStore(clock, *_memory_options(address)), MemoryFeed(), MemoryCache(clock))
    from headgate.wiring import shared_stores  # noqa: PLC0415 (a store in memory needs no Redis)

    return shared_stores.open_shared(url, clock, data_dir, max_wait, deny_cache_mb=deny_cache_mb, processes=processes)


def open_store(
    url: str,
    clock: Callable[[], Micros] = wall_clock,
    data_dir: Path = DEFAULT_DATA_DIR,
    *,
    deny_cache_mb: int = DEFAULT_MEGABYTES,
) -> CounterStore:
    """The counters at an address that `open_counters` takes."""
    processes = 1
    if _memory_address(url) is None:
        from headgate.wiring import shared_stores  # noqa: PLC0415 (as above)

        processes = shared_stores.processes_of_this_program()
    return open_counters(url, clock, data_dir, deny_cache_mb=deny_cache_mb, processes=processes).store


def blocking_store(
    url: str, clock: Callable[[], Micros] = wall_clock, *, deny_cache_mb: int = DEFAULT_MEGABYTES
) -> CounterStore:
    """The store at an address that `open_store` takes, for programs without an event loop."""
    from headgate.wiring import shared_stores  # noqa: PLC0415 (as above)

    return shared_stores.open_blocking(url, clock, deny_cache_mb)


def layer(store: object, kind: type[T]) -> T | None:
    """The store of a kind among those that wrap each other, the outermost first."""
    return store if store is None or isinstance(store, kind) else layer(getattr(store, "store", None), kind)


def failure_policy(url: str) -> FailurePolicy | None:
    """The failure policy of bare keys on the store at an address; None in memory, which does not fail."""
    if _memory_address(url) is not None:
        return None
    from headgate.wiring import shared_stores  # noqa: PLC0415 (as above)

    return shared_stores.failure_policy(url)


def _memory_address(url: str) -> SplitResult | None:
    """The address, if it is one in memory."""
    try:
        address = urlsplit(url)
    except (AttributeError, TypeError, ValueError):
        return None  # `open_shared` says what is wrong with it
    return address if address.scheme == "memory" else None


def _memory_options(address: SplitResult) -> tuple[int, WhenFull]:
    if address.netloc or address.path.strip("/") or address.fragment:
        msg = "the address names a place, but memory:// has none; write memory://"
        raise InvalidSettings(msg)
    given = parse_qsl(address.query, keep_blank_values=True)
    options = dict(given)
    if unknown := set(options) - {"max_counters", "when_full"}:
        msg = f"memory:// has no option {short_repr(min(unknown))}; it has max_counters and when_full"
        raise InvalidSettings(msg)
    if len(options) < len(given):
        msg = "memory:// was given one option twice"
        raise InvalidSettings(msg)
    number = options.get("max_counters", str(DEFAULT_MAX_COUNTERS))
    if not _WHOLE.fullmatch(number) or not 0 < int(number) <= _MAX_COUNTERS:
        msg = f"max_counters of memory:// is a whole number from 1 to {_MAX_COUNTERS}, not {short_repr(number)}"
        raise InvalidSettings(msg)
    try:
        when_full = WhenFull(options.get("when_full", WhenFull.SHARE))
    except ValueError:
        msg = f"when_full of memory:// is one of {', '.join(WhenFull)}, not {short_repr(options['when_full'])}"
        raise InvalidSettings(msg) from None
    return int(number), when_full
