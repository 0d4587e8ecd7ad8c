"""Stores whose hits are all of rules with a spread, so that the contract of stores can be run on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.core.meter import ALGORITHMS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headgate.core.decision import Decision, Hit, Key, Receipt
    from headgate.core.meter import Meter
    from headgate.ports import CounterStore


class Renamed:
    """A store whose counters have the names that rules with a spread give them."""

    def __init__(self, store: CounterStore, mark: str, *, suits: Callable[[Meter], bool] | None = None) -> None:
        self.store = store
        self._mark = mark
        self._suits = suits or (lambda meter: ALGORITHMS[meter.algorithm].spread)
        self._names: dict[Key, Key] = {}

    def hit(self, hit: Hit) -> Hit:
        if self._suits(hit.meter) and hit.key.startswith("rl:{"):
            self._names[hit.key] = hit.key + self._mark
        return hit._replace(key=self._names.get(hit.key, hit.key))

    async def take(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        return await self.store.take([self.hit(hit) for hit in hits])

    async def peek(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        return await self.store.peek([self.hit(hit) for hit in hits])

    async def give_back(self, receipts: Sequence[Receipt]) -> None:
        await self.store.give_back([each._replace(key=self._names.get(each.key, each.key)) for each in receipts])

    async def reset(self, keys: Sequence[Key]) -> None:
        await self.store.reset([self._names.get(key, key) for key in keys])

    async def close(self) -> None:
        await self.store.close()
