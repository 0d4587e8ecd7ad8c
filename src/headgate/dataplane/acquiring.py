"""What people call to wait: `acquire`, a context manager and decorator, and loops at a limit's rate."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterable
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeAlias, TypeVar

from headgate.core.ids import new_id
from headgate.core.meter import DEFAULT_ALGORITHM
from headgate.core.request import Request
from headgate.core.verdict import bare_verdict
from headgate.dataplane.reservations import back, charges
from headgate.dataplane.waiting import AdmissionWaiter, check_timeout
from headgate.errors import InvalidRequest, short_repr

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable

    from headgate.core.decision import Hit, Key
    from headgate.core.limit import Limit
    from headgate.core.matching import Plan
    from headgate.core.verdict import Verdict
    from headgate.dataplane.limiter import Limiter
    from headgate.dataplane.wait_queues import WaitQueues
    from headgate.dataplane.waiting import Ask
    from headgate.ports import CounterStore

T = TypeVar("T")
P = ParamSpec("P")
Subject: TypeAlias = "Request | str"
PlanFor: TypeAlias = "Callable[[Subject, str | Limit | None, int | None, str], Plan]"


class Terms(NamedTuple):
    """What is to be acquired, and how long to wait for it; subject and cost may be functions of a call's arguments."""

    subject: Subject | Callable[..., Subject]
    limit: str | Limit | None = None
    cost: int | Callable[..., int] | None = None
    timeout: float | None = None
    algorithm: str = DEFAULT_ALGORITHM

    def of_call(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> Terms:
        """The terms of one call of a decorated function, whose own arguments its functions get."""
        subject = self.subject(*arguments, **named) if callable(self.subject) else self.subject
        cost = self.cost(*arguments, **named) if callable(self.cost) else self.cost
        return self._replace(subject=subject, cost=cost)


class Acquirer:
    """Waits for what a limiter admits."""

    def __init__(self, limiter: Limiter, plan_for: PlanFor, store: CounterStore, queues: WaitQueues) -> None:
        """`limiter` decides, `plan_for` finds counters, and `store` is what things are given back to."""
        self._limiter = limiter
        self._plan_for = plan_for
        self._store = store
        self._waiter = AdmissionWaiter(queues, store, suspends=not queues.blocks and limiter.hit_now is None)
        self.close = self._waiter.close

    async def acquire(self, terms: Terms) -> Verdict:
        """Wait until the limit, or all rules for a request, admit it."""
        ask, counters = self._asking(terms)
        return await self._waiter.until_admitted(ask, counters, self._waiter.deadline(terms.timeout))

    def waiting_for_slot(self, wait: float | bool) -> Callable[[Hit], Awaitable[Verdict]] | None:  # noqa: FBT001 (as `Limiter.slot` is given it)
        """How to take a slot as soon as one is free, within `wait` seconds (True: without end); None for no waiting."""
        if wait is False:
            return None
        timeout = check_timeout(None if wait is True else wait)

        async def take(hit: Hit) -> Verdict:
            deadline = self._waiter.deadline(timeout)
            return await self._waiter.until_admitted(self._asking_for_slot(hit), (hit.key,), deadline)

        return take

    async def release(self, verdict: Verdict) -> None:
        """Free the slots that an admission holds; what was taken of rates stays taken."""
        slots = back(charges(verdict, everywhere=True), None)
        if slots:
            await self._store.give_back(slots)

    def each(
        self,
        limit: str | Limit,
        key: str | None,
        cost: int | Callable[[T], int],
        timeout: float | None,
        algorithm: str,
    ) -> Acquiring:
        """What a loop acquires, by a call for each item; on a key of its own unless one is given."""
        return Acquiring(self, Terms(f"iterate:{new_id()}" if key is None else key, limit, cost, timeout, algorithm))

    def check(self, terms: Terms) -> None:
        """Raise what is wrong with terms, unless that depends on the arguments of a call."""
        subject = "any" if callable(terms.subject) and terms.limit is not None else terms.subject
        if not callable(subject):
            self._asking(terms._replace(subject=subject, cost=1 if callable(terms.cost) else terms.cost))
        check_timeout(terms.timeout)

    def _asking(self, terms: Terms) -> tuple[Ask, tuple[Key, ...]]:
        """How to ask for something once, and the counters that it waits for."""
        subject, limit, cost, _, algorithm = terms
        if not isinstance(subject, Request | str) or callable(cost):
            msg = (
                "a function as key or cost gets the arguments of a decorated function, so it is only for decorators"
                if callable(subject) or callable(cost)
                else f"acquire needs a key or a headgate.Request, not {short_repr(subject)}"
            )
            raise InvalidRequest(msg)
        limiter = self._limiter
        hits = [bound.hit for bound in self._plan_for(subject, limit, cost, algorithm).enforced]
        # What can never be admitted, or has no counter, is not behind anyone.
        is_alone = not hits or any(hit.cost > hit.meter.capacity for hit in hits)
        counters = (new_id(),) if is_alone else tuple(hit.key for hit in hits)
        if isinstance(subject, Request):
            request = subject  # for the function below, whose subject could be either
            return (lambda: limiter.check(request, cost)), counters
        if hits and hits[0].holder is not None:
            if cost not in {None, 1}:
                msg = f"one slot is acquired at a time, so its cost is 1, not {short_repr(cost)}"
                raise InvalidRequest(msg)
            return self._asking_for_slot(hits[0]), counters
        key, amount = subject, 1 if cost is None else cost
        assert limit is not None  # noqa: S101 (plan_for has seen to it)
        return (lambda: limiter.hit(key, limit, amount, algorithm=algorithm)), counters

    def _asking_for_slot(self, hit: Hit) -> Ask:
        async def ask() -> Verdict:
            return bare_verdict(hit, await self._store.take((hit,)))

        return ask


async def iterate(items: Iterable[T] | AsyncIterable[T], each: Acquiring) -> AsyncGenerator[T]:
    """The items, each as soon as it is acquired; a slot is held until the next item is requested."""
    async for item in _each(items):
        async with each.for_call(item):
            yield item


async def _each(items: Iterable[T] | AsyncIterable[T]) -> AsyncGenerator[T]:
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item


class Acquiring:
    """Acquires at the beginning of an ``async with`` block, or of each call of a decorated function.

    Slots are held until the end of the block or call; what was taken of rates stays taken.
    """

    def __init__(self, acquirer: Acquirer, terms: Terms) -> None:
        """Nothing is acquired yet; terms that are wrong raise here."""
        self._acquirer = acquirer
        self._terms = terms
        self._is_entered = False
        self._held: list[Verdict] = []
        acquirer.check(terms)

    async def __aenter__(self) -> Verdict:
        """Wait until it is admitted."""
        if self._is_entered:
            msg = "this acquiring() block is running; make another one for a second block"
            raise InvalidRequest(msg)
        self._is_entered = True
        try:
            self._held.append(await self._acquirer.acquire(self._terms))
        except BaseException:
            self._is_entered = False
            raise
        return self._held[0]

    async def __aexit__(self, *_exc: object) -> None:
        """Free the slots."""
        self._is_entered = False
        await self._acquirer.release(self._held.pop())

    def for_call(self, *arguments: object, **named: object) -> Acquiring:
        """The same for one call of a decorated function, or one item of a loop."""
        return Acquiring(self._acquirer, self._terms.of_call(arguments, named))

    def __call__(self, function: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
        """A coroutine function whose calls wait until they are admitted."""
        if not inspect.iscoroutinefunction(function):
            msg = (
                f"{_name(function)} is not a coroutine function; write `async def`, or decorate it with "
                "`acquiring` of a headgate.sync.Limiter"
            )
            raise TypeError(msg)

        @wraps(function)
        async def waiting(*arguments: P.args, **named: P.kwargs) -> T:
            async with self.for_call(*arguments, **named):
                return await function(*arguments, **named)

        return waiting


def check_plain_function(function: object) -> None:
    """Raise if decorating a function without `await` would not do what it seems to."""
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        msg = f"{_name(function)} is a coroutine function; decorate it with `acquiring` of a headgate.Limiter"
        raise TypeError(msg)
    if inspect.isgeneratorfunction(function) or not callable(function):
        msg = f"{_name(function)} is not a function that runs when it is called; use `iterate` for loops"
        raise TypeError(msg)


def _name(function: object) -> str:
    return getattr(function, "__qualname__", None) or short_repr(function)
