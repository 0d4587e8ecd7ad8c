"""Stores for tests of leases."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from tests.support.waiting import wait_until

from headgate.core.failure_policy import FailurePolicy
from headgate.core.spread import Spread, SpreadMode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.core.decision import Decision, Hit, Key, Receipt
    from headgate.dataplane.leased import Leased

LEASED: Final = FailurePolicy(spread=Spread(SpreadMode.LEASED))
AUTO: Final = FailurePolicy(spread=Spread(SpreadMode.AUTO))


def as_leased(hit: Hit, policy: FailurePolicy = LEASED) -> Hit:
    """The same hit, of a rule that may be leased."""
    return hit._replace(failure_policy=policy)


class AlwaysLeased:
    """A store that asks a leased one as if all rules said ``spread: leased``."""

    def __init__(self, store: Leased) -> None:
        self.store = store

    async def take(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        """See `CounterStore.take`; then the background gets its turns."""
        decisions = await self.store.take([as_leased(hit) for hit in hits])
        await settled()
        return decisions

    async def peek(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        """See `CounterStore.peek`."""
        return await self.store.peek([as_leased(hit) for hit in hits])

    async def give_back(self, receipts: Sequence[Receipt]) -> None:
        """See `CounterStore.give_back`."""
        await self.store.give_back(receipts)
        await settled()

    async def reset(self, keys: Sequence[Key]) -> None:
        """See `CounterStore.reset`."""
        await self.store.reset(keys)

    async def close(self) -> None:
        """See `CounterStore.close`."""
        await self.store.close()


class AlwaysLeasedByThreads(AlwaysLeased):
    """The same, where a thread asks for blocks: no call comes while one is on its way, which could refuse it."""

    async def take(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        """See `CounterStore.take`."""
        decisions = await self.store.take([as_leased(hit) for hit in hits])
        self._wait_for_the_thread()
        return decisions

    async def give_back(self, receipts: Sequence[Receipt]) -> None:
        """See `CounterStore.give_back`."""
        await self.store.give_back(receipts)
        self._wait_for_the_thread()

    def _wait_for_the_thread(self) -> None:
        book = self.store._book
        wait_until(
            lambda: not (book._requested or book._in_flight or book._owed),
            "the thread's rest",
            interval=0.0001,
        )


async def settled() -> None:
    """Let what is in the background run."""
    for _ in range(5):
        await asyncio.sleep(0)
