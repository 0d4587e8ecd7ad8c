"""The limiter: one snapshot, one plan, one trip to the store, one verdict.

`run_now` runs coroutines that never wait, without an event loop.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeVar

from headgate.core import degraded
from headgate.core.failure_policy import for_replicas
from headgate.core.meter import DEFAULT_ALGORITHM, check_cost
from headgate.core.request import Request
from headgate.core.verdict import Verdict, bare_plan, bare_verdict, verdict
from headgate.dataplane.bare_keys import span
from headgate.dataplane.reservations import Reservation, Slot
from headgate.errors import InvalidRequest, Overloaded, short_repr
from headgate.ports import LeasingStore, LocalStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
    from typing import Self

    from headgate.core.decision import Decision, Hit, Key
    from headgate.core.limit import Limit
    from headgate.core.matching import Bound, Plan
    from headgate.dataplane.bare_keys import BareKeys
    from headgate.dataplane.observer import DecisionObserver
    from headgate.dataplane.snapshots import Follower, Planner, Snapshots
    from headgate.ports import CounterStore, HeldHitFunction

_SECONDS_BETWEEN_LOOKS = 1.0


class Limiter:
    """Decides requests by rules (`check`) and bare keys by limits (`hit`)."""

    def __init__(
        self,
        store: CounterStore,
        snapshots: Snapshots,
        bare_keys: BareKeys,
        follower: Follower | None = None,
        *,
        observer: DecisionObserver | None = None,
        planner: Planner | None = None,
        peeks_replicas: bool = False,
    ) -> None:
        """Constructed by `headgate.wiring`; programs call `Limiter.open`.

        `observer` is told of every check. `planner` makes the plans in place of `snapshots`. `peeks_replicas` says
        whether replicas may answer peeks that leave `replica` open.
        """
        self.peeks_replicas = peeks_replicas
        self.store = store
        self._returns = store
        """The store for what gives something back; those who wait for it are told, where a limiter has waiters."""
        self.snapshots = snapshots
        self.bare_keys = bare_keys
        self.follower = follower
        self.observer = observer
        planner = snapshots if planner is None else planner
        self.plan = planner.plan
        """See `Planner.plan`; bound here to spare every check a call."""
        self._plan_counters = planner.plan_counters
        self.hit_now = self.check_now = self.decide_now = self._take_now = None
        """`hit`, `check` and `decide` without waiting, where the store is in this process; `decide_now` leaves out the
        rules that are only watched."""
        if isinstance(store, LocalStore):
            self.hit_now = store.fast_path(bare_keys.meters, self._hit_on_the_slow_path)
            self.check_now = self._check_without_waiting
            self.decide_now = self._decided_now
            self._take_now = store.take_now
        self.hit_held: HeldHitFunction | None = None
        self._take_held = None
        self._held: Mapping[Key, object] = {}
        """`hit` and `CounterStore.take` without waiting, where this process holds enough; None where it does not."""
        self._refuse_now = None
        self._denied: Mapping[Key, object] = {}
        """`CounterStore.take` without waiting, where a refusal is known: it takes a quarter less time than with."""
        if isinstance(store, LeasingStore):
            self.hit_held = store.held_path(bare_keys.meters, _not_held)
            self._take_held, self._held = store.take_held, store.held
            self._refuse_now, self._denied = store.refuse_now, store.denied
        self.check_held = self._check_from_leases
        """`check` in the same way."""
        self._follower_task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Start following the rules."""
        if self.follower is not None:
            self._follower_task = asyncio.create_task(self._follow(self.follower))
        return self

    async def __aexit__(self, *_exc: object) -> None:
        """Stop following the rules and close the store."""
        await self.close()

    async def close(self) -> None:
        """Stop following the rules and close the store."""
        if self._follower_task is not None:
            self._follower_task.cancel()
            with suppress(asyncio.CancelledError):
                await self._follower_task
            self._follower_task = None
        await self._returns.close()

    async def _follow(self, follower: Follower) -> None:
        while True:
            await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)
            await asyncio.to_thread(follower.poll)

    # Requests, by rules

    async def check(self, request: Request, cost: int | None = None) -> Verdict:
        """Decide a request, and count it if every rule admits it."""
        observer = self.observer
        timer = None if observer is None else observer.next_timer()
        started = 0.0 if timer is None else timer()
        plan = self.plan(request, cost)
        if plan.shadows:
            made = await self.decide(plan)
        elif self._take_now is not None or not plan.enforced:
            made = self._decided_now(plan)
        else:
            hits = [bound[0] for bound in plan.enforced]
            held = self._take_held(hits) if self._held and self._take_held is not None else None
            made = verdict(plan, await self.store.take(hits) if held is None else held)
        if observer is not None:
            observer.offer(request, cost, made, started)
        return made

    def _check_from_leases(self, request: Request, cost: int | None = None) -> Verdict | None:
        """`check` without waiting, where this process holds enough of every counter; else None, and nothing is done."""
        if self._take_held is None or not self._held:  # else the plan would be made twice for nothing
            return None
        observer = self.observer
        timer = None if observer is None else observer.next_timer()
        started = 0.0 if timer is None else timer()
        plan = self.plan(request, cost)
        if plan.shadows or not plan.enforced:
            return None
        held = self._take_held([bound[0] for bound in plan.enforced])
        if held is None:
            return None
        made = verdict(plan, held)
        if observer is not None:
            observer.offer(request, cost, made, started)
        return made

    @property
    def may_decide_now(self) -> bool:
        """Whether `check_now` or `check_held` is worth a try."""
        return self._take_now is not None or bool(self._held)

    async def decide(self, plan: Plan) -> Verdict:
        """Take the hits of a plan from the store, and make the verdict."""
        decisions = await self.store.take([bound.hit for bound in plan.enforced]) if plan.enforced else ()
        if not plan.shadows or not _all_allowed(decisions):
            return verdict(plan, decisions)
        return verdict(plan, decisions, await watched(plan.shadows, self.store.take))

    def _check_without_waiting(self, request: Request, cost: int | None = None) -> Verdict:
        observer = self.observer
        timer = None if observer is None else observer.next_timer()
        started = 0.0 if timer is None else timer()
        plan = self.plan(request, cost)
        if plan.shadows:
            return run_now(self.check(request, cost))
        made = self._decided_now(plan)
        if observer is not None:
            observer.offer(request, cost, made, started)
        return made

    def _decided_now(self, plan: Plan) -> Verdict:
        hits = [bound[0] for bound in plan.enforced]
        return verdict(plan, self._take_now(hits) if self._take_now is not None and hits else ())

    async def check_many(self, requests: Iterable[Request], cost: int | None = None) -> list[Verdict]:
        """Decide several requests, each by itself, in order; where the store is elsewhere, in one trip."""
        if self._take_now is not None:
            return [await self.check(request, cost) for request in requests]
        return await asyncio.gather(*[self.check(request, cost) for request in requests])

    # Keys, by limits

    async def hit(self, key: str, limit: str | Limit, cost: int = 1, *, algorithm: str = DEFAULT_ALGORITHM) -> Verdict:
        """Take `cost` from a key's limit."""
        if self.hit_now is not None:
            return self.hit_now(key, limit, cost, algorithm=algorithm)
        if self._held and self.hit_held is not None:
            held = self.hit_held(key, limit, cost, algorithm=algorithm)
            if held is not None:
                return held
        hit = self.bare_keys.hit(key, limit, cost, algorithm)
        if hit is None:
            return verdict(bare_plan(None), ())
        refused = self._refuse_now(hit) if self._refuse_now is not None and hit[0] in self._denied else None
        return bare_verdict(hit, await self.store.take((hit,)) if refused is None else refused)

    def _hit_on_the_slow_path(
        self, key: str, limit: str | Limit, cost: int = 1, *, algorithm: str = DEFAULT_ALGORITHM
    ) -> Verdict:
        hit = self.bare_keys.hit(key, limit, cost, algorithm)
        return verdict(bare_plan(hit), () if hit is None else run_now(self.store.take([hit])))

    def reserve(
        self,
        subject: Request | str,
        limit: str | Limit | None = None,
        cost: int | None = None,
        *,
        ttl: float = 60.0,
        algorithm: str = DEFAULT_ALGORITHM,
    ) -> Reservation:
        """Take `cost` now, of a key's limit or by the rules for a request, and settle later what it really was.

        ``async with`` it, or ``await`` it and look at its verdict. For `ttl` seconds settling
        can give back what was not needed.
        """
        self._plan_for(subject, limit, cost, algorithm, self.bare_keys.hit)  # wrong arguments raise here

        async def ask() -> Verdict:
            if isinstance(subject, Request):
                return await self.check(subject, cost)
            return await self.hit(subject, limit or "", 1 if cost is None else cost, algorithm=algorithm)

        return Reservation(self._returns, ask, span(ttl))

    def slot(self, key: str, limit: str | Limit, *, ttl: float | None = None) -> Slot:
        """Hold one of a key's slots while a block runs; free again after `ttl` seconds if the holder dies."""
        return Slot(self._returns, self.bare_keys.slot(key, limit, ttl))

    # Both

    async def peek(
        self,
        subject: Request | str,
        limit: str | Limit | None = None,
        cost: int | None = None,
        *,
        algorithm: str = DEFAULT_ALGORITHM,
        replica: bool | None = None,
    ) -> Verdict:
        """What `check` (of a request) or `hit` (of a key and limit) would answer. Changes nothing.

        With ``cost=0`` it returns the current state of the counters. With ``replica=True`` a replica may answer, if
        the store has one: the primary is spared, and the answer, whose source is `replica`, may be a moment old.
        """
        if isinstance(subject, Request) and limit is None:
            plan = self.plan(subject, cost)
        else:
            plan = self._plan_for(subject, limit, cost, algorithm)
        peek = partial(look, self, replica=replica)
        decisions = await peek([bound.hit for bound in plan.enforced]) if plan.enforced else ()
        if not plan.shadows or not _all_allowed(decisions):
            return verdict(plan, decisions)
        return verdict(plan, decisions, await watched(plan.shadows, peek))

    async def reset(
        self, subject: Request | str, limit: str | Limit | None = None, *, algorithm: str = DEFAULT_ALGORITHM
    ) -> None:
        """Forget what was counted for a request's counters, or for a key under a limit."""
        plan = self._plan_for(subject, limit, None, algorithm)
        await self._returns.reset([bound.hit.key for bound in (*plan.enforced, *plan.shadows)])

    async def refund(self, verdict: Verdict, amount: int | None = None) -> None:
        """Give back what a verdict took, slots included, or `amount` of it. Only the first refund of it counts."""
        if not isinstance(verdict, Verdict):
            msg = f"expected a verdict to refund, not {short_repr(verdict)}"
            raise InvalidRequest(msg)
        receipts = verdict.receipts
        if amount is not None:
            most = check_cost(amount)
            receipts = tuple(receipt._replace(amount=min(most, receipt.amount)) for receipt in receipts)
        if receipts:
            await self._returns.give_back(receipts)

    def _plan_for(
        self,
        subject: Request | str,
        limit: str | Limit | None,
        cost: int | None,
        algorithm: str,
        hit: Callable[[str, str | Limit, int, str], Hit | None] | None = None,
    ) -> Plan:
        if isinstance(subject, str):
            if limit is None:
                msg = "a key needs a limit, for example peek('login:203.0.113.9', '5/minute')"
                raise InvalidRequest(msg)
            return bare_plan((hit or self.bare_keys.either)(subject, limit, 1 if cost is None else cost, algorithm))
        if limit is not None:
            msg = "a limit goes with a key; a request is decided by the rules"
            raise InvalidRequest(msg)
        return self._plan_counters(subject, cost)


def look(limiter: Limiter, hits: Sequence[Hit], *, replica: bool | None = None) -> Awaitable[Sequence[Decision]]:
    """How counters stand. `replica` says whether a replica may answer; None: as the limiter was made."""
    may = limiter.peeks_replicas if replica is None else replica
    return limiter.store.peek(for_replicas(hits) if may else hits)


def _not_held(key: str, limit: str | Limit, cost: int = 1, *, algorithm: str = DEFAULT_ALGORITHM) -> None:
    """In place of a verdict: the store has to be asked."""


def _all_allowed(decisions: Iterable[Decision]) -> bool:
    return all(decision.allowed for decision in decisions)


async def watched(
    shadows: Iterable[Bound], ask: Callable[[Sequence[Hit]], Awaitable[Sequence[Decision]]]
) -> list[Decision]:
    """The decisions on watched rules: each rule by itself, with all of its limits or none, as if it were enforced."""
    decisions: list[Decision] = []
    for _, bounds in groupby(shadows, key=lambda bound: bound.rule.name):
        hits = [bound.hit for bound in bounds]
        try:
            decisions += await ask(hits)
        except Overloaded:  # what is only watched must not undo what was decided
            decisions += [degraded.allowed(hit, 0) for hit in hits]
    return decisions


T = TypeVar("T")


def run_now(step: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, which it must reach without waiting for anything."""
    try:
        step.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    step.close()
    msg = "a store in this process made its caller wait"
    raise RuntimeError(msg)
