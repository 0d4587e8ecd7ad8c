"""The memory store: all counters in one dictionary, all decisions under one lock."""

from __future__ import annotations

import threading
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from headgate.adapters.memory.expiry import ExpiryWheel
from headgate.adapters.memory.short_way import short_way
from headgate.adapters.memory.table import DEFAULT_MAX_COUNTERS, CounterTable, WhenFull
from headgate.core.algorithms import concurrency
from headgate.core.decision import Decision, Hit, Receipt
from headgate.core.meter import Algorithm
from headgate.core.units import SECOND
from headgate.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headgate.core.decision import Key
    from headgate.core.meter import Meter
    from headgate.core.units import Micros
    from headgate.ports import HitFunction

_SWEPT_PER_GIVE_BACK = 4
_new = tuple.__new__  # half the time of Decision(...)


class MemoryStore:
    """A `CounterStore` and `LocalStore` in this process, safe under threads."""

    def __init__(
        self,
        clock: Callable[[], Micros],
        max_counters: int = DEFAULT_MAX_COUNTERS,
        when_full: WhenFull = WhenFull.SHARE,
    ) -> None:
        """`clock` gives microseconds since the epoch; the other two are explained in `table`."""
        self.clock = clock
        self.lock = threading.Lock()
        self.table = CounterTable(max_counters, when_full)
        self.reservations: list[tuple[Micros, str, Receipt]] = []
        """Reservations that nobody has settled yet, the next to expire first."""
        self._spent: set[str] = set()
        """Receipts that were given back, for as long as it matters."""
        self._spent_expiries = ExpiryWheel()

    def short_way(self, meters: Mapping[str, Mapping[object, Meter]], long_way: HitFunction) -> HitFunction:
        """See `LocalStore.short_way`."""
        return short_way(self, meters, long_way)

    def take_now(self, hits: Sequence[Hit]) -> list[Decision]:
        """`take`, without waiting."""
        with self.lock:
            now = self.clock()
            self._expire_reservations(now)
            return self._take(hits, now)

    def peek_now(self, hits: Sequence[Hit]) -> list[Decision]:
        """`peek`, without waiting."""
        with self.lock:
            now = self.clock()
            self._expire_reservations(now)
            decisions = [_decide(hit, self._state(hit.key), now)[1] for hit in hits]
            if all(decision.allowed for decision in decisions):
                return decisions
            return [self._standing(hit, hit.key, decision) for hit, decision in zip(hits, decisions, strict=True)]

    def _take(self, hits: Sequence[Hit], now: Micros) -> list[Decision]:
        """Decide all hits first; only then count them, or none."""
        decisions: list[Decision] = []
        changes: dict[str, Any] = {}
        allowed = True
        for hit in hits:
            key = self.table.place_for(hit.key, now)
            if key is None:
                after, decision = None, _no_room(hit, now)
                key = hit.key
            else:
                after, decision = _decide(hit, self._state(key), now)
            changes[key] = after
            decisions.append(decision)
            allowed = allowed and decision.allowed
        if len(changes) < len(hits):
            msg = "two hits of one request name the same counter"
            raise StoreError(msg, transient=False)
        for hit, decision, (key, after) in zip(hits, decisions, changes.items(), strict=True):
            # A denial writes too if the clock stepped back; see headgate.core.algorithms.
            if allowed or not decision.allowed:
                self._put(key, hit, after, now)
        if allowed:
            self._note_reservations(hits, decisions, now)
            return decisions
        return [self._standing(hit, key, decision) for hit, key, decision in zip(hits, changes, decisions, strict=True)]

    def _state(self, key: str) -> Any:  # noqa: ANN401 (each algorithm has its own state)
        record = self.table.find(key)
        return None if record is None else record[0]

    def _put(self, key: str, hit: Hit, after: Any, now: Micros) -> None:  # noqa: ANN401 (each algorithm has its own state)
        meter = hit.meter
        record = self.table.find(key)
        state = None if record is None else record[0]
        if after is state:
            return
        if meter.commit is not None:
            after = meter.commit(state, meter, after)
        if record is not None:
            record[0], record[1] = after, meter
        elif hit.cost:  # a look that cost nothing needs no counter
            self.table.add(key, after, meter, now)

    def _standing(self, hit: Hit, key: str, decision: Decision) -> Decision:
        """A decision in a refused request: nothing was counted, so a hit that would have passed is as it was."""
        if not decision.allowed:
            return decision
        return _decide(hit._replace(cost=0), self._state(key), decision.at)[1]

    # Giving back

    def give_back_now(self, receipts: Sequence[Receipt]) -> None:
        """`give_back`, without waiting."""
        with self.lock:
            now = self.clock()
            self._expire_reservations(now)
            for receipt in receipts:
                self._give_back(receipt, now)

    def _give_back(self, receipt: Receipt, now: Micros) -> None:
        key, meter, stamp, amount, name = receipt
        if meter.creditable_until is not None:  # slots are released by name, which once is enough for
            until = meter.creditable_until(stamp, meter)
            if until <= now or name in self._spent or not self._remember_spent(name, until, now):
                return
        record = self.table.find(key)
        if record is not None:
            record[0] = meter.give_back(record[0], meter, now, stamp, amount)

    def _remember_spent(self, name: str, until: Micros, now: Micros) -> bool:
        """Note that a receipt is used up; False if there is no room to remember it, so that it must not count."""
        for old, _ in self._spent_expiries.due(now, _SWEPT_PER_GIVE_BACK):
            self._spent.discard(old)
        if len(self._spent) >= self.table.max_counters:
            return False
        self._spent.add(name)
        self._spent_expiries.file(name, until)
        return True

    def _note_reservations(self, hits: Sequence[Hit], decisions: Sequence[Decision], now: Micros) -> None:
        for hit, decision in zip(hits, decisions, strict=True):
            key, meter, cost, holder, ttl = hit
            if holder is not None and ttl is not None and meter.algorithm is not Algorithm.CONCURRENCY:
                receipt = Receipt(key, meter, decision.stamp, cost, holder)
                heappush(self.reservations, (now + ttl, holder, receipt))

    def _expire_reservations(self, now: Micros) -> None:
        """Give back what was reserved and not settled in time."""
        while self.reservations and self.reservations[0][0] <= now:
            self._give_back(heappop(self.reservations)[2], now)

    def reset_now(self, keys: Sequence[Key]) -> None:
        """`reset`, without waiting."""
        with self.lock:
            for key in keys:
                self.table.remove(key)

    # The same for those who await

    async def take(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        """See `CounterStore.take`."""
        return self.take_now(hits)

    async def peek(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        """See `CounterStore.peek`."""
        return self.peek_now(hits)

    async def give_back(self, receipts: Sequence[Receipt]) -> None:
        """See `CounterStore.give_back`."""
        self.give_back_now(receipts)

    async def reset(self, keys: Sequence[Key]) -> None:
        """See `CounterStore.reset`."""
        self.reset_now(keys)

    async def close(self) -> None:
        """See `CounterStore.close`. Nothing is held that has to be let go."""


def _decide(hit: Hit, state: Any, now: Micros) -> tuple[Any, Decision]:  # noqa: ANN401 (each algorithm has its own state)
    key, meter, cost, holder, ttl = hit
    if meter.algorithm is Algorithm.CONCURRENCY:
        outcome = concurrency.decide(state, meter, now, cost, holder or key, ttl or meter.period)
    else:
        outcome = meter.decide(state, meter, now, cost)
    return outcome[0], _new(Decision, outcome[1:])


def _no_room(hit: Hit, now: Micros) -> Decision:
    """Refused because the memory is full; a second later some counter may have expired."""
    return Decision(allowed=False, remaining=0, reset_after=SECOND, retry_after=SECOND, delay=0, stamp=hit.key, at=now)
