"""One process of many that want the same: it takes hits as fast as it can and tells what it was given.

Run as a program: its orders come as JSON on a line, "go" on another. It prints how many
decisions it has so far, now and then, and last of all its findings as JSON.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections import Counter
from typing import Final, NamedTuple

import uvloop

from headgate.adapters.memory import MemoryStore
from headgate.adapters.redis import store_at
from headgate.core.decision import Hit
from headgate.core.limit import Rate, Slots
from headgate.core.meter import Algorithm, Meter

NOW: Final = 1_700_000_000_000_000
"""The instant at which everything happens, so that no limit recovers meanwhile."""
HOUR: Final = 3_600_000_000
_PATIENT: Final = "deadline_ms=60000"
"""A busy machine is no outage."""
_REPORT_EVERY: Final = 1_000
_MOST_SLOTS: Final = 20
"""Holders are kept by name, so slots are meant to be few."""


class Orders(NamedTuple):
    """What a process shall do."""

    url: str
    algorithm: str
    number: int
    """Which process it is."""
    decisions: int
    at_once: int
    """How many checks of this process are in flight at a time."""
    keys: int
    amount: int
    is_apart: bool
    """Whether each request is of two subjects, which live in several slots."""


def meter(algorithm: str, amount: int) -> Meter:
    """A limit of so much an hour, or of slots."""
    if algorithm == Algorithm.CONCURRENCY:
        return Meter(Slots(amount, HOUR), Algorithm.CONCURRENCY)
    return Meter(Rate(amount, HOUR), Algorithm(algorithm))


def narrow(orders: Orders, number: int) -> Hit:
    """The hit of a key on the limit that is soon used up."""
    small = min(orders.amount, _MOST_SLOTS) if orders.algorithm == Algorithm.CONCURRENCY else orders.amount
    made = meter(orders.algorithm, small)
    return Hit(f"rl:{{u={number}}}:narrow:{made.code}", made, 1)


def wide(orders: Orders, number: int) -> Hit:
    """The hit of a key on a limit beside it that is never used up; of another subject if that is wanted.

    Apart, all requests share it, and it is used up before the narrow ones are.
    """
    whole = meter(Algorithm.FIXED_WINDOW, orders.keys * orders.amount * (3 if orders.is_apart else 4) // 4)
    subject = "g=all" if orders.is_apart else f"u={number}"
    return Hit(f"rl:{{{subject}}}:wide:{whole.code}", whole, 1)


def capacity(hit: Hit) -> int:
    """How much of a limit one program alone is given at one instant, in memory."""
    store = MemoryStore(lambda: NOW)
    taken = 0
    while store.take_now([_held(hit, f"h{taken}")])[0].allowed:
        taken += 1
    return taken


def _held(hit: Hit, holder: str) -> Hit:
    return hit._replace(holder=holder, ttl=HOUR) if hit.meter.algorithm is Algorithm.CONCURRENCY else hit


class Crowd:
    """What one process does."""

    def __init__(self, orders: Orders) -> None:
        """Nothing is connected yet."""
        self._orders = orders
        self._store = store_at(f"{orders.url}?{_PATIENT}", clock=lambda: NOW, least_ttl_seconds=600)
        self._narrow = [narrow(orders, number) for number in range(orders.keys)]
        self._wide = [wide(orders, number) for number in range(orders.keys)]
        self._chance = random.Random(orders.number)
        self._left = orders.decisions
        self._admitted: Counter[str] = Counter()

    async def run(self) -> Counter[str]:
        """Take everything that was ordered; returns the amounts that were admitted, by key."""
        await self._store.connect()
        await asyncio.to_thread(sys.stdin.readline)
        await asyncio.gather(*[self._work() for _ in range(self._orders.at_once)])
        await self._store.close()
        return self._admitted

    async def _work(self) -> None:
        while self._left > 0:
            self._left -= 1
            if self._left % _REPORT_EVERY == 0:
                print(self._orders.decisions - self._left, flush=True)  # noqa: T201 (read by who started us)
            hits = self._request(self._chance.randrange(self._orders.keys))
            decisions = await self._store.take(hits)
            if all(decision.allowed for decision in decisions):
                for hit in hits:
                    self._admitted[hit.key] += hit.cost

    def _request(self, number: int) -> list[Hit]:
        hit = self._narrow[number]
        if hit.meter.algorithm is Algorithm.CONCURRENCY:
            hit = _held(hit, f"{self._orders.number}-{self._left}")
        else:
            hit = hit._replace(cost=self._chance.choice((1, 1, 2, 3)))
        beside = self._wide[number]._replace(cost=hit.cost)
        # With one counter, and with two that have to agree.
        return [hit, beside] if self._orders.is_apart or self._left % 2 else [hit]


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps(runner.run(Crowd(Orders(*json.loads(sys.stdin.readline()))).run())))  # noqa: T201 (its answer)
