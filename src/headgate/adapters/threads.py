"""A store that makes its callers wait, for threads: they block, and meet on one event loop in the background.

The checks of many threads reach a Redis store together and travel as one script call.

Each store has a loop and a thread of its own. Stores do not share connections, so their
calls could not travel together on one loop either; and this way nobody has to know who
else still needs the thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.adapters.background import InBackground

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headgate.core.decision import Decision, Hit, Key, Receipt
    from headgate.ports import CounterStore


class BlockingStore:
    """A `CounterStore` whose coroutines end without an event loop: they block their thread until the answer is there.

    Safe under threads, and after a fork.
    """

    def __init__(self, make: Callable[[], CounterStore]) -> None:
        """`make` gives the store to wait for. Nothing is made or started before the first call."""
        self._behind: InBackground[CounterStore] = InBackground(make)

    async def take(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        """See `CounterStore.take`."""
        background = self._behind.running()
        return background.ask(background.resident.take, hits)

    async def peek(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        """See `CounterStore.peek`."""
        background = self._behind.running()
        return background.ask(background.resident.peek, hits)

    async def give_back(self, receipts: Sequence[Receipt]) -> None:
        """See `CounterStore.give_back`."""
        background = self._behind.running()
        background.ask(background.resident.give_back, receipts)

    async def reset(self, keys: Sequence[Key]) -> None:
        """See `CounterStore.reset`."""
        background = self._behind.running()
        background.ask(background.resident.reset, keys)

    async def close(self) -> None:
        """See `CounterStore.close`. Threads that still wait get a `StoreError`; the background thread ends."""
        self._behind.close()
