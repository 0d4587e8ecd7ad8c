"""Who waits for which counters, in order: one queue for each set of counters, and only its first waiter asks.

Nothing here waits or asks. Every step is short and under one lock, because threads and event loops share it.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from headgate.errors import Overloaded, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from headgate.core.decision import Decision, Hit, Key, Receipt
    from headgate.core.denial import Nanos
    from headgate.dataplane.wakers import Waker
    from headgate.ports import CounterStore

MAX_WAITERS: Final = 10_000
"""How many callers of one limiter may wait at a time, unless it is opened with another number."""


class Waiter:
    """One caller in a queue."""

    __slots__ = ("is_first", "is_retried", "queue", "waker")

    def __init__(self, queue: WaitQueue, waker: Waker) -> None:
        """Not in the queue yet."""
        self.queue = queue
        self.waker = waker
        self.is_first = False
        """Whether it is the one that asks."""
        self.is_retried = False
        """Whether something was given back since it asked: then it asks again at once."""


class WaitQueue:
    """Those who wait for the same counters."""

    __slots__ = ("asks_at", "counters", "waiters")

    def __init__(self, counters: tuple[Key, ...]) -> None:
        """Without waiters."""
        self.counters = counters
        self.waiters: OrderedDict[Waiter, None] = OrderedDict()
        self.asks_at: Nanos = 0
        """Before this none of them can be admitted, unless something is given back; 0 if that is not known."""


class WaitQueues:
    """All queues of one limiter."""

    def __init__(
        self,
        now: Callable[[], Nanos],
        waker: Callable[[], Waker],
        max_waiters: int = MAX_WAITERS,
        *,
        blocks: bool = False,
    ) -> None:
        """`now` is a clock that does not step, `waker` makes a waker for a new waiter.

        `blocks` says that the waiters are threads, which block instead of waiting on an event loop.
        """
        self.now = now
        self.blocks = blocks
        self._new_waker = waker
        self._max_waiters = max_waiters
        self._lock = threading.RLock()  # a signal's handler may want it in the same thread
        self._queues: dict[tuple[Key, ...], WaitQueue] = {}
        self._by_counter: dict[Key, dict[WaitQueue, None]] = {}
        self._is_closed = False
        self.waiting = 0
        """How many callers are in all queues, those that ask included."""
        _all.add(self)

    def join(self, counters: tuple[Key, ...]) -> Waiter:
        """Be the last of the queue for these counters; `Overloaded` if too many wait already."""
        with self._lock:
            self.check_open()
            if self.waiting >= self._max_waiters:
                msg = (
                    f"{self._max_waiters} callers of this limiter are waiting already; start fewer at a time, "
                    "or open the limiter with a higher max_waiters"
                )
                raise Overloaded(msg)
            queue = self._queues.get(counters)
            if queue is None:
                queue = self._queues[counters] = WaitQueue(counters)
                for counter in counters:
                    self._by_counter.setdefault(counter, {})[queue] = None
            waiter = Waiter(queue, self._new_waker())
            waiter.is_first = not queue.waiters
            queue.waiters[waiter] = None
            self.waiting += 1
            return waiter

    def leave(self, waiter: Waiter) -> None:
        """Leave the queue, admitted or not; the next one becomes the first. Does nothing if it has left."""
        queue = waiter.queue
        with self._lock:
            if waiter not in queue.waiters:
                return
            del queue.waiters[waiter]
            self.waiting -= 1
            if not queue.waiters:
                self._remove(queue)
            elif waiter.is_first:
                queue.asks_at = 0
                first = next(iter(queue.waiters))
                first.is_first = True
                first.waker.wake()

    def _remove(self, queue: WaitQueue) -> None:
        del self._queues[queue.counters]
        for counter in queue.counters:
            of_counter = self._by_counter[counter]
            del of_counter[queue]
            if not of_counter:
                del self._by_counter[counter]

    def retry(self, counters: Iterable[Key]) -> None:
        """Something was given back to these counters: the first waiter of each of their queues asks at once."""
        if not self.waiting:  # nearly always
            return
        with self._lock:
            for counter in counters:
                for queue in self._by_counter.get(counter, ()):
                    first = next(iter(queue.waiters))
                    first.is_retried = True
                    first.waker.wake()

    def close(self) -> None:
        """Wake all waiters; they get a `StoreError`, and so do later ones."""
        with self._lock:
            self._is_closed = True
            for queue in self._queues.values():
                for waiter in queue.waiters:
                    waiter.waker.wake()

    def check_open(self) -> None:
        """Raise `StoreError` once the limiter is closed."""
        if self._is_closed:
            msg = "the limiter was closed; nothing can be acquired from it any more"
            raise StoreError(msg, transient=False)

    def reset_after_fork(self) -> None:
        """In a forked child: those who wait are threads of the parent."""
        self._lock = threading.RLock()
        for queue in self._queues.values():
            queue.waiters.clear()
        self._queues.clear()
        self._by_counter.clear()
        self.waiting = 0


class RetryingStore:
    """A `CounterStore` that has waiters ask again when something is given back through it."""

    def __init__(self, store: CounterStore, queues: WaitQueues) -> None:
        """All calls go to `store`."""
        self.store = store
        self._queues = queues

    async def take(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        """See `CounterStore.take`."""
        return await self.store.take(hits)

    async def peek(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        """See `CounterStore.peek`."""
        return await self.store.peek(hits)

    async def give_back(self, receipts: Sequence[Receipt]) -> None:
        """See `CounterStore.give_back`."""
        try:
            await self.store.give_back(receipts)
        finally:  # also if the answer did not arrive: it may have been done
            self._queues.retry(receipt.key for receipt in receipts)

    async def reset(self, keys: Sequence[Key]) -> None:
        """See `CounterStore.reset`."""
        try:
            await self.store.reset(keys)
        finally:
            self._queues.retry(keys)

    async def close(self) -> None:
        """See `CounterStore.close`; those who wait get a `StoreError`."""
        self._queues.close()
        await self.store.close()


_all: weakref.WeakSet[WaitQueues] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for queues in _all:
        queues.reset_after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)
