"""Guarded: how requests are decided while the shared store is unavailable.

Wraps a store whose calls fail in time. When one does, each rule answers as its
`on_store_error` says: `allow` admits without counting, `deny` refuses, `local` decides by this
process's share of the limit. Such answers are marked. Errors that an input can provoke are
not outages: they are raised, and no request passes unlimited because of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING, Final

from headgate.core import degraded
from headgate.core.decision import Source, undoing
from headgate.core.failure_policy import OnShortfall, OnStoreError
from headgate.core.ids import new_id
from headgate.errors import PartlyAnswered, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headgate.core.decision import Decision, Hit, Key, Receipt
    from headgate.core.units import Micros
    from headgate.dataplane.local_share import LocalShare
    from headgate.ports import SharedStore

log = logging.getLogger("headgate")

HEARTBEAT_SECONDS: Final = 5.0
_ALIVE_SECONDS: Final = 3 * HEARTBEAT_SECONDS
_LOCAL: Final = OnStoreError.LOCAL  # for every check: to look up a member of an enum takes a call
_DENY: Final = OnShortfall.DENY


class Guarded:
    """A `CounterStore` that always answers."""

    def __init__(self, store: SharedStore, local: LocalShare, clock: Callable[[], Micros]) -> None:
        """`clock` is this process's, for answers that are given without the store."""
        self.store = store
        self._local = local
        self._clock = clock
        self._name = new_id()
        self._beating: asyncio.Task[None] | None = None
        self.degraded: Counter[Source] = Counter()
        """How many decisions were not the store's, by how they were reached."""

    async def take(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        """See `CounterStore.take`; fails only where the store could never answer."""
        try:
            decisions = await self.store.take(hits)
        except StoreError as error:
            return await self._instead(hits, _known(error, hits), only_peek=False)
        for hit in hits:
            policy = hit[6]
            if policy is not None and (policy.on_error is _LOCAL or policy.on_shortfall is _DENY):
                return await self._weighed(hits, decisions)
        return decisions

    async def _weighed(self, hits: Sequence[Hit], decisions: Sequence[Decision]) -> Sequence[Decision]:
        """The answer to a request with rules that require more of the store than counting."""
        short = [degraded.falls_short(hit, decision) for hit, decision in zip(hits, decisions, strict=True)]
        if any(short) and all(decision.allowed for decision in decisions):
            return await self._denied_for_replicas(hits, decisions, short)
        if any(_on_error(hit) is OnStoreError.LOCAL for hit in hits):
            self._keep_warm(hits, decisions)
        return decisions

    async def _denied_for_replicas(
        self, hits: Sequence[Hit], decisions: Sequence[Decision], short: Sequence[bool]
    ) -> Sequence[Decision]:
        """Give back what too few replicas have, and refuse it; the other counters of the request are as they stand."""
        await self._undo(hits, decisions)
        try:
            standing = await self.store.peek([hit._replace(cost=0) for hit in hits])
        except StoreError as error:
            log.debug("peek after a shortfall of replicas failed: %s", error)
            standing = decisions
        self.degraded[Source.DEGRADED_DENY] += sum(short)
        return [
            degraded.denied_for_replicas(as_it_stands) if is_short else as_it_stands
            for as_it_stands, is_short in zip(standing, short, strict=True)
        ]

    async def peek(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        """See `CounterStore.peek`; fails only where the store could never answer."""
        try:
            return await self.store.peek(hits)
        except StoreError as error:
            return await self._instead(hits, _known(error, hits), only_peek=True)

    async def _instead(
        self, hits: Sequence[Hit], known: Sequence[Decision | None], *, only_peek: bool
    ) -> Sequence[Decision]:
        """The decisions of a request, where the store gave none or only some of them."""
        now = self._clock()
        missing = [hit for hit, decision in zip(hits, known, strict=True) if decision is None]
        local = [hit for hit in missing if _on_error(hit) is OnStoreError.LOCAL]
        refused = any(_on_error(hit) is OnStoreError.DENY for hit in missing)
        refused = refused or any(decision is not None and not decision.allowed for decision in known)
        shares = self._local.peek(local) if refused or only_peek else self._local.take(local)
        if local:
            self.begin()
        refused = refused or not all(decision.allowed for decision in shares)
        answers = dict(zip([hit.key for hit in local], shares, strict=True))
        for hit in missing:
            if hit.key not in answers:
                answers[hit.key] = degraded.without_counting(hit, now)
        self.degraded.update(decision.source for decision in answers.values())
        if refused and not only_peek:
            await self._undo(hits, known)
        return [answers[hit.key] if decision is None else decision for hit, decision in zip(hits, known, strict=True)]

    async def _undo(self, hits: Sequence[Hit], known: Sequence[Decision | None]) -> None:
        """Give back what the servers that did answer have counted for a request that is refused."""
        await self.give_back(
            [
                undoing(hit, decision)
                for hit, decision in zip(hits, known, strict=True)
                if decision is not None and decision.allowed and hit.cost
            ]
        )

    async def give_back(self, receipts: Sequence[Receipt]) -> None:
        """See `CounterStore.give_back`. While the store is unavailable, what it counted stays until it expires."""
        theirs = self._local.give_back(receipts)
        if not theirs:
            return
        try:
            await self.store.give_back(theirs)
        except StoreError as error:
            if not error.transient:
                raise
            log.debug("give-back failed: %s", error)

    async def reset(self, keys: Sequence[Key]) -> None:
        """See `CounterStore.reset`. Errors are raised, because the caller must know if it failed."""
        await self.store.reset(keys)

    async def close(self) -> None:
        """See `CounterStore.close`."""
        if self._beating is not None:
            self._beating.cancel()
        await self.store.close()

    # What `local` needs beforehand

    def begin(self) -> None:
        """Announce this process to the others from now on, and find out how many there are.

        A service begins when it starts, so that it is counted before its first request; else it begins with
        the first request that a rule with `local` concerns. Called in an event loop.
        """
        if self._beating is None or self._beating.done():  # as it is after its event loop has ended
            self._beating = asyncio.get_running_loop().create_task(self._heartbeats())

    def live_processes(self) -> int:
        """How many processes share the limits, as far as is known; begins to find out. Called in an event loop."""
        self.begin()
        return self._local.processes

    def _keep_warm(self, hits: Sequence[Hit], decisions: Sequence[Decision]) -> None:
        self.begin()
        if all(decision.allowed for decision in decisions):
            self._local.note([hit for hit in hits if _on_error(hit) is OnStoreError.LOCAL and hit.cost])

    async def _heartbeats(self) -> None:
        while True:
            try:
                self._local.processes = await self.store.present(self._name, _ALIVE_SECONDS)
            except StoreError as error:
                log.debug("number of processes not read, %d is kept: %s", self._local.processes, error)
            await asyncio.sleep(HEARTBEAT_SECONDS)


def _on_error(hit: Hit) -> OnStoreError:
    return OnStoreError.ALLOW if hit.failure_policy is None else hit.failure_policy.on_error


def _known(error: StoreError, hits: Sequence[Hit]) -> Sequence[Decision | None]:
    """The partial answers that came with an outage; any other error is raised."""
    if not error.transient:
        raise error
    return error.decisions if isinstance(error, PartlyAnswered) else [None] * len(hits)
