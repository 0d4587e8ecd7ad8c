"""The blocks that this process holds, and what has to be asked of the store for them.

Nothing here waits. Spending happens in the thread of the caller; what is owed to the store (blocks that are wanted,
units that go back) is noted, and `headgate.dataplane.leased` does it. All under one lock.
"""

from __future__ import annotations

import threading
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from headgate.core.decision import Decision, Receipt
from headgate.core.demand import Demand
from headgate.core.denial import is_same_meter
from headgate.core.keys import plain_hit
from headgate.core.lease import NO_NAME, BlockRequest, FromLease, LeaseBlock, Spent, block_size, is_hot, is_leasable
from headgate.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from headgate.core.decision import Hit, Key
    from headgate.core.denial import Nanos

MAX_BLOCKS: Final = 4_096
"""Counters with blocks; more are exact."""
_new = tuple.__new__  # half the time of FromLease(...)


class LeaseBook:
    """Blocks by counter."""

    def __init__(self, clock: Callable[[], Nanos], on_work: Callable[[], None] = lambda: None) -> None:
        """`clock` is monotonic; `on_work` is called when something is owed to the store."""
        self.clock = clock
        self.lock = threading.RLock()  # may be asked for again by a signal's handler in the same thread
        self.named: dict[Key, LeaseBlock] = {}
        self.bare: dict[str, dict[str, LeaseBlock]] = {}
        """The same, of bare keys, by the code of their limit and the key: a name less to build."""
        self.demand = Demand(clock())
        self.hits = 0
        """Requests that were answered from blocks; under threads, nearly."""
        self.expired = 0
        """Units that were not spent in time, and went back."""
        self._on_work = on_work
        self._requested: dict[Key, BlockRequest] = {}
        self._in_flight: dict[Key, bool] = {}
        """Counters for which a block was asked; False if it must not be used any more."""
        self._owed: list[Receipt] = []
        self._ends: list[tuple[Nanos, int, LeaseBlock]] = []
        self._number = 0

    @property
    def outstanding(self) -> int:
        """Units that are counted in the store and not spent."""
        with self.lock:
            return sum(block.left for first in self.named.values() for block in _chain(first))

    # Spending

    def take(self, hits: Sequence[Hit]) -> Sequence[Decision] | None:
        """Spend all hits of a request from blocks; None if one of them has no block with room, and nothing is spent."""
        if len(hits) != 1:
            return self._take_several(hits)
        hit = hits[0]
        key, meter, cost, _, _, _, policy = hit
        block = self.named.get(key)
        if block is None:
            return None
        self.lock.acquire()  # half the time of `with`
        try:
            now = self.clock()
            left = block.left - cost
            if left < 0 or now >= block.ends or meter is not block.meter or policy is not block.policy:
                fitting = self._fitting(hit, now)
                if fitting is None:
                    return None
                block = fitting
                left = block.left - cost
            block.left = left
            reset_after = (block.reset_at - now) // 1_000
            if reset_after < 0:  # noqa: PLR1730 (on every call, and max() takes twice as long)
                reset_after = 0
            at = block.clock + now // 1_000
            answer = _new(FromLease, (True, block.beyond + left, reset_after, 0, 0, block.stamp, at))
            self.hits += 1
            if left <= block.low:
                self._want_next(block, now)
        finally:
            self.lock.release()
        return (answer,)

    def _take_several(self, hits: Sequence[Hit]) -> Sequence[Decision] | None:
        with self.lock:
            now = self.clock()
            blocks: list[LeaseBlock] = []
            for hit in hits:
                block = self._fitting(hit, now)
                if block is None:
                    return None
                blocks.append(block)
            _check_different(hits)
            self.hits += 1
            return [self._spend(block, hit.cost, now) for block, hit in zip(blocks, hits, strict=True)]

    def _spend(self, block: LeaseBlock, cost: int, now: Nanos) -> FromLease:
        answer = block.answer(cost, now)
        block.left -= cost
        if block.left <= block.low:
            self._want_next(block, now)
        return answer

    def _fitting(self, hit: Hit, now: Nanos) -> LeaseBlock | None:
        """The block that a hit can be spent from; the next one takes its place if the present one cannot do it."""
        block = self.named.get(hit.key)
        if block is None or not is_same_meter(hit.meter, block.meter):
            return None
        if hit.failure_policy is not block.policy:
            if hit.failure_policy is None or not is_leasable(hit):
                return None
            block.policy = hit.failure_policy  # the same rule, compiled again
        while hit.cost > block.left or now >= block.ends:
            successor = block.next
            if successor is None:
                return None
            successor.beyond += block.left  # which goes back
            self._retire(block, now)
            self._put(successor)
            block = successor
        return block

    def spend_some(self, hits: Sequence[Hit]) -> tuple[dict[int, Spent], list[Receipt]]:
        """Spend those hits that have a block with room, by index; what is left in the blocks of the others goes back.

        So the store decides the others as if this process held nothing of them.
        """
        spent: dict[int, Spent] = {}
        with self.lock:
            _check_different(hits)
            now = self.clock()
            for index, hit in enumerate(hits):
                block = self._fitting(hit, now)
                if block is not None:
                    spent[index] = Spent(block, hit.cost, self._spend(block, hit.cost, now))
            others = [hit.key for index, hit in enumerate(hits) if index not in spent]
            self.hits += not others
            return spent, self.withdraw(others)

    def unspend(self, spent: Iterable[Spent]) -> list[FromLease]:
        """Put back what was spent for a request that is refused; returns how its counters stand."""
        answers: list[FromLease] = []
        with self.lock:
            for block, cost, answer in spent:
                answers.append(FromLease(*answer._replace(remaining=answer.remaining + cost)))
                if any(block is held for held in _chain(self.named.get(block.key))):
                    block.left += cost
                elif cost:  # it went back without this part
                    self._owed.append(Receipt(block.key, block.meter, block.stamp, cost, NO_NAME))
                    self._on_work()
        return answers

    def peek(self, hits: Sequence[Hit]) -> Sequence[Decision] | None:
        """What `take` would answer, spending nothing; None where the store must answer."""
        with self.lock:
            now = self.clock()
            answers: list[Decision] = []
            for hit in hits:
                block = self._fitting(hit, now)
                if block is None:
                    return None
                answers.append(block.answer(hit.cost, now))
            return answers or None

    # Blocks that are wanted

    def note(self, hit: Hit, decision: Decision) -> None:
        """The store has decided a hit that may be spent from blocks: ask for one, if the counter is hot enough."""
        with self.lock:
            key, meter, cost, _, _, _, policy = hit
            used = self.demand.add(key, cost, self.clock())
            if decision.__class__ is Decision and decision.allowed and policy is not None and is_hot(policy, used):
                self._want(BlockRequest(key, meter, policy, used, decision))

    def _want_next(self, block: LeaseBlock, now: Nanos) -> None:
        block.low = -1
        used = self._note_used(block, now)
        if block.next is None:
            self._want(BlockRequest(block.key, block.meter, block.policy, used, block.answer(block.left, now)))

    def _want(self, request: BlockRequest) -> None:
        present = self.named.get(request.key)
        has_enough = len(self.named) >= MAX_BLOCKS if present is None else present.next is not None
        if has_enough or request.key in self._in_flight:
            return
        self._requested[request.key] = request
        self._on_work()

    def requested(self, processes: int) -> list[tuple[BlockRequest, int]]:
        """Blocks to be asked for now, with their sizes. Each ends with `granted` or `not_granted`."""
        with self.lock:
            sized = [
                (request, block_size(request.policy, request.used, request.meter, request.known, processes))
                for request in self._requested.values()
            ]
            self._requested.clear()
            wanted = [each for each in sized if each[1]]
            self._in_flight.update((request.key, True) for request, _ in wanted)
            return wanted

    def granted(self, block: LeaseBlock) -> bool:
        """Hold a block; False if the counter was reset since it was asked for, so that it is void."""
        with self.lock:
            if not self._in_flight.pop(block.key, False):
                return False
            present = self.named.get(block.key)
            if present is not None and not is_same_meter(present.meter, block.meter):
                self._owed += self.withdraw([block.key])
                present = None
            if present is None:
                self._put(block)
            else:  # which has none that follows: one is asked for at a time
                present.next = block
                present.beyond = block.beyond + block.size
            self._number += 1
            heappush(self._ends, (block.ends, self._number, block))
            return True

    def not_granted(self, key: Key) -> None:
        """A block was asked for in vain."""
        with self.lock:
            self._in_flight.pop(key, None)

    # Blocks that end

    def due(self) -> list[Receipt]:
        """What has to go back now: unspent parts of blocks that have ended, and what was left over."""
        with self.lock:
            now = self.clock()
            while self._ends and self._ends[0][0] <= now:
                block = heappop(self._ends)[2]
                self.expired += block.left
                self._retire(block, now)
                first = self.named.get(block.key)
                if first is block and block.next is not None:
                    self._put(block.next)
                elif first is block:
                    self._remove(block.key)
                elif first is not None and first.next is block:
                    first.next = None
            owed, self._owed = self._owed, []
            return owed

    def next_due(self) -> Nanos | None:
        """When the next block ends; None if there is none, and now if something is owed already."""
        with self.lock:
            if self._owed or self._requested:
                return self.clock()
            return self._ends[0][0] if self._ends else None

    def withdraw(self, keys: Iterable[Key]) -> list[Receipt]:
        """Take blocks out of use; returns what is left in them, to be given back."""
        with self.lock:
            now = self.clock()
            receipts: list[Receipt] = []
            for key in keys:
                for block in _chain(self.named.get(key)):
                    self._note_used(block, now)
                    unspent = block.unspent()
                    receipts += [] if unspent is None else [unspent]
                self._remove(key)
            return receipts

    def withdraw_all(self) -> list[Receipt]:
        """Take all blocks out of use; returns what is left in them, and what was owed already."""
        with self.lock:
            owed, self._owed = self._owed, []
            self._requested.clear()
            self._ends.clear()
            return [*owed, *self.withdraw([*self.named])]

    def drop(self, keys: Iterable[Key]) -> None:
        """Counters are reset: what was granted of them is void, and so is what is being asked for."""
        with self.lock:
            void = frozenset(keys)
            for key in void:
                for block in _chain(self.named.get(key)):
                    block.unspent()
                self._remove(key)
                self._requested.pop(key, None)
                if key in self._in_flight:
                    self._in_flight[key] = False
            self._owed = [receipt for receipt in self._owed if receipt.key not in void]

    def reset_after_fork(self) -> None:
        """In a forked child: the blocks are its parent's."""
        self.lock = threading.RLock()
        self.named.clear()
        self.bare.clear()
        self._requested.clear()
        self._in_flight.clear()
        self._owed.clear()
        self._ends.clear()

    def _note_used(self, block: LeaseBlock, now: Nanos) -> int:
        units, passed = block.used_since_noted(now)
        return self.demand.add(block.key, units, now, passed)

    def _retire(self, block: LeaseBlock, now: Nanos) -> None:
        """A block is used up, or has ended: what is left of it goes back."""
        self._note_used(block, now)
        unspent = block.unspent()
        if unspent is not None:
            self._owed.append(unspent)
            self._on_work()

    def _put(self, block: LeaseBlock) -> None:
        self.named[block.key] = block
        plain = plain_hit(block.key)
        if plain is not None:
            self.bare.setdefault(plain[0], {})[plain[1]] = block

    def _remove(self, key: Key) -> None:
        if self.named.pop(key, None) is not None:
            plain = plain_hit(key)
            if plain is not None:
                of_limit = self.bare[plain[0]]
                del of_limit[plain[1]]
                if not of_limit:
                    del self.bare[plain[0]]


def _chain(block: LeaseBlock | None) -> Iterable[LeaseBlock]:
    """A block and the one that follows it."""
    while block is not None:
        yield block
        block = block.next


def _check_different(hits: Sequence[Hit]) -> None:
    if len(hits) > 1 and len({hit.key for hit in hits}) < len(hits):
        msg = "two hits of one request name the same counter"
        raise StoreError(msg, transient=False)
