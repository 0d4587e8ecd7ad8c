"""Requests whose counters live in several places: taken in parallel, and given back if one is denied.

No limit is ever exceeded by it. But what one request holds until its give-back is through
may refuse another one that would have passed; never more than what such requests hold just then.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, TypeVar

from headgate.core.decision import Receipt
from headgate.errors import Overloaded, PartlyAnswered, StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    from headgate.adapters.redis.scripts import Batch
    from headgate.adapters.redis.store import RedisStore
    from headgate.adapters.redis.topology import Shard
    from headgate.core.decision import Decision, Hit, Key

    Parts = list[tuple[Shard, list[Hit]]]
    """The hits of one request, by shard."""

log = logging.getLogger("headgate")
T = TypeVar("T")


class _PartlyShed(Exception):
    """Some of a request's counters were taken, and others were not asked for want of room."""

    def __init__(self, overloaded: Overloaded, decisions: dict[Key, Decision]) -> None:
        self.overloaded = overloaded
        self.decisions = decisions


class CrossSlotTake:
    """What a store does where one call is not enough."""

    def __init__(self, store: RedisStore) -> None:
        """`store` asks one shard at a time."""
        self._store = store
        self._tasks: set[asyncio.Task[Any]] = set()

    async def ask_to_the_end(self, hits: Sequence[Hit]) -> list[Decision]:
        """`ask`, and give back what has to be given back even if the caller leaves meanwhile."""
        return await asyncio.shield(self._kept(self.ask(hits, only_peek=False)))

    def _kept(self, steps: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """A task that goes on although nobody else knows of it."""
        task = asyncio.get_running_loop().create_task(steps)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)
        return task

    def _on_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # looked at, or Python complains where nobody waits any more

    async def ask(self, hits: Sequence[Hit], *, only_peek: bool, singly: bool = False) -> list[Decision]:
        """Take hits that are in several places, all or none, or peek; `singly`, each by a call of its own."""
        parts = self._parts(hits, singly=singly)
        try:
            decisions = await self._answers(hits, parts, only_peek=only_peek, singly=singly)
        except PartlyAnswered as error:
            if not error.transient and not only_peek:  # it can never pass, so what was taken of it goes back
                await self._undo_all(parts, _by_key(hits, error.decisions))
            raise
        except _PartlyShed as shed:
            if not only_peek:
                await self._undo_all(parts, shed.decisions)
            raise shed.overloaded from None
        if not all(decision.allowed for decision in decisions.values()):
            admitted = [part for part in parts if all(decisions[hit.key].allowed for hit in part[1])]
            if not only_peek:
                await self._undo_all(parts, decisions)
            # Nothing is counted, so what would have passed is answered as it stands.
            looks = [(shard, [hit._replace(cost=0, forced=False) for hit in which]) for shard, which in admitted]
            try:
                decisions |= await self._answers(hits, looks, only_peek=True, singly=singly)
            except (PartlyAnswered, _PartlyShed):  # it is refused all the same; the others stay as they stood
                log.debug("could not look again after a denial")
        return [decisions[hit.key] for hit in hits]

    def _parts(self, hits: Sequence[Hit], *, singly: bool) -> Parts:
        shard = self._store.topology.shard_of
        if singly:
            return [(shard(hit.key), [hit]) for hit in hits]
        return list(_grouped(hits, lambda hit: shard(hit.key)).items())

    async def _answers(
        self, hits: Sequence[Hit], parts: Parts, *, only_peek: bool, singly: bool
    ) -> dict[Key, Decision]:
        """The decisions of these parts, by key; `PartlyAnswered` if some server did not answer."""
        ask = self._store.ask_alone if singly else self._store.ask
        answers = await asyncio.gather(
            *[ask(which, shard, only_peek=only_peek) for shard, which in parts], return_exceptions=True
        )
        decisions: dict[Key, Decision] = {}
        errors: list[StoreError] = []
        overloaded: Overloaded | None = None
        for (_, which), answer in zip(parts, answers, strict=True):
            if isinstance(answer, StoreError):
                errors.append(answer)
            elif isinstance(answer, Overloaded):
                overloaded = answer
            elif isinstance(answer, BaseException):
                raise answer
            else:
                decisions.update(zip([hit.key for hit in which], answer, strict=True))
        if overloaded is not None:
            raise _PartlyShed(overloaded, decisions)
        if errors:
            # What can never be answered is worse than what could be later.
            worst = min(errors, key=lambda error: error.transient)
            raise PartlyAnswered(worst, [decisions.get(hit.key) for hit in hits])
        return decisions

    async def _undo_all(self, parts: Parts, decisions: dict[Key, Decision]) -> None:
        """Undo the parts that were taken: those that were answered, and denied nothing."""
        taken = [
            (shard, which)
            for shard, which in parts
            if all(hit.key in decisions and decisions[hit.key].allowed for hit in which)
        ]
        await asyncio.gather(*[self._undo(shard, which, decisions) for shard, which in taken])

    async def _undo(self, shard: Shard, hits: Sequence[Hit], decisions: dict[Key, Decision]) -> None:
        receipts = [Receipt(hit.key, hit.meter, decisions[hit.key].stamp, hit.cost, "") for hit in hits]
        try:
            await self._store.send_back(receipts, shard, undo=True)
        except StoreError as error:
            # It stays charged until its time is over: too much, never too little.
            log.debug("could not give back after a denial: %s", error)

    def ask_singly(self, batch: Batch, *, only_peek: bool) -> None:
        """Ask for each hit of a call by itself, because its keys are in two places just now."""

        async def ask(hits: Sequence[Hit], future: asyncio.Future[Sequence[Decision]]) -> None:
            try:
                decisions = await self.ask(hits, only_peek=only_peek, singly=True)
            except (StoreError, Overloaded) as error:
                if not future.done():
                    future.set_exception(error)
            else:
                if not future.done():
                    future.set_result(decisions)

        for hits, future in batch:
            self._kept(ask(hits, future))

    async def by_shard(
        self, things: Sequence[T], key: Callable[[T], Key], do: Callable[[list[T], Shard], Awaitable[None]]
    ) -> None:
        """Do something with things, wherever they are: one call for each shard."""
        grouped = _grouped(things, lambda thing: self._store.topology.shard_of(key(thing)))
        await asyncio.gather(*[do(group, shard) for shard, group in grouped.items()])


def _grouped(things: Sequence[T], shard: Callable[[T], Shard]) -> dict[Shard, list[T]]:
    groups: dict[Shard, list[T]] = {}
    for thing in things:
        groups.setdefault(shard(thing), []).append(thing)
    return groups


def _by_key(hits: Sequence[Hit], decisions: Sequence[Decision | None]) -> dict[Key, Decision]:
    return {hit.key: decision for hit, decision in zip(hits, decisions, strict=True) if decision is not None}
