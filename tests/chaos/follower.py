"""One process of many: it checks requests without end, by rules that it follows, and tells what it has seen.

Run as a program: its orders come as JSON on a line. It prints "ready" once it follows, and,
when its input ends, its findings as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import TYPE_CHECKING, Final, NamedTuple

import uvloop

from headgate import Limiter, Request
from headgate.adapters.redis import RedisFeed, feed_at
from headgate.adapters.zones import zone
from headgate.controlplane.subscriber import Subscriber
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.ports import RULES

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

_USERS: Final = 50
_PAUSE: Final = 0.02


class Orders(NamedTuple):
    """What a process shall do."""

    url: str
    is_deaf: bool
    """Whether no announcement reaches it."""


class Findings(NamedTuple):
    """What a process has seen."""

    active: list[tuple[int, float]]
    """Numbers of rule sets, and when each became active."""
    limits: list[tuple[int, int, int]]
    """Which two limits requests were decided by, under the number of which rule set; each once."""
    checks: int
    by_store: int
    refused: int


async def _silence(_feed: RedisFeed) -> AsyncGenerator[None]:
    yield None
    await asyncio.Event().wait()


async def follow(orders: Orders) -> Findings:
    """Follow and check until the input ends."""
    if orders.is_deaf:
        RedisFeed.announcements = _silence  # type: ignore[assignment,method-assign] # on purpose
    active: list[tuple[int, float]] = []
    limits: set[tuple[int, int, int]] = set()
    checks = by_store = 0
    async with Limiter.open(orders.url) as limiter:

        def take(data: object, number: int) -> None:
            limiter.snapshots.publish(parse_rule_set(data, zone), number)
            active.append((number, time.time()))

        feed = feed_at(orders.url)
        subscriber = Subscriber(feed, {RULES: take}, lambda _: None)
        await subscriber.start()
        task = asyncio.create_task(subscriber.run())
        ending = asyncio.create_task(asyncio.to_thread(sys.stdin.readline))
        print("ready", flush=True)  # noqa: T201 (read by who started us)
        while not ending.done():
            verdict = await limiter.check(Request(user=f"u{checks % _USERS}"))
            checks += 1
            by_store += verdict.source == "store"
            first, second = [finding.hit.meter.amount for finding in verdict.findings]
            limits.add((verdict.snapshot, first, second))
            await asyncio.sleep(_PAUSE)
        task.cancel()
        await asyncio.wait([task])
        await feed.close()
    return Findings(active, sorted(limits), checks, by_store, sum(subscriber.refused.values()))


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps(runner.run(follow(Orders(*json.loads(sys.stdin.readline()))))))  # noqa: T201 (its answer)
