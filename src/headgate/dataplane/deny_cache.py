"""The deny cache: a caller known to be over its limit is answered from memory.

Wraps any store. What the store refuses is remembered by counter, and a hit that `headgate.core.denial` says is
refused as well is answered here: refused traffic on one counter costs the store one operation a second (of concurrent
callers one asks, the others wait for its answer), and this process a look into a dictionary. While the
store does not decide (an outage, or this process has too much in flight), known denials hold until their own end,
whatever rules say for an outage.

Of a refused request with several hits each counter is remembered by itself: a denial as such, a counter
that would have admitted its part as a standing, which is never a reason to refuse. The same hits, in any
combination, are answered from memory if one of them is denied and all others are known; else the store is asked.
So no entry is needed for a combination of counters, and a counter is forgotten by its key alone: as soon as this
process takes from it, gives back to it or resets it.

Bounded in bytes, the least recently refused first. Safe under threads: what is read are tuples that never
change, in a dictionary; changes are made under a lock.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

from headgate.core import denial
from headgate.core.decision import Decision, Source, undoing
from headgate.core.denial import MAX_AGE, NO_END, Denial, KnownAdmission
from headgate.dataplane.entry_table import EntryTable
from headgate.dataplane.single_flight import SingleFlight, wait_for
from headgate.errors import Overloaded

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence

    from headgate.core.decision import Hit, Key, Receipt
    from headgate.core.denial import FromDenyCache, Nanos
    from headgate.ports import CounterStore

DEFAULT_MEGABYTES: Final = 16
_MEGABYTE: Final = 1_000_000
_STANDINGS_SHARE: Final = 4
"""This fraction (one in N) of the memory is for them."""
_DECIDED: Final = frozenset({Source.STORE, Source.LEASE})
"""The store has counted: now, or a block that a region has borrowed."""
MAX_HOLDERS: Final = 16_384
MAX_DROPPED: Final = 4_096


class DenyCache:
    """A `CounterStore` that remembers what another one has refused."""

    def __init__(
        self,
        store: CounterStore,
        clock: Callable[[], Nanos],
        megabytes: int = DEFAULT_MEGABYTES,
        *,
        blocks: bool = False,
    ) -> None:
        """`clock` is monotonic; `blocks` says that the store blocks the thread that asks, in place of waiting."""
        self.store = store
        self.hits = 0
        """How many requests were answered from memory; under threads, nearly."""
        self._clock = clock
        of_standings = megabytes * _MEGABYTE // _STANDINGS_SHARE
        self._denials: EntryTable[Denial] = EntryTable(megabytes * _MEGABYTE - of_standings)
        self._standings: EntryTable[KnownAdmission] = EntryTable(of_standings)
        self.denied = self._denied = self._denials.entries
        """The known denials, by counter."""
        self._standing_entries = self._standings.entries
        self._get = self._denied.get
        self._dropped: OrderedDict[Key, Nanos] = OrderedDict()
        """What was given back or reset lately: a denial that was asked for before that may be out of date."""
        self._all_dropped: Nanos = -1
        """When any other counter was last given back or reset."""
        self._holders: OrderedDict[str, None] = OrderedDict()
        """The holders of slots: a renewal is not refused because other holders were."""
        self._flights = SingleFlight(blocks=blocks)
        self._lock = threading.RLock()  # may be asked for again by a signal's handler in the same thread
        _caches.add(self)

    @property
    def entries(self) -> int:
        """How many counters it has an entry for."""
        return len(self._denied) + len(self._standing_entries)

    @property
    def bytes(self) -> int:
        """About how much memory that takes, at most."""
        return self._denials.bytes + self._standings.bytes

    # Taking

    def take(self, hits: Sequence[Hit]) -> Coroutine[Any, Any, Sequence[Decision]]:
        """See `CounterStore.take`; what it returns does not wait where the answer is known."""
        # A plain function, which spares most requests the third of a microsecond that a coroutine more takes.
        if self._denied and (len(hits) != 1 or hits[0][0] in self._denied):
            return self._known_or_taken(hits)
        return self._ask_store(hits)

    def denied_now(self, hits: Sequence[Hit]) -> Sequence[Decision] | None:
        """The answer to a request that is known to be refused; None if the store has to be asked."""
        if len(hits) == 1:
            return self.hit_denied_now(hits[0])
        answers = self._all_known(hits)
        if answers is not None:
            self.hits += 1
        return answers

    def hit_denied_now(self, hit: Hit) -> Sequence[Decision] | None:
        """The same for a request of one hit."""
        known = self._get(hit[0])
        if known is None:
            return None
        answer = denial.refusal(known, hit, self._clock(), known[4])
        if answer is None:
            return None
        self.hits += 1
        return (answer,)

    def _all_known(self, hits: Sequence[Hit]) -> Sequence[Decision] | None:
        for hit in hits:
            if hit[0] in self._denied:
                break
        else:
            return None
        now = self._clock()
        answers: list[Decision] = []
        is_refused = False
        for hit in hits:
            known = self._get(hit.key)
            answer = None if known is None else denial.refusal(known, hit, now, known.asks_at)
            if answer is not None:
                is_refused = True
            else:
                answer = self._as_it_stood(hit, now)
                if answer is None:
                    return None
            answers.append(answer)
        return answers if is_refused else None

    def _as_it_stood(self, hit: Hit, now: Nanos, end: Nanos | None = None) -> FromDenyCache | None:
        standing = self._standing_entries.get(hit.key)
        return (
            None
            if standing is None
            else denial.as_it_stood(standing, hit, now, standing.asks_at if end is None else end)
        )

    async def _known_or_taken(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        """The answer from memory; where a denial has to be confirmed, one asks and the others wait for that answer."""
        while True:
            known = self.denied_now(hits)
            if known is not None:
                return known
            key = self._unconfirmed(hits)
            if key is None:
                break
            flight, is_mine = self._flights.begin(key)
            if is_mine:
                try:
                    return self.denied_now(hits) or await self._ask_store(hits)
                finally:
                    self._flights.end(key, flight)
            await wait_for(flight)
        # Once more, because another thread may just have had the answer.
        return self.denied_now(hits) or await self._ask_store(hits)

    def _unconfirmed(self, hits: Sequence[Hit]) -> Key | None:
        """The first counter that the store must confirm, in a request that is refused by what is known; else None."""
        now = self._clock()
        unknown: Key | None = None
        is_refused = False
        for hit in hits:
            known = self._get(hit.key)
            if known is not None and denial.refusal(known, hit, now, known.ends):
                is_refused = is_refused or hit.holder is None  # slots are asked for by each holder
                if now >= known.asks_at:
                    unknown = unknown or hit.key
            elif self._as_it_stood(hit, now) is None:
                unknown = unknown or hit.key
        return unknown if is_refused else None

    async def _ask_store(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        """The answer of the store."""
        sent = self._clock()
        try:
            decisions = await self.store.take(hits)
        except Overloaded:
            known = self._without_asking(hits)
            if known is None:
                raise
            self.hits += 1
            return known
        for decision in decisions:
            if decision.__class__ is not Decision or not decision[0]:
                return await self._weighed(hits, decisions, sent)
        denied, standing = self._denied, self._standing_entries
        for hit in hits:
            if hit[3] is not None or hit[0] in denied or hit[0] in standing:
                self._admitted(hits)
                break
        return decisions

    # What the store has answered

    async def _weighed(self, hits: Sequence[Hit], decisions: Sequence[Decision], sent: Nanos) -> Sequence[Decision]:
        """The answer to a request that the store has refused, or has not decided as usual."""
        is_decided = all(decision.source in _DECIDED for decision in decisions)
        if is_decided and all(decision.allowed for decision in decisions):
            self._admitted(hits)
            return decisions
        self._remember(hits, decisions, sent)
        if is_decided:
            return decisions
        known = self._until_their_end(hits)
        is_counted = all(decision.allowed for decision in decisions)
        if not known:
            if is_counted:
                self._admitted([hit for hit, made in zip(hits, decisions, strict=True) if made.source in _DECIDED])
            return decisions
        self.hits += 1
        if is_counted:
            counted = zip(hits, decisions, strict=True)
            await self.store.give_back([undoing(*each) for each in counted if _is_counted(*each)])
        return [known.get(index, decision) for index, decision in enumerate(decisions)]

    def _remember(self, hits: Sequence[Hit], decisions: Sequence[Decision], sent: Nanos) -> None:
        received = self._clock()
        with self._lock:
            for hit, decision in zip(hits, decisions, strict=True):
                key = hit.key
                if decision.source not in _DECIDED or hit.forced or not sent > self._dropped_at(key):
                    continue
                known = self._get(key)
                if not decision.allowed:
                    if hit.cost:
                        new = denial.denial(hit, decision, sent, received)
                        self._denials.put(key, denial.confirmed(known, new, received), received)
                    continue
                standing = KnownAdmission(hit.meter, hit.cost, decision, received, sent + MAX_AGE)
                self._standings.put(key, standing, received)
                if known is not None and known.cost <= hit.cost:  # it has ended early, elsewhere
                    self._denials.pop(key)

    def _until_their_end(self, hits: Sequence[Hit]) -> dict[int, Decision]:
        """Known denials, by the index of their hit, while the store does not decide; it is not asked for a second."""
        now = self._clock()
        denied: dict[int, Decision] = {}
        with self._lock:
            for index, hit in enumerate(hits):
                known = self._get(hit.key)
                if known is not None and hit.holder not in self._holders:
                    answer = denial.refusal(known, hit, now, known.ends)
                    if answer is not None:
                        denied[index] = answer
                        self._denied[hit.key] = denial.extended(known, now)
        return denied

    def _without_asking(self, hits: Sequence[Hit]) -> Sequence[Decision] | None:
        """The answer to a refused request when there is none but from memory; None if some of it is not known."""
        denied = self._until_their_end(hits)
        if not denied:
            return None
        now = self._clock()
        answers: list[Decision] = []
        for index, hit in enumerate(hits):
            answer = denied.get(index) or self._as_it_stood(hit, now, NO_END)
            if answer is None:
                return None
            answers.append(answer)
        return answers

    def _admitted(self, hits: Sequence[Hit]) -> None:
        """What was counted has changed how things stand."""
        with self._lock:
            for hit in hits:
                self._denials.pop(hit.key)
                self._standings.pop(hit.key)
                if hit.holder is not None:
                    self._holders[hit.holder] = None
                    if len(self._holders) > MAX_HOLDERS:
                        self._holders.popitem(last=False)

    # Everything else

    async def peek(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        """See `CounterStore.peek`; asks the store."""
        return await self.store.peek(hits)

    async def give_back(self, receipts: Sequence[Receipt]) -> None:
        """See `CounterStore.give_back`."""
        try:
            await self.store.give_back(receipts)
        finally:
            self._drop([receipt.key for receipt in receipts])
            with self._lock:
                for receipt in receipts:
                    self._holders.pop(receipt.id, None)

    async def reset(self, keys: Sequence[Key]) -> None:
        """See `CounterStore.reset`."""
        try:
            await self.store.reset(keys)
        finally:
            self._drop(keys)

    async def close(self) -> None:
        """See `CounterStore.close`."""
        await self.store.close()

    def _drop(self, keys: Iterable[Key]) -> None:
        """Forget counters, and what is still on its way about them."""
        now = self._clock()
        with self._lock:
            for key in keys:
                self._denials.pop(key)
                self._standings.pop(key)
                self._dropped[key] = now
                self._dropped.move_to_end(key)
                if len(self._dropped) > MAX_DROPPED:
                    _, self._all_dropped = self._dropped.popitem(last=False)

    def _dropped_at(self, key: Key) -> Nanos:
        return self._dropped.get(key, self._all_dropped)

    def reset_after_fork(self) -> None:
        """In a forked child: another thread of its parent may have been changing something."""
        self._lock = threading.RLock()
        self._flights.forget()
        self._denials.clear()
        self._standings.clear()


def _is_counted(hit: Hit, decision: Decision) -> bool:
    return bool(hit.cost) and (decision.source in _DECIDED or decision.source is Source.DEGRADED_LOCAL)


_caches: weakref.WeakSet[DenyCache] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for cache in _caches:
        cache.reset_after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)
