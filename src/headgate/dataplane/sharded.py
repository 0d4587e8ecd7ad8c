"""Sharded: a counter that one server could not serve alone, in parts on several servers (`spread: {shards: N}`).

Wraps a store whose keys are on several servers. A hit on a counter in parts becomes a hit on one of the parts; all
other hits go through. Each process takes from one part for a while and then moves on, server by server, so that all
servers get the same load whatever the number of processes. If that part has too little, all parts are asked, and the
cost is taken from one that has enough, or from several, all or nothing. It is refused only when all parts together
have too little. `core.shards` has the arithmetic, `core.shard_view` the last known state of the parts.

A part whose server does not answer is left out: the limit is then smaller by that part. Where the others have too
little, the answer is unknown, and the rule's `on_store_error` decides.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from random import SystemRandom
from typing import TYPE_CHECKING, Any, Final

from headgate.core.decision import undoing
from headgate.core.keys import is_companion
from headgate.core.shard_view import MAX_AGE, ShardView
from headgate.core.shards import MARK, Share, part_names, part_receipts
from headgate.errors import PartlyAnswered, StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Hashable, Sequence

    from headgate.core.decision import Decision, Hit, Key, Receipt
    from headgate.core.units import Micros
    from headgate.ports import SharedStore

log = logging.getLogger("headgate")

MAX_VIEWS: Final = 1_024
_STINT: Final = 64
"""How many hits in a row go to one part: as many as travel in one call."""
_TRIES_BEYOND_PARTS: Final = 3
_random = SystemRandom()


class Sharded:
    """A `CounterStore` that splits counters over the servers of another one."""

    def __init__(self, store: SharedStore, server_of: Callable[[Key], Hashable], clock: Callable[[], Micros]) -> None:
        """`server_of` says where a key is now; `clock` is this process's, and dates what the parts report."""
        self.store = store
        self.clock = clock
        self._server_of = server_of
        self._views: OrderedDict[Key, ShardView] = OrderedDict()
        self._taken = _random.randrange(1 << 16) * _STINT
        """How many hits were taken; it begins anywhere, so that processes do not follow each other."""

    def take(self, hits: Sequence[Hit]) -> Coroutine[Any, Any, Sequence[Decision]]:
        """See `CounterStore.take`."""
        # A plain function, which spares requests without such counters a coroutine.
        for hit in hits:
            if _is_in_parts(hit.key):
                return _Request(self, hits).take()
        return self.store.take(hits)

    def peek(self, hits: Sequence[Hit]) -> Coroutine[Any, Any, Sequence[Decision]]:
        """See `CounterStore.peek`. All parts are asked."""
        for hit in hits:
            if _is_in_parts(hit.key):
                return _Request(self, hits).peek()
        return self.store.peek(hits)

    def view(self, hit: Hit) -> ShardView:
        """The view of the parts of a hit's counter; the least recently used views are dropped."""
        view = self._views.get(hit.key)
        if view is None:
            view = self._views[hit.key] = ShardView(hit.key, hit.meter)
            if len(self._views) > MAX_VIEWS:
                self._views.popitem(last=False)
        self._views.move_to_end(hit.key)
        if view.meter is not hit.meter:
            view.measure(hit.meter)
        stint = self._taken // _STINT
        if view.stint != stint:
            view.stint = stint
            view.first = self._preferred(view, stint)
        return view

    def count_taken(self) -> None:
        """Count a hit; every so often it is another part's turn."""
        self._taken += 1

    def _preferred(self, view: ShardView, stint: int) -> int:
        """The part to take from for a while: the servers take turns, and on each server its parts."""
        by_server: dict[Hashable, list[int]] = {}
        for part in range(len(view.meters)):
            by_server.setdefault(self._server_of(view.names[part]), []).append(part)
        parts = list(by_server.values())[stint % len(by_server)]
        return parts[stint // len(by_server) % len(parts)]

    async def give_back(self, receipts: Sequence[Receipt]) -> None:
        """See `CounterStore.give_back`."""
        for receipt in receipts:
            if receipt.key in self._views:
                self._views[receipt.key].forget()
        await self.store.give_back(
            [
                each
                for receipt in receipts
                for each in (part_receipts(receipt) if _is_in_parts(receipt.key) else (receipt,))
            ]
        )

    async def reset(self, keys: Sequence[Key]) -> None:
        """See `CounterStore.reset`."""
        for key in keys:
            self._views.pop(key, None)
        await self.store.reset([each for key in keys for each in (part_names(key) if _is_in_parts(key) else (key,))])

    async def present(self, name: str, seconds: float) -> int:
        """See `SharedStore.present`."""
        return await self.store.present(name, seconds)

    async def close(self) -> None:
        """See `CounterStore.close`."""
        await self.store.close()


class _Request:
    """One request: which parts its hits are taken from, until they are admitted or refused."""

    def __init__(self, sharded: Sharded, hits: Sequence[Hit]) -> None:
        self._sharded = sharded
        self._store = sharded.store
        self._hits = hits
        self._views = {hit.key: sharded.view(hit) for hit in hits if _is_in_parts(hit.key)}
        self._shares: dict[Key, list[Share]] = {}
        """The parts that are asked for, by counter."""
        self._rows: dict[Key, Sequence[Decision]] = {}
        """The store's last answers, by counter; of a counter in parts those of the parts."""

    async def take(self) -> list[Decision]:
        """Take all hits or none: by the last known state of the parts and, if that was wrong, by asking them."""
        now = self._sharded.clock()
        for hit, view in self._in_parts(self._hits):
            if hit.forced or (hit.meter.max_delay and not view.has_room(hit.cost, now)):
                await self._replan(hit, view)
            else:
                self._shares[hit.key] = view.first_shares(hit.cost, now)
        refused: list[Hit] = []
        rooms: list[bool] = []
        outage: StoreError | None = None
        for _ in range(sum(len(view.meters) for view in self._views.values()) + _TRIES_BEYOND_PARTS):
            try:
                refused = await self._ask(self._store.take)
            except StoreError as error:
                await self._leave_out_silent(error)
                outage = error
                continue
            outage = None
            rooms = [await self._replan(hit, self._views.get(hit.key)) for hit in refused]
            if not all(rooms) or not refused:
                break
        self._sharded.count_taken()
        if outage is not None:  # each time another part did not answer, and what was taken was given back
            raise StoreError(str(outage), transient=True)
        return await self._answers(refused, rooms)

    async def peek(self) -> list[Decision]:
        """Ask all parts, then what the planned ones would answer."""
        for hit, view in self._in_parts(self._hits):
            await self._replan(hit, view)
        known = [(view, view.known()) for view in self._views.values()]
        refused = await self._ask(self._store.peek)
        rooms = [hit.key in self._views and self._views[hit.key].has_room(hit.cost) for hit in refused]
        answers = await self._answers(refused, rooms)
        for view, before in known:  # the answers are about what was not taken
            view.restore(before)
        return answers

    def _in_parts(self, hits: Sequence[Hit]) -> list[tuple[Hit, ShardView]]:
        return [(hit, self._views[hit.key]) for hit in hits if hit.key in self._views]

    async def _ask(self, how: Callable[[Sequence[Hit]], Awaitable[Sequence[Decision]]]) -> list[Hit]:
        """Ask the planned parts, and those without a recent answer; returns the hits that are refused."""
        now = self._sharded.clock()
        looks = []
        for hit, view in self._in_parts(self._hits):
            planned = {share.part for share in self._shares[hit.key]}
            if others := [Share(part, 0) for part in view.stale(now) if part not in planned]:
                looks.append(self._look_around(hit, view, others))
        expanded = [each for hit in self._hits for each in self._expanded(hit)]
        taken, looked = await asyncio.gather(how(expanded), asyncio.gather(*looks), return_exceptions=True)
        if isinstance(taken, BaseException):
            raise taken
        if isinstance(looked, BaseException):  # what was taken counts; the other parts stay as they were known
            log.debug("shards of a counter not read: %s", looked)
        decisions = iter(taken)
        self._rows = {hit.key: [next(decisions) for _ in self._expanded(hit)] for hit in self._hits}
        return [hit for hit in self._hits if not all(decision.allowed for decision in self._rows[hit.key])]

    def _expanded(self, hit: Hit) -> list[Hit]:
        """The hits on the planned parts of a hit's counter."""
        view = self._views.get(hit.key)
        return [hit] if view is None else [_of_part(hit, view, share) for share in self._shares[hit.key]]

    async def _look(self, hit: Hit, view: ShardView, shares: Sequence[Share]) -> dict[int, Decision]:
        """How parts would stand after taking this; the answers are noted, and so are parts that do not answer."""
        hits = [_of_part(hit, view, share)._replace(forced=False) for share in shares]
        results = await asyncio.gather(*[self._store.peek([each]) for each in hits], return_exceptions=True)
        found: dict[int, Decision] = {}
        for share, result in zip(shares, results, strict=True):
            if isinstance(result, StoreError) and result.transient:
                view.note_down(share.part, self._sharded.clock() + MAX_AGE, result)
            elif isinstance(result, BaseException):
                raise result
            else:
                (found[share.part],) = result
        return found

    async def _look_around(self, hit: Hit, view: ShardView, shares: Sequence[Share]) -> None:
        view.note(await self._look(hit, view, shares))

    async def _replan(self, hit: Hit, view: ShardView | None) -> bool:
        """Ask all parts of a counter and plan by that; False if the counter has too little, or is in one piece."""
        if view is None:
            return False
        await self._look_around(hit, view, [Share(part, 0) for part in view.up(self._sharded.clock())])
        shares = view.forced_shares(hit.cost) if hit.forced else view.planned_shares(hit.cost)
        if shares is None and hit.meter.max_delay and hit.cost:
            shares = await self._least_delayed(hit, view)
        self._shares[hit.key] = shares or view.first_shares(hit.cost)
        return shares is not None and hit.cost > 0

    async def _least_delayed(self, hit: Hit, view: ShardView) -> list[Share] | None:
        """Throttling: the part that admits a cost soonest; all parts, if it is too much for one of them."""
        alone = [Share(part, hit.cost) for part in view.fitting(hit.cost)]
        if not alone:
            return view.even_shares(hit.cost) if view.fits_limit(hit.cost) else None
        found = await self._look(hit, view, alone)
        admitting = [share for share in alone if share.part in found and found[share.part].allowed]
        return [min(admitting, key=lambda share: found[share.part].delay)] if admitting else None

    async def _leave_out_silent(self, error: StoreError) -> None:
        """Go on without the parts that did not answer; raises the error where counters in one piece did not."""
        if not error.transient:  # what was taken was given back
            raise StoreError(str(error), transient=False)
        answers = iter(error.decisions if isinstance(error, PartlyAnswered) else ())
        answered = {hit.key: [next(answers, None) for _ in self._expanded(hit)] for hit in self._hits}
        if any(None in answered[hit.key] for hit in self._hits if hit.key not in self._views):
            if not isinstance(error, PartlyAnswered):
                raise error
            decisions = [await self._if_whole(hit, answered[hit.key]) for hit in self._hits]
            raise PartlyAnswered(error, decisions)
        await self._undo([(hit, answered[hit.key]) for hit in self._hits])
        now = self._sharded.clock()
        for hit, view in self._in_parts(self._hits):
            for share, decision in zip(self._shares[hit.key], answered[hit.key], strict=True):
                if decision is None:
                    view.note_down(share.part, now + MAX_AGE, error)
            if not view.up(now):
                raise StoreError(str(error), transient=True)
            self._shares[hit.key] = view.forced_shares(hit.cost) if hit.forced else view.first_shares(hit.cost, now)

    async def _if_whole(self, hit: Hit, answered: Sequence[Decision | None]) -> Decision | None:
        """The answer for a hit of a partly answered request; what was taken of some parts only is given back."""
        decisions = [decision for decision in answered if decision is not None]
        if len(decisions) < len(answered) or not all(decision.allowed for decision in decisions):
            await self._undo([(hit, answered)])
            return None
        view = self._views.get(hit.key)
        return decisions[0] if view is None else view.combined(self._shares[hit.key], decisions)

    async def _undo(self, answered: Sequence[tuple[Hit, Sequence[Decision | None]]]) -> None:
        receipts = [
            undoing(part, decision)
            for hit, decisions in answered
            for part, decision in zip(self._expanded(hit), decisions, strict=True)
            if decision is not None and decision.allowed and part.cost
        ]
        try:
            await self._store.give_back(receipts)
        except StoreError as failed:
            # It stays charged until its time is over: too much is counted, never too little.
            log.debug("give-back to shards failed: %s", failed)

    async def _answers(self, refused: Sequence[Hit], rooms: Sequence[bool]) -> list[Decision]:
        """The answers of whole counters. If all that were refused have room, other requests were faster each time."""
        blocking = {hit.key for hit, has_room in zip(refused, rooms, strict=True) if not has_room or all(rooms)}
        if blocking and blocking <= self._views.keys():
            for key in blocking:
                self._views[key].raise_outage()
        answers: list[Decision] = []
        for hit in self._hits:
            view, row = self._views.get(hit.key), self._rows[hit.key]
            if view is None:
                answers.append(row[0])
            elif hit.key in blocking:
                answers.append(view.refused(row[0].at, await self._wait(hit, view)))
            elif hit in refused:
                answers.append(view.standing(row[0].at))
            else:
                answers.append(view.combined(self._shares[hit.key], row))
        return answers

    async def _wait(self, hit: Hit, view: ShardView) -> Micros | None:
        """How long until a refused cost is admitted if no other request comes; None is never."""
        if not view.fits_limit(hit.cost):
            return None
        shares, is_any_enough = view.awaited(hit.cost)
        if not shares:  # there is room, or the cost is nothing and the counter is overdrawn
            waits = [decision.retry_after for decision in self._rows[hit.key] if decision.retry_after]
            return min(waits, default=1)
        found = await self._look(hit, view, shares)
        waits = [decision.retry_after or 1 for decision in found.values()]
        return min(waits, default=1) if is_any_enough else max(waits, default=1)


def _is_in_parts(key: Key) -> bool:
    return MARK in key and not is_companion(key)


def _of_part(hit: Hit, view: ShardView, share: Share) -> Hit:
    return hit._replace(key=view.names[share.part], meter=view.meters[share.part], cost=share.amount)
