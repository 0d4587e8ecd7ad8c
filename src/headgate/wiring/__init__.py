"""The composition root: from an address and some rules to running objects."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar
from urllib.parse import parse_qsl, urlsplit

from headgate.adapters import zones
from headgate.adapters.blocking import BlockingStore
from headgate.adapters.clock import monotonic_ns, wall_clock
from headgate.adapters.embedded import (
    VALKEY,
    EmbeddedServer,
    EmbeddedStore,
    named_folder,
)
from headgate.adapters.memory import DEFAULT_MAX_COUNTERS, MemoryCache, MemoryFeed, MemoryStore, WhenFull
from headgate.adapters.redis import (
    DirectStore,
    RedisCache,
    RedisStore,
    ServerAddress,
    StoreAddress,
    feed_at,
    feed_on,
    is_redis_url,
    store_at,
    store_on,
)
from headgate.adapters.rules_file import RulesFile
from headgate.core.ids import draw_anew
from headgate.core.meter import Calendars
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.core.rule import RuleSet
from headgate.core.rule_data import rule_set_data
from headgate.core.safety import safety_of
from headgate.dataplane.bare_keys import BareKeys
from headgate.dataplane.deny_cache import DEFAULT_MEGABYTES, DenyCache
from headgate.dataplane.guarded import Guarded
from headgate.dataplane.local_share import LocalShare
from headgate.dataplane.snapshots import Follower, Snapshots
from headgate.edge.frameworks.gate import workers_of
from headgate.errors import InvalidSettings, shown
from headgate.settings import DEFAULT_DATA_DIR, web_concurrency

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from typing import Any, TypeAlias

    from headgate.core.rule import Rule
    from headgate.core.safety import Safety
    from headgate.core.units import Micros
    from headgate.ports import Cache, CounterStore, Feed, SharedStore

    Rules: TypeAlias = str | os.PathLike[str] | RuleSet | Mapping[str, Any] | Sequence[Rule | Mapping[str, Any]] | None

T = TypeVar("T")
_MOST_COUNTERS: Final = 10**9
os.register_at_fork(after_in_child=draw_anew)
_WHOLE: Final = re.compile(r"[0-9]{1,12}")


def parts(
    url: str,
    rules: Rules = None,
    clock: Callable[[], Micros] = wall_clock,
    *,
    deny_cache_mb: int = DEFAULT_MEGABYTES,
) -> tuple[CounterStore, Snapshots, BareKeys, Follower | None]:
    """What a limiter on the store at `url` is made of, by rules in a file, a mapping, a list, or a `RuleSet`."""
    return open_store(url, clock, deny_cache_mb=deny_cache_mb), *rest_of(url, rules, clock)


def rest_of(
    url: str, rules: Rules = None, clock: Callable[[], Micros] = wall_clock
) -> tuple[Snapshots, BareKeys, Follower | None]:
    """What a limiter is made of beside its store."""
    snapshots = Snapshots(zones.zone, clock)
    bare_keys = BareKeys(Calendars(zones.zone, clock), safety_of_bare_keys(url))
    follower = None
    if isinstance(rules, str | os.PathLike):
        follower = Follower(RulesFile(rules), snapshots)
    elif rules is not None:
        # Rules that were put together in Python are checked like those in a file.
        data = rule_set_data(rules) if isinstance(rules, RuleSet) else rules
        snapshots.publish(parse_rule_set(data, zones.zone))
    return snapshots, bare_keys, follower


class Counters(NamedTuple):
    """What is at a store's address: counters, the feed of changes, and a cache that processes share."""

    store: CounterStore
    feed: Feed
    cache: Cache
    shared: RedisStore | None = None
    """The store on a server that is inside `store`, where there is one."""

    def shedding_for(self) -> float:
        """For how many seconds checks have been shed, again and again; 0 if none are."""
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
    """What is at an address. ``memory://?max_counters=100000&when_full=deny`` needs no server.

    Of a server, a check waits for room in flight for `max_wait` seconds; None: until there is room. What it
    has refused is remembered in so many megabytes, and at least so many `processes` count in it.
    """
    # The servers' own clocks decide, whatever the clocks of their clients say; except in tests.
    test_clock = None if clock is wall_clock else clock
    if is_redis_url(url):
        shared = store_at(url, test_clock, max_wait=max_wait)
        store = with_deny_cache(_guarded(shared, clock, processes), clock, deny_cache_mb)
        return Counters(store, feed_at(url), RedisCache(shared), shared)
    try:
        address = urlsplit(url)
    except (AttributeError, TypeError, ValueError):
        # Text is not repeated: it may hold a password.
        what = "that" if isinstance(url, str) else shown(url)
        msg = f"{what} is not the address of a store; write for example memory://"
        raise InvalidSettings(msg) from None
    if address.scheme == "embedded":
        server = EmbeddedServer(named_folder(address, data_dir, "valkey"), VALKEY)
        place = ServerAddress(path=str(server.socket))
        shared = store_on(place, test_clock, max_wait)
        embedded = EmbeddedStore(server, _guarded(shared, clock, processes))
        return Counters(with_deny_cache(embedded, clock, deny_cache_mb), feed_on(place), RedisCache(shared), shared)
    if address.scheme != "memory":
        # Only the scheme is named: the rest of an address may hold a password.
        msg = f"{shown(address.scheme)} is not a kind of store; write memory://, embedded:// or redis://host:6379"
        raise InvalidSettings(msg)
    if address.netloc or address.path.strip("/") or address.fragment:
        msg = "the address names a place, but memory:// has none; write memory://"
        raise InvalidSettings(msg)
    return Counters(MemoryStore(clock, *_memory_options(address.query)), MemoryFeed(), MemoryCache(clock))


def open_store(
    url: str,
    clock: Callable[[], Micros] = wall_clock,
    data_dir: Path = DEFAULT_DATA_DIR,
    *,
    deny_cache_mb: int = DEFAULT_MEGABYTES,
) -> CounterStore:
    """The counters at an address that `open_counters` takes."""
    processes = max(workers_of(sys.argv), web_concurrency())
    return open_counters(url, clock, data_dir, deny_cache_mb=deny_cache_mb, processes=processes).store


def blocking_store(
    url: str, clock: Callable[[], Micros] = wall_clock, *, deny_cache_mb: int = DEFAULT_MEGABYTES
) -> CounterStore:
    """The store at an address that `open_store` takes, for programs without an event loop."""
    # What is known to be refused is answered by the thread that asks, so the cache is in front of them all.
    return with_deny_cache(_blocking_store(url, clock), clock, deny_cache_mb, blocks=True)


def _blocking_store(url: str, clock: Callable[[], Micros]) -> CounterStore:
    slow_path = BlockingStore(lambda: open_store(url, clock, deny_cache_mb=0))
    if not is_redis_url(url) or clock is not wall_clock:
        return slow_path
    address = StoreAddress.parse(url)
    server = address.servers[0]
    if address.kind or server.tls is not None:
        return slow_path
    return DirectStore(server, address.deadline, clock, slow_path)


def with_deny_cache(
    store: CounterStore, clock: Callable[[], Micros], megabytes: int, *, blocks: bool = False
) -> CounterStore:
    """The same store, behind a cache of what it has refused; 0 is none."""
    if not megabytes:
        return store
    nanoseconds = monotonic_ns if clock is wall_clock else lambda: clock() * 1_000
    return DenyCache(store, nanoseconds, megabytes, blocks=blocks)


def layer(store: object, kind: type[T]) -> T | None:
    """The store of a kind among those that wrap each other, the outermost first."""
    while store is not None and not isinstance(store, kind):
        store = getattr(store, "store", None)
    return store


def safety_of_bare_keys(url: str) -> Safety | None:
    """What keys without a rule ask of the store at an address that `open_store` takes."""
    if not is_redis_url(url):
        return None
    address = StoreAddress.parse(url)
    return safety_of(address.on_store_error, on_overload=address.on_overload)


def _guarded(store: SharedStore, clock: Callable[[], Micros], processes: int) -> CounterStore:
    return Guarded(store, LocalShare(MemoryStore(clock), processes), clock)


def _memory_options(query: str) -> tuple[int, WhenFull]:
    given = parse_qsl(query, keep_blank_values=True)
    options = dict(given)
    if unknown := set(options) - {"max_counters", "when_full"}:
        msg = f"memory:// has no option {shown(min(unknown))}; it has max_counters and when_full"
        raise InvalidSettings(msg)
    if len(options) < len(given):
        msg = "memory:// was given one option twice"
        raise InvalidSettings(msg)
    number = options.get("max_counters", str(DEFAULT_MAX_COUNTERS))
    if not _WHOLE.fullmatch(number) or not 0 < int(number) <= _MOST_COUNTERS:
        msg = f"max_counters of memory:// is a whole number from 1 to {_MOST_COUNTERS}, not {shown(number)}"
        raise InvalidSettings(msg)
    try:
        when_full = WhenFull(options.get("when_full", WhenFull.SHARE))
    except ValueError:
        msg = f"when_full of memory:// is one of {', '.join(WhenFull)}, not {shown(options['when_full'])}"
        raise InvalidSettings(msg) from None
    return int(number), when_full
