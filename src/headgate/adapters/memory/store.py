"""The memory store: all counters in one dictionary, all decisions under one lock.

`Limiter.hit` on the memory store is what people put into inner loops and compare limiters by. So `fast_path` goes
from a bare key to a verdict in one function, if the counter exists: no hit, no decision, no plan, no call that can be
avoided. All other cases take the slow path, with the same results.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

from headgate.adapters.clock import clock_in_ns, wall_clock
from headgate.adapters.memory.table import DEFAULT_MAX_COUNTERS, CounterTable, ExpiryWheel, WhenFull
from headgate.core.algorithms import concurrency
from headgate.core.decision import Decision, Hit, Receipt
from headgate.core.meter import DEFAULT_ALGORITHM, Algorithm, check_cost
from headgate.core.units import SECOND
from headgate.core.verdict import Verdict
from headgate.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headgate.core.decision import Key, Stamp
    from headgate.core.limit import Limit
    from headgate.core.meter import Meter
    from headgate.core.units import Micros
    from headgate.ports import HitFunction

_ONE = 1


def fast_path(store: MemoryStore, meters: Mapping[str, Mapping[object, Meter]], slow_path: HitFunction) -> HitFunction:
    """`hit` for known limits (`meters`, by algorithm and limit) and existing counters of `store`."""
    acquire, release = store.lock.acquire, store.lock.release
    bare, clock = store.table.bare, store.clock
    wall_clock_ns = clock_in_ns if clock is wall_clock else None

    def hit(key: str, limit: str | Limit, cost: int = 1, *, algorithm: str = DEFAULT_ALGORITHM) -> Verdict:
        try:
            meter = meters[algorithm][limit]
        except (KeyError, TypeError):  # a limit seen for the first time, or not even hashable
            return slow_path(key, limit, cost, algorithm=algorithm)
        if cost is not _ONE:
            check_cost(cost)
        acquire()  # half the time of `with`
        try:
            try:
                record = bare[meter.code][key]
            except (KeyError, TypeError):  # a key seen for the first time, or not even hashable
                record = None
            if record is not None:
                state = record[0]
                now = clock() if wall_clock_ns is None else wall_clock_ns() // 1_000
                outcome = meter.decide(state, meter, now, cost)
                after = outcome[0]
                if after is not state:
                    record[0] = after if meter.commit is None else meter.commit(state, meter, after)
                    record[1] = meter
                verdict = Verdict()
                verdict._plan_or_key = key  # noqa: SLF001 (in place of __init__)
                verdict._answer = outcome  # noqa: SLF001 (as above)
                verdict._meter = meter  # noqa: SLF001 (as above)
                verdict._cost = cost  # noqa: SLF001 (as above)
                verdict.allowed = outcome[1]
                return verdict
        finally:
            release()
        return slow_path(key, limit, cost, algorithm=algorithm)

    return hit


_SWEPT_PER_GIVE_BACK = 4
_new = tuple.__new__  # half the time of Decision(...)


class _Elsewhere(NamedTuple):
    """The stamp of an admission that was counted in an overflow counter."""

    counter: str
    stamp: Stamp


class _Answer(NamedTuple):
    """What is decided on one hit, before anything is done about it."""

    hit: Hit
    counter: str | None
    """The name of the counter that counts it; None if no counter does."""
    record: list[Any] | None
    """That counter's record, if it has one."""
    before: Any
    after: Any
    decision: Decision


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
        _hold_while_forking(self)
        self.table = CounterTable(max_counters, when_full)
        self._spent: set[str] = set()
        """Receipts that were given back, for as long as it matters."""
        self._spent_expiries = ExpiryWheel()

    def fast_path(self, meters: Mapping[str, Mapping[object, Meter]], slow_path: HitFunction) -> HitFunction:
        """See `LocalStore.fast_path`."""
        return fast_path(self, meters, slow_path)

    def take_now(self, hits: Sequence[Hit]) -> list[Decision]:
        """`take`, without waiting."""
        self.lock.acquire()  # half the time of `with`
        try:
            now = self.clock()
            return self._take_usual(hits, now) or self._take(hits, now)
        finally:
            self.lock.release()

    def peek_now(self, hits: Sequence[Hit]) -> list[Decision]:
        """`peek`, without waiting."""
        with self.lock:
            now = self.clock()
            return _as_answered(self._answers(hits, now))

    def _take_usual(self, hits: Sequence[Hit], now: Micros) -> list[Decision] | None:
        """`_take` for what happens most: all counters exist and all have room. None where it is otherwise."""
        named = self.table.named
        decisions: list[Decision] = []
        changes: list[tuple[list[Any], Any, Meter]] = []
        for key, meter, cost, _, _, _, _ in hits:
            record = named.get(key)
            if record is None or meter.charge is None:  # slots depend on their holders
                return None
            outcome = meter.decide(record[0], meter, now, cost)
            if not outcome[1]:
                return None
            changes.append((record, outcome[0], meter))
            decisions.append(_new(Decision, outcome[1:]))
        if len(hits) > 1 and len({hit[0] for hit in hits}) < len(hits):
            return None
        for record, after, meter in changes:
            before = record[0]
            if after is not before:
                record[0] = after if meter.commit is None else meter.commit(before, meter, after)
                record[1] = meter
        return decisions

    def _take(self, hits: Sequence[Hit], now: Micros) -> list[Decision]:
        """Decide all hits first; only then count them, or none."""
        answers = self._answers(hits, now)
        allowed = _all_allowed(answers)
        new: list[tuple[str, Any, Meter]] = []
        for hit, counter, record, before, after, decision in answers:
            # A denial changes the state too if the clock stepped back; see headgate.core.algorithms.
            if after is before or counter is None or (decision.allowed and not allowed):
                continue
            meter = hit.meter
            kept = after if meter.commit is None else meter.commit(before, meter, after)
            if record is not None:
                record[0], record[1] = kept, meter
            elif hit.cost:  # a look that cost nothing needs no counter
                new.append((counter, kept, meter))
        for counter, kept, meter in new:  # last, because adding can evict other records
            self.table.add(counter, kept, meter, now)
        return _as_answered(answers)

    def _answers(self, hits: Sequence[Hit], now: Micros) -> list[_Answer]:
        """Decide each hit by itself, changing nothing."""
        answers: list[_Answer] = []
        counters: set[str | None] = set()
        new = 0
        for hit in hits:
            counter: str | None = hit.key
            record = self.table.find(hit.key)
            if record is not None:
                before = record[0]
            else:
                new += 1
                counter, record, before = self.table.counter_for(hit.key, now, new)
            if counter in counters:
                if any(hit.key == earlier.hit.key for earlier in answers):
                    msg = "two hits of one request name the same counter"
                    raise StoreError(msg, transient=False)
                counter = None  # two new counters of one request would share one overflow counter
            counters.add(counter)
            answers.append(_new(_Answer, (hit, counter, record, before, *_decide(hit, counter, before, now))))
        return answers

    # Giving back

    def give_back_now(self, receipts: Sequence[Receipt]) -> None:
        """`give_back`, without waiting."""
        with self.lock:
            now = self.clock()
            for receipt in receipts:
                self._give_back(receipt, now)

    def _give_back(self, receipt: Receipt, now: Micros) -> None:
        key, meter, stamp, amount, name = receipt
        if isinstance(stamp, _Elsewhere):
            key, stamp = stamp.counter, stamp.stamp
        if meter.creditable_until is not None:  # slots are released by name, which once is enough for
            until = meter.creditable_until(stamp, meter)
            if until <= now or (name and not self._is_first(f"{name} {key}", until, now)):
                return  # the receipts of one request may share their name
        record = self.table.find(key)
        if record is not None and not name and meter.algorithm is Algorithm.CONCURRENCY:
            record[0] = concurrency.undo(record[0], meter, now, stamp, amount)
        elif record is not None:
            record[0] = meter.give_back(record[0], meter, now, stamp, amount)

    def _is_first(self, name: str, until: Micros, now: Micros) -> bool:
        """Note that a receipt is used up; False if it was, or there is no room to remember it: it must not count."""
        if name in self._spent:
            return False
        for old in self._spent_expiries.due(now, _SWEPT_PER_GIVE_BACK):
            self._spent.discard(old)
        if len(self._spent) >= self.table.max_counters:
            return False
        self._spent.add(name)
        self._spent_expiries.file(name, until)
        return True

    def reset_now(self, keys: Sequence[Key]) -> None:
        """`reset`, without waiting."""
        with self.lock:
            for key in keys:
                self.table.remove(key)

    # The same as coroutines

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
        """See `CounterStore.close`. There is nothing to close."""


def _hold_while_forking(store: MemoryStore) -> None:
    """Hold the lock during a fork: a child forked during a decision would have a lock that is never released."""
    reference = weakref.ref(store)

    def hold() -> None:
        if (held := reference()) is not None:
            held.lock.acquire()

    def release() -> None:
        if (held := reference()) is not None and held.lock.locked():
            held.lock.release()

    os.register_at_fork(before=hold, after_in_parent=release, after_in_child=release)


def _all_allowed(answers: list[_Answer]) -> bool:
    for answer in answers:  # noqa: SIM110 (a third of the time of all())
        if not answer[5].allowed:
            return False
    return True


def _as_answered(answers: list[_Answer]) -> list[Decision]:
    """The decisions; in a refused request nothing was counted, so a hit that would have passed is as it was."""
    if _all_allowed(answers):
        return [answer[5] for answer in answers]
    return [
        _decide(hit._replace(cost=0), counter, before, decision.at)[1] if decision.allowed else decision
        for hit, counter, _, before, _, decision in answers
    ]


def _decide(hit: Hit, counter: str | None, state: Any, now: Micros) -> tuple[Any, Decision]:  # noqa: ANN401 (each algorithm has its own state)
    """The state after a hit, and the decision."""
    key, meter, cost, holder, ttl, forced, _ = hit
    if counter is None:
        refused = _no_room(hit, now)  # and what is forced passes uncounted
        return state, refused._replace(allowed=True, retry_after=0) if forced else refused
    if meter.algorithm is Algorithm.CONCURRENCY:
        outcome = concurrency.decide(state, meter, now, cost, holder or key, ttl or meter.period)
    else:
        outcome = meter.decide(state, meter, now, cost)
    if forced and not outcome[1] and meter.charge is not None:
        outcome = (meter.charge(state, meter, now, cost), True, 0, outcome[3], 0, 0, outcome[6], now)
    decision: Decision = _new(Decision, outcome[1:])
    if counter != key:
        decision = decision._replace(stamp=_Elsewhere(counter, decision.stamp))  # type: ignore[arg-type] # only we read it
    return outcome[0], decision


def _no_room(hit: Hit, now: Micros) -> Decision:
    """Refused because the memory is full; a second later some counter may have expired."""
    return Decision(allowed=False, remaining=0, reset_after=SECOND, retry_after=SECOND, delay=0, stamp=hit.key, at=now)
