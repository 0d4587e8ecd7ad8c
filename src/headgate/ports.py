"""What the data plane asks of the world, as Protocols with their contracts in words.

`headgate.testing.CounterStoreContract` proves a store against the first of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from headgate.core.meter import DEFAULT_ALGORITHM

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headgate.core.decision import Decision, Hit, Key, Receipt
    from headgate.core.limit import Limit
    from headgate.core.meter import Meter
    from headgate.core.verdict import Verdict


class CounterStore(Protocol):
    """Counters, and the one clock that all decisions about them go by.

    Every method may raise `StoreError` when it cannot answer, and nothing else.
    """

    async def take(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        """Take all of one request's hits, or none.

        The hits name different counters. If one is denied nothing is counted, and
        the others are answered as they stand. A forced hit is never denied. Decisions
        come in the order of the hits.
        """

    async def peek(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        """Answer what `take` would answer, and change nothing."""

    async def give_back(self, receipts: Sequence[Receipt]) -> None:
        """Undo admissions, in part or in whole: refund, settle down, release.

        A receipt credits only the window it was counted in, does nothing once that has
        passed, and counts once however often it is given back.
        """

    async def reset(self, keys: Sequence[Key]) -> None:
        """Forget these counters, as if they had never been used."""

    async def close(self) -> None:
        """Let go of everything. The store is not used afterwards."""


@runtime_checkable
class LocalStore(Protocol):
    """A `CounterStore` in this process: it never waits, so its coroutines end without an event loop."""

    def take_now(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        """`CounterStore.take`, without a coroutine."""

    def peek_now(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        """`CounterStore.peek`, without a coroutine."""

    def give_back_now(self, receipts: Sequence[Receipt]) -> None:
        """`CounterStore.give_back`, without a coroutine."""

    def short_way(self, meters: Mapping[str, Mapping[object, Meter]], long_way: HitFunction) -> HitFunction:
        """A faster `Limiter.hit` for the limits in `meters` (by algorithm and limit); `long_way` does the rest."""


class SharedStore(CounterStore, Protocol):
    """A `CounterStore` that other processes count in too."""

    async def present(self, name: str, seconds: float) -> int:
        """Say that the process `name` is alive, for so many seconds; returns how many are."""


class HitFunction(Protocol):
    """`Limiter.hit` without `await`."""

    def __call__(self, key: str, limit: str | Limit, cost: int = 1, *, algorithm: str = DEFAULT_ALGORITHM) -> Verdict:
        """Take `cost` from a key's limit."""
