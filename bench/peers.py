"""Headgate and its peers on their memory stores, each called the way its users call it.

A contestant is a function that makes a loop for a limit of so many a day. The loop hits
each key it is given once, looks at each answer, and returns how many were admitted. Loops
are written out, not shared, so that no call is timed but the library's own.

The peers are set up to their advantage where there is a choice: a throttled-py store large
enough not to evict, pyrate-limiter's buckets found by one dictionary look-up and without
its cleaning thread.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

import limits.aio
import limits.storage
import limits.strategies
import pyrate_limiter
import throttled
import throttled.asyncio
from pyrate_limiter import AbstractBucket, BucketFactory, MonotonicClock, RateItem

import headgate
import headgate.sync

OURS = "headgate"
ROOM = 1_000_000

Loop: TypeAlias = Callable[[Sequence[str]], int]
AsyncLoop: TypeAlias = Callable[[Sequence[str]], Awaitable[int]]
LoopT = TypeVar("LoopT")


@dataclass(frozen=True, slots=True)
class Contestant(Generic[LoopT]):
    """A library with one of its algorithms, under our name for that algorithm."""

    library: str
    algorithm: str
    make: Callable[[int], LoopT]
    variant: str = ""
    """Which one, where a library has two of that kind."""
    keeps_log: bool = False
    """Whether it keeps every admission, so that its pace depends on how many a key has had."""

    @property
    def name(self) -> str:
        """What it is called in tables."""
        return " ".join(filter(None, (self.library, self.variant or self.algorithm)))


# headgate


def _headgate(algorithm: str) -> Callable[[int], Loop]:
    def make(amount: int) -> Loop:
        hit, limit = headgate.sync.Limiter.open("memory://").hit, f"{amount}/day"

        def loop(keys: Sequence[str]) -> int:
            admitted = 0
            for key in keys:
                if hit(key, limit, algorithm=algorithm).allowed:
                    admitted += 1
            return admitted

        return loop

    return make


def _headgate_async(algorithm: str) -> Callable[[int], AsyncLoop]:
    def make(amount: int) -> AsyncLoop:
        hit, limit = headgate.Limiter.open("memory://").hit, f"{amount}/day"

        async def loop(keys: Sequence[str]) -> int:
            admitted = 0
            for key in keys:
                if (await hit(key, limit, algorithm=algorithm)).allowed:
                    admitted += 1
            return admitted

        return loop

    return make


# limits


def _limits(strategy: type[limits.strategies.RateLimiter]) -> Callable[[int], Loop]:
    def make(amount: int) -> Loop:
        hit, item = strategy(limits.storage.MemoryStorage()).hit, limits.parse(f"{amount}/day")

        def loop(keys: Sequence[str]) -> int:
            admitted = 0
            for key in keys:
                if hit(item, key):
                    admitted += 1
            return admitted

        return loop

    return make


def _limits_async(strategy: type[limits.aio.strategies.RateLimiter]) -> Callable[[int], AsyncLoop]:
    def make(amount: int) -> AsyncLoop:
        hit, item = strategy(limits.aio.storage.MemoryStorage()).hit, limits.parse(f"{amount}/day")

        async def loop(keys: Sequence[str]) -> int:
            admitted = 0
            for key in keys:
                if await hit(item, key):
                    admitted += 1
            return admitted

        return loop

    return make


# throttled-py


def _throttled(using: str) -> Callable[[int], Loop]:
    def make(amount: int) -> Loop:
        # By default the store forgets all but 1,024 keys, and with them their limits.
        store = throttled.MemoryStore(options={"MAX_SIZE": ROOM})
        limit = throttled.Throttled(using=using, quota=throttled.per_day(amount), store=store).limit

        def loop(keys: Sequence[str]) -> int:
            admitted = 0
            for key in keys:
                if not limit(key).limited:
                    admitted += 1
            return admitted

        return loop

    return make


def _throttled_async(using: str) -> Callable[[int], AsyncLoop]:
    def make(amount: int) -> AsyncLoop:
        store = throttled.asyncio.MemoryStore(options={"MAX_SIZE": ROOM})
        limit = throttled.asyncio.Throttled(using=using, quota=throttled.per_day(amount), store=store).limit

        async def loop(keys: Sequence[str]) -> int:
            admitted = 0
            for key in keys:
                if not (await limit(key)).limited:
                    admitted += 1
            return admitted

        return loop

    return make


# pyrate-limiter


class _BucketPerKey(BucketFactory):
    """How its users keep one limit per key: a bucket is a counter, and a factory finds the bucket."""

    def __init__(self, make: Callable[[], AbstractBucket]) -> None:
        self._make = make
        self._clock = MonotonicClock()
        self._buckets: dict[str, AbstractBucket] = {}

    def wrap_item(self, name: str, weight: int = 1) -> RateItem:
        return RateItem(name, self._clock.now(), weight=weight)

    def get(self, item: RateItem) -> AbstractBucket:
        bucket = self._buckets.get(item.name)
        if bucket is None:
            bucket = self._buckets[item.name] = self._make()
        return bucket


def _buckets(algorithm: str, amount: int) -> pyrate_limiter.Limiter:
    rates = [pyrate_limiter.Rate(amount, pyrate_limiter.Duration.DAY)]
    makers: dict[str, Callable[[], AbstractBucket]] = {
        "fixed_window": lambda: pyrate_limiter.InMemoryBucket(rates, pyrate_limiter.FixedWindow()),
        "sliding_window_log": lambda: pyrate_limiter.InMemoryBucket(rates),
        "token_bucket": lambda: pyrate_limiter.StateBucket(rates, pyrate_limiter.TokenBucket()),
    }
    return pyrate_limiter.Limiter(_BucketPerKey(makers[algorithm]))


def _pyrate(algorithm: str) -> Callable[[int], Loop]:
    def make(amount: int) -> Loop:
        try_acquire = _buckets(algorithm, amount).try_acquire

        def loop(keys: Sequence[str]) -> int:
            admitted = 0
            for key in keys:
                if try_acquire(key, blocking=False):
                    admitted += 1
            return admitted

        return loop

    return make


def _pyrate_async(algorithm: str) -> Callable[[int], AsyncLoop]:
    def make(amount: int) -> AsyncLoop:
        try_acquire = _buckets(algorithm, amount).try_acquire_async

        async def loop(keys: Sequence[str]) -> int:
            admitted = 0
            for key in keys:
                if await try_acquire(key, blocking=False):
                    admitted += 1
            return admitted

        return loop

    return make


# All of them

_LOG = "sliding_window_log"
_ALGORITHMS = ("fixed_window", "sliding_window_counter", _LOG, "token_bucket", "leaky_bucket")
_LIMITS = {
    "fixed_window": "FixedWindowRateLimiter",
    "sliding_window_counter": "SlidingWindowCounterRateLimiter",
    _LOG: "MovingWindowRateLimiter",
}
_THROTTLED = {
    "fixed_window": "fixed_window",
    "sliding_window_counter": "sliding_window",
    "token_bucket": "token_bucket",
    "leaky_bucket": "leaking_bucket",
}
_PYRATE = ("fixed_window", _LOG, "token_bucket")


def contestants() -> list[Contestant[Loop]]:
    """Everybody, with every algorithm they have."""
    return _all(_headgate, _limits, limits.strategies, _throttled, _pyrate)


def async_contestants() -> list[Contestant[AsyncLoop]]:
    """The same with `await`."""
    return _all(_headgate_async, _limits_async, limits.aio.strategies, _throttled_async, _pyrate_async)


def _all(
    ours: Callable[[str], Callable[[int], LoopT]],
    of_limits: Callable[[Any], Callable[[int], LoopT]],
    strategies: Any,  # noqa: ANN401 (a module)
    of_throttled: Callable[[str], Callable[[int], LoopT]],
    of_pyrate: Callable[[str], Callable[[int], LoopT]],
) -> list[Contestant[LoopT]]:
    return [
        *(Contestant(OURS, name, ours(name), keeps_log=name == _LOG) for name in _ALGORITHMS),
        *(
            Contestant("limits", name, of_limits(getattr(strategies, theirs)), keeps_log=name == _LOG)
            for name, theirs in _LIMITS.items()
        ),
        *(Contestant("throttled-py", name, of_throttled(theirs)) for name, theirs in _THROTTLED.items()),
        Contestant("throttled-py", "token_bucket", of_throttled("gcra"), "gcra"),
        *(Contestant("pyrate-limiter", name, of_pyrate(name), keeps_log=name != "token_bucket") for name in _PYRATE),
    ]
