"""Leased: hot counters are spent from blocks that this process has taken in advance.

Wraps any store. A hit whose rule says `leased` or `auto` is spent from a block without waiting, if this process holds
one; every other hit goes to the store, and counts as demand for its counter. Blocks are requested, renewed and given
back in the background, so no request waits for one. `headgate.core.lease` says how large they are and when they end.

It is in front of the deny cache: what is spent here needs no look there, and what the store refuses, blocks included,
is remembered there. A request with several counters is still all or nothing: what has a block is spent first and put
back if the store refuses the rest.
"""

from __future__ import annotations

import asyncio
import os
import random
import weakref
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.core.decision import Hit, Receipt, Source
from headgate.core.hot_list import HotEntry, HotList
from headgate.core.lease import NO_NAME, LeaseBlock, grant_policy, is_grant, is_leasable
from headgate.dataplane.deny_cache import DenyCache
from headgate.dataplane.lease_book import LeaseBook
from headgate.dataplane.lease_fast_path import held_path
from headgate.dataplane.lease_worker import LoopWorker, ThreadWorker
from headgate.errors import Overloaded, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from headgate.core.decision import Decision, Key
    from headgate.core.denial import Nanos
    from headgate.core.lease import BlockRequest, Spent
    from headgate.core.meter import Meter
    from headgate.dataplane.lease_worker import LeaseWorker
    from headgate.ports import CounterStore, HeldHitFunction

_NANOSECOND: Final = 1e-9
_SAMPLED: Final = 16
"""Of the hits that are always exact, one in this many is counted for the list of hot counters."""


class LeaseCounts(NamedTuple):
    """What became of blocks so far, and what is held now."""

    hits: int
    """Requests that were answered from blocks."""
    granted: int
    """Blocks."""
    refused: int
    """Blocks that the store did not grant."""
    granted_units: int
    returned_units: int
    """Unspent units that went back."""
    expired_units: int
    """Of those that went back: because their block had ended."""
    outstanding_units: int
    """Counted in the store, and not spent yet."""
    counters: int
    """With a block now."""


class Leased:
    """A `CounterStore` and `LeasingStore` that spends blocks of another one."""

    def __init__(
        self,
        store: CounterStore,
        clock: Callable[[], Nanos],
        *,
        processes: Callable[[], int] = lambda: 1,
        blocks: bool = False,
    ) -> None:
        """`clock` is monotonic; `processes` says how many share the limits.

        `blocks` says that the store blocks the thread that asks, in place of waiting.
        """
        self.store = store
        self._clock = clock
        self.processes = processes
        self._blocks = blocks
        self._is_closing = False
        self._worker: LeaseWorker = (ThreadWorker if blocks else LoopWorker)(self._tend)
        self._book = LeaseBook(clock, self._worker.wake)
        self._until_sample = 0
        self._granted = self._refused = self._granted_units = self._returned_units = 0
        self.held = self._book.named
        self.take_held = self._book.take
        """See `LeasingStore`; bound here to spare every check a call."""
        self._denied_now: Callable[[Hit], Sequence[Decision] | None] = _nothing_known
        self.denied: Mapping[Key, object] = {}
        """See `LeasingStore`."""
        if isinstance(store, DenyCache):
            self._denied_now, self.denied = store.hit_denied_now, store.denied
        _stores.add(self)

    @property
    def counts(self) -> LeaseCounts:
        """What became of blocks."""
        return LeaseCounts(
            self._book.hits,
            self._granted,
            self._refused,
            self._granted_units,
            self._returned_units,
            self._book.expired,
            self._book.outstanding,
            len(self._book.named),
        )

    def hottest(self, most: int) -> HotList:
        """The hottest counters of the last minute, and whether each is leased now."""
        with self._book.lock:
            total, rates = self._book.demand.hottest(most, self._clock())
            return HotList(total, [HotEntry(key, rate, key in self._book.named) for key, rate in rates])

    def is_held(self, key: Key) -> bool:
        """Whether this process holds a block of a counter now."""
        return key in self._book.named

    # Taking

    def take(self, hits: Sequence[Hit]) -> Coroutine[Any, Any, Sequence[Decision]]:
        """See `CounterStore.take`; what it returns does not wait where blocks are enough."""
        for hit in hits:
            policy = hit[6]
            if policy is not None and policy.spread is not None and is_leasable(hit):
                return self._take(hits)
        # A plain function, which spares exact limits a coroutine.
        self._until_sample -= 1
        if self._until_sample < 0:
            self._sample(hits)
        return self.store.take(hits)

    def refuse_now(self, hit: Hit) -> Sequence[Decision] | None:
        """See `LeasingStore.refuse_now`."""
        policy = hit[6]
        if policy is not None and policy.spread is not None and is_leasable(hit):  # its blocks are spent first
            return None
        known = self._denied_now(hit)
        if known is not None:
            self._until_sample -= 1
            if self._until_sample < 0:
                self._sample((hit,))
        return known

    async def _take(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        held = self.take_held(hits)
        if held is not None:
            return held
        spent: dict[int, Spent] = {}
        leftover: list[Receipt] = []
        for hit in hits:
            if hit[0] in self.held:
                spent, leftover = self._book.spend_some(hits)
                break
        others = hits if not spent else [hit for index, hit in enumerate(hits) if index not in spent]
        try:
            if leftover:
                await self._return(leftover)
            decided = await self.store.take(others) if others else ()
        except BaseException:
            self._book.unspend(spent.values())
            raise
        for hit, decision in zip(others, decided, strict=True):
            if is_leasable(hit):
                self._book.note(hit, decision)
        if not spent:
            return decided
        return self._combined(hits, spent, decided)

    def _combined(self, hits: Sequence[Hit], spent: dict[int, Spent], decided: Sequence[Decision]) -> list[Decision]:
        """The decisions of a request of which some hits were spent from blocks."""
        if all(decision.allowed for decision in decided):
            answers: list[Decision] = [each.answer for each in spent.values()]
        else:
            answers = [*self._book.unspend(spent.values())]
        here, there = dict(zip(spent, answers, strict=True)), iter(decided)
        return [here[index] if index in here else next(there) for index in range(len(hits))]

    def _sample(self, hits: Sequence[Hit]) -> None:
        self._until_sample = random.randrange(2 * _SAMPLED)  # noqa: S311 (no secret: it keeps step with no pattern)
        now = self._clock()
        with self._book.lock:
            for hit in hits:
                self._book.demand.add(hit.key, hit.cost * _SAMPLED, now)

    def held_path(self, meters: Mapping[str, Mapping[object, Meter]], slow_path: HeldHitFunction) -> HeldHitFunction:
        """See `LeasingStore.held_path`."""
        return held_path(self._book, meters, slow_path)

    # In the background

    async def _tend(self) -> float | None:
        """Ask for blocks, and give back what has ended; returns in how many seconds there is more to do."""
        owed = self._book.due()
        wanted = [] if self._is_closing else self._book.requested(self.processes())
        steps = [self._grant(request, size) for request, size in wanted]
        if owed:
            steps.append(self._return(owed))
        try:
            await self._do_all(steps)
        except BaseException:  # a defect, or the end: of what was not granted there may be another request
            for request, _ in wanted:
                self._book.not_granted(request.key)
            raise
        due = None if self._is_closing else self._book.next_due()
        return None if due is None else max(0.0, (due - self._clock()) * _NANOSECOND)

    async def _do_all(self, steps: Sequence[Coroutine[Any, Any, None]]) -> None:
        """Do all steps; an error of one is raised when the others are done."""
        if self._blocks:
            results = [await _outcome(step) for step in steps]
        else:
            results = await asyncio.gather(*[_outcome(step) for step in steps])
        for error in results:
            if error is not None:
                raise error

    async def _grant(self, request: BlockRequest, size: int) -> None:
        hit = Hit(request.key, request.meter, size, failure_policy=grant_policy(request.policy))
        sent = self._clock()
        try:
            (decision,) = await self.store.take((hit,))
        except (StoreError, Overloaded):
            self._refused += 1
            self._book.not_granted(request.key)
            return
        if is_grant(decision) and not self._is_closing:
            if self._book.granted(LeaseBlock(hit, request.policy, decision, sent, self._clock())):
                self._granted += 1
                self._granted_units += size
            return
        self._refused += 1
        self._book.not_granted(request.key)
        if decision.allowed and decision.source in {Source.STORE, Source.DEGRADED_LOCAL}:
            await self.store.give_back([Receipt(hit.key, hit.meter, decision.stamp, size, NO_NAME)])

    async def _return(self, unspent: Sequence[Receipt]) -> None:
        self._returned_units += sum(receipt.amount for receipt in unspent)
        await self.store.give_back(unspent)

    # Everything else

    async def peek(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        """See `CounterStore.peek`. Blocks that are not enough go back first, so that the store's answer is whole."""
        held = self._book.peek(hits)
        if held is not None:
            return held
        leftover = self._book.withdraw([hit.key for hit in hits])
        if leftover:
            await self._return(leftover)
        return await self.store.peek(hits)

    async def give_back(self, receipts: Sequence[Receipt]) -> None:
        """See `CounterStore.give_back`. What is held of the same counters goes back too: much may have changed."""
        leftover = self._book.withdraw([receipt.key for receipt in receipts])
        self._returned_units += sum(receipt.amount for receipt in leftover)
        await self.store.give_back([*receipts, *leftover])

    async def reset(self, keys: Sequence[Key]) -> None:
        """See `CounterStore.reset`. What is held of these counters is void."""
        self._book.drop(keys)
        await self.store.reset(keys)

    async def close(self) -> None:
        """See `CounterStore.close`. What is held goes back."""
        self._is_closing = True
        await self._worker.stop()
        leftover = self._book.withdraw_all()
        try:
            if leftover:
                await self._return(leftover)
        finally:
            await self.store.close()

    def reset_after_fork(self) -> None:
        """In a forked child: what is held is its parent's."""
        self._book.reset_after_fork()
        self._worker.reset_after_fork()


def _nothing_known(_hit: Hit) -> None:
    """In place of an answer: the store remembers no denials."""


async def _outcome(step: Coroutine[Any, Any, None]) -> Exception | None:
    try:
        await step
    except Exception as error:  # noqa: BLE001 (it is raised again)
        return error
    return None


_stores: weakref.WeakSet[Leased] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for store in _stores:
        store.reset_after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)
