from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from tests.contract.test_sharded import Shared
from tests.support.spreading import Renamed

from headgate.core.failure_policy import FailurePolicy
from headgate.core.spread import RegionMode, Spread, SpreadMode
from headgate.dataplane.regional import Regional
from headgate.testing import CounterStoreContract
from headgate.testing.contract.trial import scenario

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from headgate.core.decision import Hit
    from headgate.ports import CounterStore
    from headgate.testing import FakeClock
    from headgate.testing.contract.trial import Trial


def regional(clock: FakeClock, region: str = "eu") -> Regional:
    return Regional(Shared(clock), region, {"us": Shared(clock), "ap": Shared(clock)}, clock)


class TestWithoutRegions(CounterStoreContract):
    """A store of a region keeps every promise of the port for rules without regions."""

    @asynccontextmanager
    async def open_store(self, clock: FakeClock) -> AsyncIterator[CounterStore]:
        store = regional(clock)
        yield store
        await store.close()


class TestCentralElsewhere(CounterStoreContract):
    """A counter that is kept in another region keeps every promise of the port, for every algorithm."""

    @asynccontextmanager
    async def open_store(self, clock: FakeClock) -> AsyncIterator[CounterStore]:
        store = Renamed(regional(clock), "|@central.us", suits=lambda _: True)
        yield store
        await store.close()


class TestCentralHere(CounterStoreContract):
    """A counter that is kept in this region for all keeps every promise of the port."""

    @asynccontextmanager
    async def open_store(self, clock: FakeClock) -> AsyncIterator[CounterStore]:
        store = Renamed(regional(clock), "|@central.eu", suits=lambda _: True)
        yield store
        await store.close()


class _WholeShare(Renamed):
    """All hits are of a rule that gives one region the whole limit as its share."""

    def hit(self, hit: Hit) -> Hit:
        policy = FailurePolicy(spread=Spread(SpreadMode.REGIONS, regions=RegionMode.SPLIT, shares={"eu": 1}))
        return super().hit(hit)._replace(failure_policy=policy)


class TestSplit(CounterStoreContract):
    """A share of a limit keeps every promise of the port."""

    @asynccontextmanager
    async def open_store(self, clock: FakeClock) -> AsyncIterator[CounterStore]:
        store = _WholeShare(regional(clock), "|@split")
        yield store
        await store.close()


class TestGossip(CounterStoreContract):
    """A counter that regions exchange, of which the others have admitted nothing, keeps every promise of the port."""

    @asynccontextmanager
    async def open_store(self, clock: FakeClock) -> AsyncIterator[CounterStore]:
        inner = regional(clock)
        store = Renamed(inner, "|@gossip")
        inner.gossip.is_up_to_date = lambda *_: True  # type: ignore[method-assign]
        yield store
        await store.close()


async def _no_renewal(*_: object) -> None:
    """A block is not renewed before it is used up: what lies unspent in the next one would show in the times."""


class TestBorrow(CounterStoreContract):
    """A counter that is borrowed keeps the promises of the port."""

    @asynccontextmanager
    async def open_store(self, clock: FakeClock) -> AsyncIterator[CounterStore]:
        inner = regional(clock)
        for borrower in inner.borrowers.values():
            borrower._renew = _no_renewal  # type: ignore[method-assign,assignment]
        store = Renamed(inner, "|@borrow.us")
        yield store
        await store.close()

    @scenario
    async def test_peek_answers_what_take_would(self, trial: Trial) -> None:
        """`peek` says what `take` then says of what is admitted and left; the rest depends on the block."""
        for counter in trial.tens():
            for cost in (0, 3, 8, 6, 1, 11, 0, 1):
                hit = counter.hit(cost)
                once, again = await trial.store.peek([hit]), await trial.store.peek([hit])
                assert list(once) == list(again)
                (taken,) = await trial.store.take([hit])
                assert once[0][:2] == taken[:2], (counter, cost)
                trial.clock.advance(seconds=7)

    @scenario
    async def test_others_in_a_refused_request_answer_as_they_stand(self, trial: Trial) -> None:
        """Beside a refused hit, a hit that would have passed reports what is left without it."""
        for index, counter in enumerate(trial.tens()):
            full = trial.tens()[index - 1]
            await full.admitted(10)
            await counter.admitted(4)
            for ask in (trial.store.take, trial.store.peek):
                decision, refused = await ask([counter.hit(3), full.hit(1)])
                assert not refused.allowed, counter
                assert (decision.allowed, decision.remaining) == (True, 6), counter
