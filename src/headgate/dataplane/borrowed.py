"""Blocks that a region has borrowed from home (`spread: {regions: borrow}`); `core.borrow` has the policy.

A hit is taken from the block that this process holds. If that has too little, one caller asks home for another block
and the others wait for it; a block that is half spent is renewed in the background. What is not spent within a
`HORIZON` without demand is given back to home, and so is everything when the store is closed. While home does
not answer, this process goes on with what it holds. With more than `MAX_BLOCKS` counters in use, the others are
counted at home.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.core.borrow import HORIZON, FromBlock, Grant, block_size, ends_at, is_worth_it
from headgate.core.decision import Receipt
from headgate.core.denial import is_same_meter
from headgate.core.ids import new_id
from headgate.core.shards import Share, read_stamps, written
from headgate.core.units import SECOND
from headgate.dataplane.borrowed_block import BorrowedBlock
from headgate.errors import HeadgateError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from headgate.core.decision import Decision, Hit, Key
    from headgate.core.units import Micros
    from headgate.ports import CounterStore

log = logging.getLogger("headgate")

MAX_BLOCKS: Final = 10_000
_AT_ONCE: Final = 256
"""How many grants go back in one call."""


class BorrowedDecision(NamedTuple):
    """An answer, and the units of which grants were taken for it."""

    decision: Decision
    grants: list[Grant]


class Borrower:
    """The blocks that this process holds of one home region's counters."""

    def __init__(self, home: CounterStore, name: str, regions: int, clock: Callable[[], Micros]) -> None:
        """`home` is the store of the region `name`; `regions` is how many borrow there; `clock` is monotonic."""
        self._home = home
        self._name = name
        self._regions = regions
        self._clock = clock
        self._blocks: OrderedDict[Key, BorrowedBlock] = OrderedDict()
        """The least recently used come first."""
        self._owed: list[Receipt] = []
        """What goes back to home."""
        self._tending: asyncio.Task[Any] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_home_silent = False

    @property
    def outstanding(self) -> int:
        """How many units are borrowed and not spent."""
        now = self._clock()
        return sum(block.left(now) for block in self._blocks.values())

    async def take(self, hit: Hit) -> BorrowedDecision:
        """Take a hit from the block, which is made large enough if home has something left."""
        if not hit.cost and not hit.forced:
            return BorrowedDecision(await self.peek(hit), [])
        if hit.forced or not is_worth_it(hit.meter):
            return await self._from_home(hit)
        block = self._blocks.get(hit.key)
        if block is None:
            if len(self._blocks) >= MAX_BLOCKS:
                return await self._from_home(hit)
            block = self._blocks[hit.key] = BorrowedBlock(hit.meter, self._clock())
        self._tend()
        block.users += 1
        try:
            if not is_same_meter(hit.meter, block.meter):
                await self._change(hit, block)
            return await self._from_block(hit, block)
        finally:
            block.users -= 1
            self._owe(hit.key, block)

    async def _change(self, hit: Hit, block: BorrowedBlock) -> None:
        """A limit has changed: what is held of the former one goes back before anything is asked for."""
        block.withdraw()
        self._owe(hit.key, block)
        block.meter = hit.meter
        await asyncio.shield(self._start(self._return_owed()))  # of all counters, so no caller ends it

    async def _from_block(self, hit: Hit, block: BorrowedBlock) -> BorrowedDecision:
        if block.left(self._clock()) < hit.cost:
            refused = await self._enlarge(hit, block)
            if refused is not None:
                return BorrowedDecision(refused._replace(remaining=refused.remaining + block.left(self._clock())), [])
        now = self._clock()
        if block.left(now) < hit.cost:  # others were faster, or it ended while home was asked
            return await self._from_home(hit)
        block.used_at = now
        if self._blocks.get(hit.key) is block:  # else it was reset meanwhile
            self._blocks.move_to_end(hit.key)
        taken = block.spend(hit.cost)
        left = block.left(now)
        if 2 * left < block.size and not block.is_renewing():
            block.renewing = self._start(self._renew(hit, block))
        reset_after = max(0, block.reset_at - now)
        at = now + block.ahead
        return BorrowedDecision(FromBlock(True, left + block.left_at_home, reset_after, 0, 0, _stamp(taken), at), taken)  # noqa: FBT003 (the first field)

    async def _enlarge(self, hit: Hit, block: BorrowedBlock) -> Decision | None:
        """Make a block large enough for a hit; the refusal, if home has too little."""
        refusals, failures = block.refusals, block.failures
        async with block.lock:  # one asks, and the others wait for what it gets, a refusal or an outage too
            missing = hit.cost - block.left(self._clock())
            if missing <= 0:
                return None
            refused = block.refused_same(hit._replace(cost=missing), refusals)
            if refused is not None:
                return refused
            if block.failed is not None and block.failures > failures:
                raise block.failed
            # The block that a cancelled caller has requested still arrives, and is held.
            return await asyncio.shield(self._start(self._ask_for_block(hit, block, missing)))

    async def _ask_for_block(self, hit: Hit, block: BorrowedBlock, missing: int) -> Decision | None:
        block.users += 1
        try:
            return await self._borrow(hit, block, missing)
        except HeadgateError as error:
            block.failed = error
            block.failures += 1
            raise
        finally:
            block.users -= 1

    async def _from_home(self, hit: Hit) -> BorrowedDecision:
        """Take a hit from home itself."""
        sent = self._clock()
        decision = await self._ask_home(hit)
        if not decision.allowed:
            return BorrowedDecision(decision, [])
        ends = ends_at(hit.meter, sent, decision.reset_after)
        taken = [Grant(decision.stamp, hit.cost, ends, new_id())]
        return BorrowedDecision(decision._replace(stamp=_stamp(taken)), taken)

    async def _borrow(self, hit: Hit, block: BorrowedBlock, missing: int) -> Decision | None:
        """Borrow at least what is missing; the refusal, if home has too little."""
        sent = self._clock()
        size = block_size(block.spent, sent - block.asked_at, block.left_at_home, self._regions)
        decision = await self._ask_home(hit._replace(cost=max(missing, size)))
        if not decision.allowed and size > missing:
            size = missing
            decision = await self._ask_home(hit._replace(cost=missing))
        block.left_at_home = decision.remaining
        now = self._clock()
        block.reset_at = now + decision.reset_after
        block.ahead = decision.at - now
        if not decision.allowed:
            block.refused = hit._replace(cost=missing), decision
            block.refusals += 1
            return decision
        units = max(missing, size)
        # On too few replicas: each hit then asks home, and is marked. The limit has changed meanwhile: ask again.
        if not decision.is_replicated or not is_same_meter(hit.meter, block.meter):
            await self._return([Receipt(hit.key, hit.meter, decision.stamp, units, "")])
            return None
        ends = ends_at(hit.meter, sent, decision.reset_after)
        block.grants.append(Grant(decision.stamp, units, ends, new_id()))
        block.spent, block.asked_at, block.size = 0, sent, units
        return None

    async def _renew(self, hit: Hit, block: BorrowedBlock) -> None:
        """Borrow again before the block is spent; if home has nothing, the next hit reports it."""
        async with block.lock:
            try:
                await self._borrow(hit, block, 1)
            except HeadgateError as error:
                log.debug("block not renewed: home region %s, %s", self._name, error)

    async def _ask_home(self, hit: Hit) -> Decision:
        try:
            (decision,) = await self._home.take([hit])
        except StoreError as error:
            if not self._is_home_silent and error.transient:
                self._is_home_silent = True
                units = self.outstanding
                log.warning("home region unavailable: %s, %d units held here: %s", self._name, units, error)
            raise
        if self._is_home_silent:
            self._is_home_silent = False
            log.warning("home region recovered: %s, %d units held here", self._name, self.outstanding)
        return decision

    async def peek(self, hit: Hit) -> Decision:
        """What taking a hit would answer: by the block and, beyond that, by home."""
        block = self._blocks.get(hit.key)
        if block is None:
            return await self._peek(hit, 0)
        async with block.lock:  # what is on its way would count twice, or not at all; but peeks do not wait for peeks
            left = block.left(self._clock())
        return await self._peek(hit, left)

    async def _peek(self, hit: Hit, left: int) -> Decision:
        from_home = max(0, hit.cost - left)
        (decision,) = await self._home.peek([hit._replace(cost=from_home)])
        unspent = left if not decision.allowed else left - (hit.cost - from_home)
        return decision._replace(remaining=decision.remaining + unspent)

    def put_back(self, hit: Hit, taken: BorrowedDecision) -> None:
        """Undo a take at once: its units are in the block again; without one of the same limit they go back to home."""
        block = self._blocks.get(hit.key)
        if block is None or not is_same_meter(hit.meter, block.meter):
            self._owed += [Receipt(hit.key, hit.meter, grant.stamp, grant.left, grant.id) for grant in taken.grants]
            self._tend()
            return
        block.spent = max(0, block.spent - hit.cost)
        block.grants[:0] = taken.grants

    def receipts(self, receipt: Receipt) -> list[Receipt]:
        """The receipts with which home gets an admission back."""
        if not isinstance(receipt.stamp, str):
            return [receipt]
        left = receipt.amount
        found = []
        for number, (units, stamp) in enumerate(reversed(read_stamps(receipt.stamp))):
            credit = min(left, units)
            left -= credit
            found.append(receipt._replace(stamp=stamp, amount=credit, id=receipt.id and f"{receipt.id}.{number}"))
        return found

    def forget(self, key: Key) -> None:
        """Spend nothing more of what is held of a counter."""
        self._blocks.pop(key, None)

    # Giving back what is not needed

    def _start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _tend(self) -> None:
        loop = asyncio.get_running_loop()
        if self._tending is None or self._tending.done() or self._tending.get_loop() is not loop:
            self._tending = self._start(self._return_now_and_then())

    async def _return_now_and_then(self) -> None:
        while self._blocks or self._owed:
            await asyncio.sleep(HORIZON / SECOND)
            await self.return_unused()

    def _owe(self, key: Key, block: BorrowedBlock) -> None:
        """Note what of a block was not spent in time."""
        if block.ended:
            self._owed += [Receipt(key, block.meter, grant.stamp, grant.left, grant.id) for grant in block.ended]
            block.ended = []

    async def return_unused(self, *, everything: bool = False) -> None:
        """Give back to home blocks that no hit has used for a while, and what was not spent in time."""
        now = self._clock()
        for key, block in list(self._blocks.items()):
            is_idle = now - block.used_at >= HORIZON
            if not is_idle and not everything:
                break
            block.withdraw()
            self._owe(key, block)
            if is_idle and not block.is_in_use():
                del self._blocks[key]
        await self._return_owed()

    async def _return_owed(self) -> None:
        owed, self._owed = self._owed, []
        for first in range(0, len(owed), _AT_ONCE):
            await self._return(owed[first : first + _AT_ONCE])

    async def _return(self, receipts: list[Receipt]) -> None:
        try:
            await self._home.give_back(receipts)
        except HeadgateError as error:
            # It stays counted at home until its time is over: too much is counted, never too little.
            log.debug("unused units not given back: home region %s, %s", self._name, error)

    async def close(self) -> None:
        """Give back everything, also what is being borrowed."""
        if self._tending is not None:
            self._tending.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self.return_unused(everything=True)


def _stamp(taken: list[Grant]) -> str:
    return written([Share(0, grant.left) for grant in taken], [grant.stamp for grant in taken])
