"""Regional: limits that several regions share (`spread: {regions: …}`).

Wraps this region's store, and knows the stores of the others. Hits of rules without regions go through.

    central   counted on the home region's store, wherever the request is
    split     counted here, by this region's share of the limit
    gossip    counted here and exchanged; see `gossip`
    borrow    taken from a block that was borrowed from home; see `borrowed`

A request's hits are still all taken or none: first what is borrowed, then what is counted here, then what is counted
elsewhere; if one refuses, the others are given back. It is below `Guarded`: a region that does not answer is
an outage of the rules that need it, and of no other.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from headgate.core.decision import Decision, undoing
from headgate.core.keys import is_companion
from headgate.core.regions import MARK, read_share_stamp, sharing_of, without_region
from headgate.core.spread import RegionMode
from headgate.dataplane.borrowed import Borrower
from headgate.dataplane.gossip import DEFAULT_SECONDS, Gossip, receipts_here
from headgate.dataplane.regional_request import RegionalRequest, unknown_decision
from headgate.errors import HeadgateError, NotFound, PartlyAnswered, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from headgate.core.decision import Hit, Key, Receipt
    from headgate.core.units import Micros
    from headgate.dataplane.borrowed import BorrowedDecision
    from headgate.ports import CounterStore, SharedStore

log = logging.getLogger("headgate")
_NO_SHARES: Final[Mapping[str, int]] = {}


class Regional:
    """A `CounterStore` for one of several regions."""

    def __init__(
        self,
        store: SharedStore,
        region: str,
        others: Mapping[str, CounterStore],
        clock: Callable[[], Micros],
        seconds: float = DEFAULT_SECONDS,
        *,
        wall_clock: Callable[[], Micros] | None = None,
    ) -> None:
        """`store` is that of `region`; `seconds` is the interval at which counts are exchanged.

        `clock` is monotonic: no step of the wall clock prolongs a block, or the report of a region. The wall clock
        dates answers that no store gave; without one it is `clock`, as in tests.
        """
        self.store = store
        self.region = region
        self.others = others
        self.gossip = Gossip(store, region, others, clock, seconds)
        self.borrowers = {name: Borrower(other, name, 1 + len(others), clock) for name, other in others.items()}
        self.clock = clock
        self.wall_clock = wall_clock or clock
        self._tasks: set[asyncio.Task[None]] = set()

    def take(self, hits: Sequence[Hit]) -> Coroutine[Any, Any, Sequence[Decision]]:
        """See `CounterStore.take`."""
        # A plain function, which spares requests without such counters a coroutine.
        for hit in hits:
            if MARK in hit.key:
                return self._take(hits)
        return self.store.take(hits)

    def peek(self, hits: Sequence[Hit]) -> Coroutine[Any, Any, Sequence[Decision]]:
        """See `CounterStore.peek`."""
        for hit in hits:
            if MARK in hit.key:
                return self._peek(hits)
        return self.store.peek(hits)

    async def _take(self, hits: Sequence[Hit]) -> list[Decision]:
        await self._hear(hits)
        request = RegionalRequest(self, hits)
        progress = _Progress(dict(request.without_share))
        try:
            await self._take_borrowed(request, progress)
            if progress.goes_on():
                progress.answers |= await request.here(self.store, only_peek=False)
            await self._take_elsewhere(request, progress)
        except BaseException:  # an outage here, too much in flight, or the caller does not wait any more
            await self._undo(progress, request)
            raise
        answers, outage = progress.answers, progress.outage
        if not progress.goes_on():
            await self._undo(progress, request)
            if outage is not None and not outage.transient:
                raise outage
            answers |= await self._standing(hits, answers)
        elif outage is not None:
            raise PartlyAnswered(outage, [answers.get(hit.key) for hit in hits])
        return [answers[hit.key] for hit in hits]

    async def _take_borrowed(self, request: RegionalRequest, progress: _Progress) -> None:
        for hit, borrower in request.borrowed:
            if progress.goes_on():
                try:
                    taken = await borrower.take(hit)
                except StoreError as error:
                    progress.outage = error
                else:
                    progress.answers[hit.key] = taken.decision
                    progress.borrowed.append((hit, borrower, taken))

    async def _take_elsewhere(self, request: RegionalRequest, progress: _Progress) -> None:
        for region, theirs in request.elsewhere.items():
            if progress.goes_on():
                try:
                    progress.answers |= _by_key(theirs, await self.others[region].take(theirs))
                except StoreError as error:
                    progress.outage = error

    async def _undo(self, progress: _Progress, request: RegionalRequest) -> None:
        """Give back what was taken for a request that is refused. A store that refuses has counted nothing itself.

        It is done to the end, also where the caller is cancelled meanwhile.
        """
        progress.put_back()
        answers = progress.answers
        receipts = [
            undoing(hit, answers[hit.key])
            for group in (request.hits_here(), *request.elsewhere.values())
            if all(hit.key in answers and answers[hit.key].allowed for hit in group)
            for hit in group
            if hit.cost
        ]
        if receipts:
            undoing_it = asyncio.get_running_loop().create_task(self._give_back_if_possible(receipts))
            self._tasks.add(undoing_it)
            undoing_it.add_done_callback(self._tasks.discard)
            await asyncio.shield(undoing_it)

    async def _give_back_if_possible(self, receipts: Sequence[Receipt]) -> None:
        try:
            await self.give_back(receipts)
        except HeadgateError as error:
            # It stays charged until its time is over: too much is counted, never too little.
            log.debug("give-back after a denial failed: %s", error)

    async def _standing(self, hits: Sequence[Hit], answers: Mapping[Key, Decision]) -> dict[Key, Decision]:
        """How the counters stand that would have admitted their part of a refused request."""
        found: dict[Key, Decision] = {}
        for hit in hits:
            known = answers.get(hit.key)
            if known is None or known.allowed:
                try:
                    (found[hit.key],) = await self.peek([hit._replace(cost=0, forced=False)])
                except StoreError as error:
                    # It is refused all the same.
                    log.debug("peek after a denial failed: %s", error)
                    found[hit.key] = known or unknown_decision(self.wall_clock())
        return found

    async def _hear(self, hits: Sequence[Hit]) -> None:
        for hit in hits:
            is_shared = MARK in hit.key and not is_companion(hit.key)
            if is_shared and sharing_of(hit.key).mode is RegionMode.GOSSIP:
                await self.gossip.fetch_counts(hit)

    async def _peek(self, hits: Sequence[Hit]) -> list[Decision]:
        await self._hear(hits)
        request = RegionalRequest(self, hits)
        answers: dict[Key, Decision] = dict(request.without_share)
        answers |= await request.here(self.store, only_peek=True)
        for hit, borrower in request.borrowed:
            answers[hit.key] = await borrower.peek(hit)
        for region, theirs in request.elsewhere.items():
            answers |= _by_key(theirs, await self.others[region].peek(theirs))
        if len(hits) > 1 and not all(decision.allowed for decision in answers.values()):
            answers |= await self._standing(hits, answers)
        return [answers[hit.key] for hit in hits]

    # Everything else

    async def give_back(self, receipts: Sequence[Receipt]) -> None:
        """See `CounterStore.give_back`. What other regions have read already counts there until its period is over.

        `NotFound` if something was counted in a region that is not known here; then nothing is given back.
        """
        by_region: dict[str, list[Receipt]] = {}
        for receipt in receipts:
            region, mine = self._receipts(receipt)
            by_region.setdefault(region, []).extend(mine)
        for region, some in by_region.items():
            await (self.store if region == self.region else self.others[region]).give_back(some)

    def _receipts(self, receipt: Receipt) -> tuple[str, list[Receipt]]:
        """Where an admission was counted, and the receipts that are understood there."""
        if MARK not in receipt.key:
            return self.region, [receipt]
        mode, home = sharing_of(receipt.key)
        if home in self.others:
            return home, [receipt] if mode is RegionMode.CENTRAL else self.borrowers[home].receipts(receipt)
        counted_in, stamp = without_region(receipt.stamp)
        region = counted_in or self.region
        if region != self.region and region not in self.others:
            known = ", ".join([self.region, *self.others])
            msg = (
                f"this was counted in the region {region!r}, which this process does not know: {known}; refund it there"
            )
            raise NotFound(msg)
        if mode is RegionMode.SPLIT:
            meter, stamp = read_share_stamp(receipt.meter, stamp)
            return region, [receipt._replace(meter=meter, stamp=stamp)]
        if mode is RegionMode.GOSSIP:
            return region, receipts_here(receipt._replace(stamp=stamp))
        return self.region, [receipt]

    async def reset(self, keys: Sequence[Key]) -> None:
        """See `CounterStore.reset`. A counter that regions share is forgotten in all of them, or it is an error."""
        here = [key for key in keys if MARK not in key]
        everywhere: list[Key] = []
        for key in keys:
            if MARK in key:
                everywhere += self.gossip.names(key) if sharing_of(key).mode is RegionMode.GOSSIP else [key]
                self.gossip.forget(key)
                for borrower in self.borrowers.values():
                    borrower.forget(key)
        await self.store.reset([*here, *everywhere])
        if everywhere:
            for other in self.others.values():
                await other.reset(everywhere)

    async def present(self, name: str, seconds: float) -> int:
        """See `SharedStore.present`: the processes of this region."""
        return await self.store.present(name, seconds)

    async def close(self) -> None:
        """See `CounterStore.close`."""
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self.gossip.close()
        for borrower in self.borrowers.values():
            await borrower.close()
        for other in self.others.values():
            await other.close()
        await self.store.close()


class _Progress:
    """What was taken for a request so far."""

    def __init__(self, answers: dict[Key, Decision]) -> None:
        self.answers = answers
        self.borrowed: list[tuple[Hit, Borrower, BorrowedDecision]] = []
        self.outage: StoreError | None = None

    def goes_on(self) -> bool:
        """Whether nothing was refused so far, and nothing failed permanently."""
        is_open = self.outage is None or self.outage.transient
        return is_open and all(decision.allowed for decision in self.answers.values())

    def put_back(self) -> None:
        """Undo what was taken from blocks."""
        for hit, borrower, taken in self.borrowed:
            borrower.put_back(hit, taken)


def _by_key(hits: Sequence[Hit], decisions: Sequence[Decision]) -> dict[Key, Decision]:
    return {hit.key: decision for hit, decision in zip(hits, decisions, strict=True)}
