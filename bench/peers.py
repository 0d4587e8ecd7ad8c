"""Headgate and its peers on their memory stores.

A contestant is a function that makes a loop (see `loops`) for a limit of so many a day.

The peers are set up to their advantage where there is a choice: a throttled-py store large
enough not to evict, pyrate-limiter's buckets found by one dictionary look-up and without
its cleaning thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import limits.aio
import limits.storage
import limits.strategies
import pyrate_limiter
import throttled
import throttled.asyncio
from bench import loops
from pyrate_limiter import AbstractBucket, AbstractClock, BucketFactory, MonotonicClock, RateItem

import headgate
import headgate.sync

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bench.loops import AsyncLoop, Loop

OURS = "headgate"
ROOM = 1_000_000

MadeT = TypeVar("MadeT")


@dataclass(frozen=True, slots=True)
class Contestant(Generic[MadeT]):
    """A library with one of its algorithms, under our name for that algorithm."""

    library: str
    algorithm: str
    make: Callable[[int], MadeT]
    variant: str = ""
    """Which one, where a library has two of that kind."""
    keeps_log: bool = False
    """Whether it keeps every admission, so that its pace depends on how many a key has had."""

    @property
    def name(self) -> str:
        """What it is called in tables."""
        return " ".join(filter(None, (self.library, self.variant or self.algorithm)))


class BucketPerKey(BucketFactory):
    """How pyrate-limiter's users keep one limit per key: a bucket is a counter, and a factory finds the bucket."""

    def __init__(self, make: Callable[[str], AbstractBucket], clock: AbstractClock) -> None:
        self._make = make
        self._clock = clock
        self._buckets: dict[str, AbstractBucket] = {}

    def wrap_item(self, name: str, weight: int = 1) -> RateItem:
        """See `BucketFactory.wrap_item`."""
        return RateItem(name, self._clock.now(), weight=weight)

    def get(self, item: RateItem) -> AbstractBucket:
        """See `BucketFactory.get`."""
        bucket = self._buckets.get(item.name)
        if bucket is None:
            bucket = self._buckets[item.name] = self._make(item.name)
        return bucket


def _headgate(algorithm: str) -> Callable[[int], Loop]:
    return lambda amount: loops.of_headgate(headgate.sync.Limiter.open("memory://"), f"{amount}/day", algorithm)


def _headgate_async(algorithm: str) -> Callable[[int], AsyncLoop]:
    return lambda amount: loops.of_headgate_async(headgate.Limiter.open("memory://"), f"{amount}/day", algorithm)


def _limits(name: str) -> Callable[[int], Loop]:
    strategy = getattr(limits.strategies, name)
    return lambda amount: loops.of_limits(strategy(limits.storage.MemoryStorage()), limits.parse(f"{amount}/day"))


def _limits_async(name: str) -> Callable[[int], AsyncLoop]:
    strategy, storage = getattr(limits.aio.strategies, name), limits.aio.storage.MemoryStorage
    return lambda amount: loops.of_limits_async(strategy(storage()), limits.parse(f"{amount}/day"))


def _throttled(using: str) -> Callable[[int], Loop]:
    def make(amount: int) -> Loop:
        # By default the store forgets all but 1,024 keys, and with them their limits.
        store = throttled.MemoryStore(options={"MAX_SIZE": ROOM})
        return loops.of_throttled(throttled.Throttled(using=using, quota=throttled.per_day(amount), store=store))

    return make


def _throttled_async(using: str) -> Callable[[int], AsyncLoop]:
    def make(amount: int) -> AsyncLoop:
        store = throttled.asyncio.MemoryStore(options={"MAX_SIZE": ROOM})
        throttle = throttled.asyncio.Throttled(using=using, quota=throttled.per_day(amount), store=store)
        return loops.of_throttled_async(throttle)

    return make


def _buckets(algorithm: str, amount: int) -> pyrate_limiter.Limiter:
    rates = [pyrate_limiter.Rate(amount, pyrate_limiter.Duration.DAY)]
    makers: dict[str, Callable[[str], AbstractBucket]] = {
        "fixed_window": lambda _: pyrate_limiter.InMemoryBucket(rates, pyrate_limiter.FixedWindow()),
        LOG: lambda _: pyrate_limiter.InMemoryBucket(rates),
        "token_bucket": lambda _: pyrate_limiter.StateBucket(rates, pyrate_limiter.TokenBucket()),
    }
    return pyrate_limiter.Limiter(BucketPerKey(makers[algorithm], MonotonicClock()))


def _pyrate(algorithm: str) -> Callable[[int], Loop]:
    return lambda amount: loops.of_pyrate(_buckets(algorithm, amount))


def _pyrate_async(algorithm: str) -> Callable[[int], AsyncLoop]:
    return lambda amount: loops.of_pyrate_async(_buckets(algorithm, amount))


# All of them

LOG = "sliding_window_log"
ALGORITHMS = ("fixed_window", "sliding_window_counter", LOG, "token_bucket", "leaky_bucket")
_LIMITS = {
    "fixed_window": "FixedWindowRateLimiter",
    "sliding_window_counter": "SlidingWindowCounterRateLimiter",
    LOG: "MovingWindowRateLimiter",
}
_THROTTLED = {
    "fixed_window": "fixed_window",
    "sliding_window_counter": "sliding_window",
    "token_bucket": "token_bucket",
    "leaky_bucket": "leaking_bucket",
}
_PYRATE = ("fixed_window", LOG, "token_bucket")


def contestants() -> list[Contestant[Loop]]:
    """All libraries, with every algorithm they have."""
    return all_contestants(_headgate, {"": _limits}, _throttled, _pyrate)


def async_contestants() -> list[Contestant[AsyncLoop]]:
    """The same with `await`."""
    return all_contestants(_headgate_async, {"": _limits_async}, _throttled_async, _pyrate_async)


def all_contestants(
    ours: Callable[[str], Callable[[int], MadeT]],
    of_limits: Mapping[str, Callable[[str], Callable[[int], MadeT]]],
    of_throttled: Callable[[str], Callable[[int], MadeT]],
    of_pyrate: Callable[[str], Callable[[int], MadeT]] | None,
) -> list[Contestant[MadeT]]:
    """All libraries with all their algorithms; limits once for each of its clients."""
    found = [
        *(Contestant(OURS, name, ours(name), keeps_log=name == LOG) for name in ALGORITHMS),
        *(
            Contestant("limits", name, make(theirs), client and f"{name}, {client}", keeps_log=name == LOG)
            for client, make in of_limits.items()
            for name, theirs in _LIMITS.items()
        ),
        *(Contestant("throttled-py", name, of_throttled(theirs)) for name, theirs in _THROTTLED.items()),
        Contestant("throttled-py", "token_bucket", of_throttled("gcra"), "gcra"),
    ]
    if of_pyrate is not None:
        is_log = {name: name != "token_bucket" for name in _PYRATE}
        found += [Contestant("pyrate-limiter", name, of_pyrate(name), "", is_log[name]) for name in _PYRATE]
    return found
