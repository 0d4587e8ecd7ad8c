"""Requests whose counters are in several shards: taken in parallel, and given back if one shard denies.

No limit is ever exceeded. But until the give-back is done, what a denied request took can make another request be
refused that would have passed; never by more than what such requests hold at that moment.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, TypeVar

from headgate.core.decision import undoing
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
    """Some of a request's counters were taken, and others were not, because too many checks are in flight."""

    def __init__(self, overloaded: Overloaded, decisions: dict[Key, Decision]) -> None:
        self.overloaded = overloaded
        self.decisions = decisions


class CrossSlotTake:
    """What a store does when one call is not enough for a request."""

    def __init__(self, store: RedisStore) -> None:
        """`store` takes hits of one shard at a time."""
        self._store = store
        self._tasks: set[asyncio.Task[Any]] = set()

    async def take_shielded(self, hits: Sequence[Hit]) -> list[Decision]:
        """`take`, and give back what has to be given back even if the caller is cancelled meanwhile."""
        return await asyncio.shield(self._start(self.take(hits, only_peek=False)))

    def _start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """A task that goes on without its caller."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)
        return task

    def _on_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # read, or Python complains about tasks whose caller is gone

    async def take(self, hits: Sequence[Hit], *, only_peek: bool, key_by_key: bool = False) -> list[Decision]:
        """Take hits of several shards, all or none, or peek; `key_by_key`, with a call for each hit."""
        parts = self._parts(hits, key_by_key=key_by_key)
        try:
            decisions = await self._decisions(hits, parts, only_peek=only_peek, key_by_key=key_by_key)
        except PartlyAnswered as error:
            if not error.transient and not only_peek:  # it can never pass, so what was taken goes back
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
            # Nothing is counted, so hits that would have passed are decided again with no cost.
            again = [(shard, [hit._replace(cost=0, forced=False) for hit in which]) for shard, which in admitted]
            try:
                decisions |= await self._decisions(hits, again, only_peek=True, key_by_key=key_by_key)
            except (PartlyAnswered, _PartlyShed) as error:  # refused all the same; the others keep their decisions
                log.debug("peek after a denial failed: %r", error)
        return [decisions[hit.key] for hit in hits]

    def _parts(self, hits: Sequence[Hit], *, key_by_key: bool) -> Parts:
        shard_of = self._store.topology.shard_of
        if key_by_key:
            return [(shard_of(hit.key), [hit]) for hit in hits]
        return list(_grouped(hits, lambda hit: shard_of(hit.key)).items())

    async def _decisions(
        self, hits: Sequence[Hit], parts: Parts, *, only_peek: bool, key_by_key: bool
    ) -> dict[Key, Decision]:
        """The decisions of these parts, by key; `PartlyAnswered` if a server did not answer."""
        send = self._store.send_alone if key_by_key else self._store.enqueue
        results = await asyncio.gather(
            *[send(which, shard, only_peek=only_peek) for shard, which in parts], return_exceptions=True
        )
        decisions: dict[Key, Decision] = {}
        errors: list[StoreError] = []
        overloaded: Overloaded | None = None
        for (_, which), result in zip(parts, results, strict=True):
            if isinstance(result, StoreError):
                errors.append(result)
            elif isinstance(result, Overloaded):
                overloaded = result
            elif isinstance(result, BaseException):
                raise result
            else:
                decisions.update(zip([hit.key for hit in which], result, strict=True))
        if overloaded is not None:
            raise _PartlyShed(overloaded, decisions)
        if errors:
            # A permanent error outranks a transient one.
            worst = min(errors, key=lambda error: error.transient)
            raise PartlyAnswered(worst, [decisions.get(hit.key) for hit in hits])
        return decisions

    async def _undo_all(self, parts: Parts, decisions: dict[Key, Decision]) -> None:
        """Undo the parts that were taken: those that were decided, and denied nothing."""
        taken = [
            (shard, which)
            for shard, which in parts
            if all(hit.key in decisions and decisions[hit.key].allowed for hit in which)
        ]
        await asyncio.gather(*[self._undo(shard, which, decisions) for shard, which in taken])

    async def _undo(self, shard: Shard, hits: Sequence[Hit], decisions: dict[Key, Decision]) -> None:
        receipts = [undoing(hit, decisions[hit.key]) for hit in hits]
        try:
            await self._store.send_back(receipts, shard, undo=True)
        except StoreError as error:
            # It stays charged until its time is over: too much is counted, never too little.
            log.debug("give-back after a denial failed: %s", error)

    def take_key_by_key(self, batch: Batch, *, only_peek: bool) -> None:
        """Take each hit of a batch with a call of its own, because its keys are on two nodes just now."""

        async def take(hits: Sequence[Hit], future: asyncio.Future[Sequence[Decision]]) -> None:
            try:
                decisions = await self.take(hits, only_peek=only_peek, key_by_key=True)
            except (StoreError, Overloaded) as error:
                if not future.done():
                    future.set_exception(error)
            else:
                if not future.done():
                    future.set_result(decisions)

        for hits, future in batch:
            self._start(take(hits, future))

    async def by_shard(
        self, items: Sequence[T], key: Callable[[T], Key], do: Callable[[list[T], Shard], Awaitable[None]]
    ) -> None:
        """Call `do` once for each shard, with the items whose keys are there."""
        grouped = _grouped(items, lambda item: self._store.topology.shard_of(key(item)))
        await asyncio.gather(*[do(group, shard) for shard, group in grouped.items()])


def _grouped(items: Sequence[T], shard_of: Callable[[T], Shard]) -> dict[Shard, list[T]]:
    groups: dict[Shard, list[T]] = {}
    for item in items:
        groups.setdefault(shard_of(item), []).append(item)
    return groups


def _by_key(hits: Sequence[Hit], decisions: Sequence[Decision | None]) -> dict[Key, Decision]:
    return {hit.key: decision for hit, decision in zip(hits, decisions, strict=True) if decision is not None}
