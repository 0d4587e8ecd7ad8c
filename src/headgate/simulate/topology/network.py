"""The servers of the regions, and what a call to one costs: its latency, and the operations that it is for the server.

A server is the memory store, which decides exactly as the Lua scripts do. It executes a call half a round trip
after it was sent. Latency is a round trip and a random part of it, exponential, 10 % on average: half of all calls
take less than 1.07 round trips, one in a hundred more than 1.46.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Final

from headgate.adapters.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from headgate.core.decision import Decision, Hit, Key, Receipt
    from headgate.core.failure_policy import FailurePolicy
    from headgate.simulate.topology.virtual_time import VirtualLoop

JITTER: Final = 0.1


class Server:
    """The Redis of a region: one server, or the nodes of a cluster."""

    def __init__(self, loop: VirtualLoop) -> None:
        """Start without counters."""
        self.store = MemoryStore(loop.micros)
        self.operations: Counter[Key] = Counter()
        """How often a script has read or changed each key."""


class Link:
    """A `SharedStore`: the way from one process to a region's server, and back.

    Hits with the policy `of_requests` are requests: one of cost 20 stands for 20 that came at the same time, and is 20
    operations. All others (blocks, exchanged counts) are one operation, whatever their cost.
    """

    def __init__(self, server: Server, round_trip: float, random: Random, of_requests: FailurePolicy) -> None:
        """`round_trip` is in seconds."""
        self._server = server
        self._one_way = round_trip / 2
        self._chance = random.expovariate
        self._of_requests = of_requests

    async def _travel(self) -> None:
        await asyncio.sleep(self._one_way * (1 + self._chance(1 / JITTER)))

    async def take(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        """See `CounterStore.take`."""
        await self._travel()
        decisions = self._server.store.take_now(hits)
        is_admitted = all(decision.allowed for decision in decisions)
        for hit in hits:
            is_many = is_admitted and hit.failure_policy is self._of_requests
            self._server.operations[hit.key] += max(1, hit.cost) if is_many else 1
        await self._travel()
        return decisions

    async def peek(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        """See `CounterStore.peek`."""
        await self._travel()
        decisions = self._server.store.peek_now(hits)
        for hit in hits:
            self._server.operations[hit.key] += 1
        await self._travel()
        return decisions

    async def give_back(self, receipts: Sequence[Receipt]) -> None:
        """See `CounterStore.give_back`."""
        await self._travel()
        await self._server.store.give_back(receipts)
        for receipt in receipts:
            self._server.operations[receipt.key] += 1
        await self._travel()

    async def reset(self, keys: Sequence[Key]) -> None:
        """See `CounterStore.reset`."""
        await self._travel()
        await self._server.store.reset(keys)
        await self._travel()

    async def present(self, name: str, seconds: float) -> int:
        """See `SharedStore.present`; how many processes there are is known here otherwise."""
        del name, seconds
        return 1

    async def close(self) -> None:
        """See `CounterStore.close`."""
