"""Headgate and its peers on a Redis server.

A contestant makes a context: inside it the library is connected and there is a loop (see
`loops`), after it the connections are closed.

The peers are set up to their advantage where there is a choice. limits is there with both
clients that are fast: redis-py and valkey-py. Its default, coredis, is slower (11,800 against
15,700 and 17,200 checks a second, 64 tasks) and cannot be installed beside the other tools.
Connection pools are unbounded, as they are by default. pyrate-limiter's buckets share one
client and one loaded script and are found by one dictionary look-up.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import limits.aio
import limits.storage
import limits.strategies
import pyrate_limiter
import redis.asyncio
import throttled
import throttled.asyncio
from bench import loops
from bench.loops import AsyncLoop, Loop
from bench.peers import LOG, BucketPerKey, Contestant, all_contestants
from pyrate_limiter.buckets.redis_bucket import LuaScript

import headgate
import headgate.sync

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from pyrate_limiter import AbstractBucket

Connected: TypeAlias = Contestant[AbstractContextManager[Loop]]
AsyncConnected: TypeAlias = Contestant[AbstractAsyncContextManager[AsyncLoop]]

_STRICT = "?on_store_error=deny&deadline_ms=1000"
"""So that a check the server did not answer is no admission, which by default it would be, and stops the run."""


def contestants(url: str) -> list[Connected]:
    """All libraries with every algorithm they have on Redis, for threads.

    Without pyrate-limiter, which does not limit there: asked without blocking, a limiter refuses
    while another thread asks it, and with a limiter for each thread it was seen to admit 6
    where 5 are allowed.
    """
    valkey = url.replace("redis://", "valkey://")
    return all_contestants(
        lambda name: partial(_headgate, url, name),
        {
            "redis-py": lambda name: partial(_limits, url, name),
            "valkey-py": lambda name: partial(_limits, valkey, name),
        },
        lambda name: partial(_throttled, url, name),
        None,
    )


def async_contestants(url: str) -> list[AsyncConnected]:
    """The same with `await`."""
    return all_contestants(
        lambda name: partial(_headgate_async, url, name),
        {
            "redis-py": lambda name: partial(_limits_async, url, "redispy", name),
            "valkey-py": lambda name: partial(_limits_async, url, "valkey", name),
        },
        lambda name: partial(_throttled_async, url, name),
        lambda name: partial(_pyrate_async, url, name),
    )


@contextmanager
def _headgate(url: str, algorithm: str, amount: int) -> Iterator[Loop]:
    with headgate.sync.Limiter.open(url + _STRICT) as limiter:
        yield loops.of_headgate(limiter, f"{amount}/day", algorithm)


@asynccontextmanager
async def _headgate_async(url: str, algorithm: str, amount: int) -> AsyncIterator[AsyncLoop]:
    async with headgate.Limiter.open(url + _STRICT) as limiter:
        yield loops.of_headgate_async(limiter, f"{amount}/day", algorithm)


@asynccontextmanager
async def headgate_without_deny_cache(url: str, algorithm: str, amount: int) -> AsyncIterator[AsyncLoop]:
    """Headgate with every refusal asked of the server."""
    async with headgate.Limiter.open(url + _STRICT, deny_cache_mb=0) as limiter:
        yield loops.of_headgate_async(limiter, f"{amount}/day", algorithm)


def _prefix(strategy: str) -> str:
    """As long as its own, which is LIMITS for all strategies, so that they could not share a server."""
    return strategy[:6]


@contextmanager
def _limits(url: str, strategy: str, amount: int) -> Iterator[Loop]:
    storage = limits.storage.RedisStorage(url, key_prefix=_prefix(strategy))
    yield loops.of_limits(getattr(limits.strategies, strategy)(storage), limits.parse(f"{amount}/day"))
    storage.get_connection().close()


@asynccontextmanager
async def _limits_async(url: str, client: str, strategy: str, amount: int) -> AsyncIterator[AsyncLoop]:
    storage = limits.aio.storage.RedisStorage(f"async+{url}", implementation=client, key_prefix=_prefix(strategy))
    yield loops.of_limits_async(getattr(limits.aio.strategies, strategy)(storage), limits.parse(f"{amount}/day"))
    await storage.bridge.get_connection().aclose()


@contextmanager
def _throttled(url: str, using: str, amount: int) -> Iterator[Loop]:
    store = throttled.RedisStore(server=url)
    yield loops.of_throttled(throttled.Throttled(using=using, quota=throttled.per_day(amount), store=store))
    store._backend.get_client().connection_pool.disconnect()  # noqa: SLF001 (it offers no way to close)


@asynccontextmanager
async def _throttled_async(url: str, using: str, amount: int) -> AsyncIterator[AsyncLoop]:
    store = throttled.asyncio.RedisStore(server=url)
    throttle = throttled.asyncio.Throttled(using=using, quota=throttled.per_day(amount), store=store)
    yield loops.of_throttled_async(throttle)
    await store._backend.get_client().connection_pool.disconnect()  # noqa: SLF001 (as above)


@asynccontextmanager
async def _pyrate_async(url: str, algorithm: str, amount: int) -> AsyncIterator[AsyncLoop]:
    client = redis.asyncio.Redis.from_url(url)
    yield loops.of_pyrate_async(_buckets(client, await client.script_load(LuaScript.PUT_ITEM), algorithm, amount))
    await client.aclose()


def _buckets(client: redis.asyncio.Redis, script: str, algorithm: str, amount: int) -> pyrate_limiter.Limiter:
    rates = [pyrate_limiter.Rate(amount, pyrate_limiter.Duration.DAY)]

    def log(key: str, window: pyrate_limiter.LogAlgorithm | None = None) -> AbstractBucket:
        return pyrate_limiter.RedisBucket(rates, client, f"log:{key}", script, window)

    def tokens(key: str) -> AbstractBucket:
        store = pyrate_limiter.RedisStateStore(client, f"tokens:{key}")
        return pyrate_limiter.StateBucket(rates, pyrate_limiter.TokenBucket(), store)

    makers: dict[str, Callable[[str], AbstractBucket]] = {
        "fixed_window": partial(log, window=pyrate_limiter.FixedWindow()),
        LOG: log,
        "token_bucket": tokens,
    }
    return pyrate_limiter.Limiter(BucketPerKey(makers[algorithm], pyrate_limiter.WallClock()))
