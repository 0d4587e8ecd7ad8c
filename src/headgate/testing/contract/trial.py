"""Helpers for the contract's tests: a store, its clock, and counters."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from headgate.core.decision import Decision, Hit, Receipt
from headgate.core.limit import Rate, Slots, parse_limit
from headgate.core.meter import Algorithm, Meter
from headgate.testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextlib import AbstractAsyncContextManager

    from headgate.core.units import Micros
    from headgate.ports import CounterStore

RATES: Final = tuple(algorithm for algorithm in Algorithm if algorithm is not Algorithm.CONCURRENCY)
"""The algorithms that count over time; the other one counts holders."""

TEN: Final[dict[Algorithm, str]] = {
    **dict.fromkeys(RATES, "10/minute"),
    Algorithm.CONCURRENCY: "10 concurrent ttl 60s",
}
"""A limit of ten for every algorithm."""

_names = count(1)


def meter_of(limit: str, algorithm: Algorithm, max_delay: Micros | None = None) -> Meter:
    """The meter of a limit's text."""
    parsed = parse_limit(limit)
    assert isinstance(parsed, Rate | Slots), limit
    return Meter(parsed, algorithm, max_delay)


@dataclass(frozen=True, slots=True)
class Counter:
    """One counter of the store under test."""

    store: CounterStore
    key: str
    meter: Meter

    def hit(self, cost: int = 1, holder: str | None = None, ttl: Micros | None = None) -> Hit:
        """A hit on this counter; slots without a holder get a new one."""
        if holder is None and self.meter.algorithm is Algorithm.CONCURRENCY:
            holder = f"holder-{next(_names)}"
        return Hit(self.key, self.meter, cost, holder, ttl)

    async def take(self, cost: int = 1, holder: str | None = None, ttl: Micros | None = None) -> Decision:
        """Take this one hit."""
        (decision,) = await self.store.take([self.hit(cost, holder, ttl)])
        return decision

    async def peek(self, cost: int = 0, holder: str | None = None) -> Decision:
        """What taking this one hit would answer; with cost 0, the present state."""
        (decision,) = await self.store.peek([self.hit(cost, holder)])
        return decision

    async def admitted(self, cost: int = 1, holder: str | None = None, ttl: Micros | None = None) -> Decision:
        """Take this one hit, which must be admitted."""
        decision = await self.take(cost, holder, ttl)
        assert decision.allowed, f"{self.meter} refused {cost}: {decision}"
        return decision

    async def refused(self, cost: int = 1, holder: str | None = None) -> Decision:
        """Take this one hit, which must be refused."""
        decision = await self.take(cost, holder)
        assert not decision.allowed, f"{self.meter} admitted {cost}: {decision}"
        return decision

    async def remaining(self) -> int:
        """What is left of the limit."""
        return (await self.peek()).remaining

    def receipt(self, decision: Decision, amount: int, name: str | None = None) -> Receipt:
        """The receipt of an admission, for all or a part of it."""
        return Receipt(self.key, self.meter, decision.stamp, amount, name or f"receipt-{next(_names)}")

    async def give_back(self, decision: Decision, amount: int) -> None:
        """Give an admission back, under a unique name."""
        await self.store.give_back([self.receipt(decision, amount)])

    def under(self, limit: str) -> Counter:
        """The same counter after the limit was changed."""
        changed = Counter(self.store, self.key, meter_of(limit, self.meter.algorithm))
        assert changed.meter.code == self.meter.code, "another period is another counter"
        return changed


@dataclass(frozen=True, slots=True)
class Trial:
    """One store under test and its clock."""

    store: CounterStore
    clock: FakeClock

    def counter(
        self, limit: str | Meter, algorithm: Algorithm = Algorithm.FIXED_WINDOW, *, max_delay: Micros | None = None
    ) -> Counter:
        """A new counter. All have one subject, so that a cluster can take them in one request."""
        meter = limit if isinstance(limit, Meter) else meter_of(limit, algorithm, max_delay)
        return Counter(self.store, f"rl:{{u=contract}}:rule-{next(_names)}:{meter.code}", meter)

    def tens(self) -> list[Counter]:
        """A counter with a limit of ten for every algorithm."""
        return [self.counter(limit, algorithm) for algorithm, limit in TEN.items()]

    async def admitted_first_after(self, counter: Counter, cost: int, wait: Micros | None) -> Decision:
        """Check that `cost` is refused one microsecond before `wait` ends, and admitted then."""
        assert wait is not None, f"{counter.meter} never admits {cost}"
        assert wait > 0, f"{counter.meter} refuses {cost} and says to try again at once"
        self.clock.advance(micros=wait - 1)
        early = await counter.peek(cost)
        assert not early.allowed, f"{counter.meter} admits {cost} before its retry_after: {early}"
        assert early.retry_after == 1, f"{counter.meter}, one microsecond early: {early}"
        self.clock.advance(micros=1)
        return await counter.admitted(cost)


class StoreCase:
    """What every part of the contract needs from a store's tests."""

    def open_store(self, clock: FakeClock) -> AbstractAsyncContextManager[CounterStore]:
        """An empty store that uses `clock`, open while the context lasts."""
        raise NotImplementedError

    def run(self, main: Coroutine[Any, Any, None]) -> None:
        """Run one test to its end; override it to use another event loop."""
        asyncio.run(main)


def scenario(steps: Callable[[Any, Trial], Coroutine[Any, Any, None]]) -> Callable[[StoreCase], None]:
    """Turn a function on a fresh store into a test method that any test runner can call."""

    async def main(case: StoreCase) -> None:
        clock = FakeClock()
        async with case.open_store(clock) as store:
            await steps(case, Trial(store, clock))

    def test(self: StoreCase) -> None:
        self.run(main(self))

    # Not functools.wraps: runners would follow __wrapped__ and take `trial` for a fixture.
    test.__name__, test.__qualname__, test.__doc__ = steps.__name__, steps.__qualname__, steps.__doc__
    test.__module__ = steps.__module__
    return test
