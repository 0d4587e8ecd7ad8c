"""The loops that are timed: each library called the way its users call it.

A loop hits each key it is given once, looks at each answer, and returns how many were
admitted. Loops are written out, not shared, so that no call is timed but the library's own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import limits
    import limits.aio
    import limits.strategies
    import pyrate_limiter
    import throttled
    import throttled.asyncio

    import headgate
    import headgate.sync

Loop: TypeAlias = Callable[[Sequence[str]], int]
AsyncLoop: TypeAlias = Callable[[Sequence[str]], Awaitable[int]]


def of_headgate(limiter: headgate.sync.Limiter, limit: str, algorithm: str) -> Loop:
    """`headgate.sync`."""
    hit = limiter.hit

    def loop(keys: Sequence[str]) -> int:
        admitted = 0
        for key in keys:
            if hit(key, limit, algorithm=algorithm).allowed:
                admitted += 1
        return admitted

    return loop


def of_headgate_async(limiter: headgate.Limiter, limit: str, algorithm: str) -> AsyncLoop:
    """`headgate`, with `await`."""
    hit = limiter.hit

    async def loop(keys: Sequence[str]) -> int:
        admitted = 0
        for key in keys:
            if (await hit(key, limit, algorithm=algorithm)).allowed:
                admitted += 1
        return admitted

    return loop


def of_limits(strategy: limits.strategies.RateLimiter, item: limits.RateLimitItem) -> Loop:
    """The library limits."""
    hit = strategy.hit

    def loop(keys: Sequence[str]) -> int:
        admitted = 0
        for key in keys:
            if hit(item, key):
                admitted += 1
        return admitted

    return loop


def of_limits_async(strategy: limits.aio.strategies.RateLimiter, item: limits.RateLimitItem) -> AsyncLoop:
    """The library limits, with `await`."""
    hit = strategy.hit

    async def loop(keys: Sequence[str]) -> int:
        admitted = 0
        for key in keys:
            if await hit(item, key):
                admitted += 1
        return admitted

    return loop


def of_throttled(throttle: throttled.Throttled) -> Loop:
    """throttled-py."""
    limit = throttle.limit

    def loop(keys: Sequence[str]) -> int:
        admitted = 0
        for key in keys:
            if not limit(key).limited:
                admitted += 1
        return admitted

    return loop


def of_throttled_async(throttle: throttled.asyncio.Throttled) -> AsyncLoop:
    """throttled-py, with `await`."""
    limit = throttle.limit

    async def loop(keys: Sequence[str]) -> int:
        admitted = 0
        for key in keys:
            if not (await limit(key)).limited:
                admitted += 1
        return admitted

    return loop


def of_pyrate(limiter: pyrate_limiter.Limiter) -> Loop:
    """pyrate-limiter."""
    try_acquire = limiter.try_acquire

    def loop(keys: Sequence[str]) -> int:
        admitted = 0
        for key in keys:
            if try_acquire(key, blocking=False):
                admitted += 1
        return admitted

    return loop


def of_pyrate_async(limiter: pyrate_limiter.Limiter) -> AsyncLoop:
    """pyrate-limiter, with `await`."""
    try_acquire = limiter.try_acquire_async

    async def loop(keys: Sequence[str]) -> int:
        admitted = 0
        for key in keys:
            if await try_acquire(key, blocking=False):
                admitted += 1
        return admitted

    return loop
