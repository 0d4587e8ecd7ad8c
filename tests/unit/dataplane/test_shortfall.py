"""`on_shortfall`: what becomes of requests whose counts too few replicas have."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.contract.test_sharded import Shared

from headgate.adapters.memory import MemoryStore
from headgate.core.decision import Decision, Hit, Source
from headgate.core.degraded import UnderReplicated
from headgate.core.failure_policy import FailurePolicy, OnShortfall, OnStoreError
from headgate.core.limit import Rate, Slots
from headgate.core.meter import Algorithm, Meter
from headgate.core.units import MINUTE, SECOND
from headgate.dataplane.borrowed import Borrower
from headgate.dataplane.guarded import Guarded
from headgate.dataplane.local_share import LocalShare
from headgate.errors import StoreError
from headgate.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

TEN = Meter(Rate(10, MINUTE), Algorithm.FIXED_WINDOW)
SLOTS = Meter(Slots(3, MINUTE), Algorithm.CONCURRENCY)
DENY = FailurePolicy(replicas=1, on_shortfall=OnShortfall.DENY)
MARK = FailurePolicy(replicas=1)


class Unreplicated(Shared):
    """A store whose replicas have stopped."""

    has_replicas = False
    is_silent = False

    async def take(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        decisions = self.take_now(hits)
        return decisions if self.has_replicas else [UnderReplicated(*decision) for decision in decisions]

    async def peek(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        if self.is_silent:
            msg = "unavailable"
            raise StoreError(msg, transient=True)
        return self.peek_now(hits)


class Scene:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = Unreplicated(self.clock)
        self.guarded = Guarded(self.store, LocalShare(MemoryStore(self.clock)), self.clock)

    def left(self, name: str, meter: Meter = TEN) -> int:
        return self.store.peek_now([Hit(name, meter, 0)])[0].remaining


@pytest.fixture
def scene() -> Scene:
    return Scene()


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


def test_a_shortfall_is_marked_or_refused(scene: Scene) -> None:
    """`mark` counts and says so; `deny` refuses, counts nothing and asks the caller to come back in a second."""

    async def scenario() -> None:
        (marked,) = await scene.guarded.take([Hit("a", TEN, 4, failure_policy=MARK)])
        assert (marked.allowed, marked.is_replicated, marked.remaining) == (True, False, 6)
        (denied,) = await scene.guarded.take([Hit("a", TEN, 4, failure_policy=DENY)])
        assert (denied.allowed, denied.is_replicated, denied.remaining) == (False, False, 6)
        assert (denied.source, denied.retry_after) == (Source.DEGRADED_DENY, SECOND)
        assert scene.left("a") == 6
        assert scene.guarded.degraded == {Source.DEGRADED_DENY: 1}
        scene.store.has_replicas = True
        (admitted,) = await scene.guarded.take([Hit("a", TEN, 4, failure_policy=DENY)])
        assert (admitted.allowed, admitted.source, admitted.remaining) == (True, Source.STORE, 2)

    run(scenario())


def test_the_other_counters_of_the_request_are_given_back(scene: Scene) -> None:
    """One rule that denies refuses the whole request; the others answer as they stand."""

    async def scenario() -> None:
        await scene.guarded.take([Hit("b", TEN, 3)])
        hits = [Hit("a", TEN, 1, failure_policy=DENY), Hit("b", TEN, 1), Hit("c", TEN, 1, failure_policy=MARK)]
        decisions = await scene.guarded.take(hits)
        assert [decision.allowed for decision in decisions] == [False, True, True]
        assert [decision.remaining for decision in decisions] == [10, 7, 10]
        assert [scene.left(name) for name in "abc"] == [10, 7, 10]

    run(scenario())


def test_a_refusal_of_the_store_stays_one(scene: Scene) -> None:
    """A request that a limit refuses is not counted, so there is nothing to give back, and its wait is the limit's."""

    async def scenario() -> None:
        await scene.guarded.take([Hit("full", TEN, 10)])
        hits = [Hit("a", TEN, 1, failure_policy=DENY), Hit("full", TEN, 1, failure_policy=DENY)]
        decisions = await scene.guarded.take(hits)
        assert [decision.allowed for decision in decisions] == [True, False]
        assert decisions[1].source is Source.STORE
        assert scene.left("a") == 10
        assert not scene.guarded.degraded

    run(scenario())


def test_a_renewal_keeps_its_slots(scene: Scene) -> None:
    """Slots that were held before the replicas stopped stay held when their renewal is refused."""

    async def scenario() -> None:
        scene.store.has_replicas = True
        hold = Hit("s", SLOTS, 2, "holder", failure_policy=DENY)
        await scene.guarded.take([hold])
        scene.store.has_replicas = False
        assert not (await scene.guarded.take([hold]))[0].allowed
        assert scene.left("s", SLOTS) == 1

    run(scenario())


def test_what_was_used_already_is_only_marked(scene: Scene) -> None:
    """What a reservation was too small for is counted, whatever replicas there are; a look costs nothing."""

    async def scenario() -> None:
        forced = Hit("a", TEN, 12, forced=True, failure_policy=DENY)
        (counted,) = await scene.guarded.take([forced])
        assert (counted.allowed, counted.is_replicated) == (True, False)
        assert scene.left("a") == 0
        (looked,) = await scene.guarded.take([Hit("b", TEN, 0, failure_policy=DENY)])
        assert looked.allowed

    run(scenario())


def test_a_server_that_goes_away_meanwhile_changes_nothing(scene: Scene) -> None:
    """If the counters cannot be read after a shortfall, the request is refused all the same."""

    async def scenario() -> None:
        scene.store.is_silent = True
        (denied,) = await scene.guarded.take([Hit("a", TEN, 4, failure_policy=DENY)])
        assert (denied.allowed, denied.source) == (False, Source.DEGRADED_DENY)
        assert scene.left("a") == 10

    run(scenario())


def test_a_refused_request_does_not_warm_the_local_share(scene: Scene) -> None:
    """With `on_store_error: local`, what is refused for its replicas takes nothing of this process's share."""

    async def scenario() -> None:
        local = DENY._replace(on_error=OnStoreError.LOCAL)
        for _ in range(20):
            await scene.guarded.take([Hit("a", TEN, 1, failure_policy=local)])
        scene.store.has_replicas = True
        scene.guarded.begin()
        assert (await scene.guarded.take([Hit("a", TEN, 1, failure_policy=local)]))[0].remaining == 9
        await scene.guarded.close()

    run(scenario())


def test_no_block_is_borrowed_that_replicas_do_not_have() -> None:
    """Home's replicas must have what is borrowed; where they do not, each hit asks home and carries the mark."""
    clock = FakeClock()
    home = Unreplicated(clock)
    borrower = Borrower(home, "us", 2, clock)
    key = "rl:{g=all}:all:fw1m|@borrow.us"

    async def scenario() -> None:
        for _ in range(5):
            clock.advance(micros=1_000)
            taken = await borrower.take(Hit(key, TEN, 1, failure_policy=MARK))
            assert (taken.decision.allowed, taken.decision.is_replicated) == (True, False)
        assert borrower.outstanding == 0
        assert home.peek_now([Hit(key, TEN, 0)])[0].remaining == 5
        home.has_replicas = True
        taken = await borrower.take(Hit(key, TEN, 1, failure_policy=MARK))
        assert (taken.decision.allowed, taken.decision.is_replicated) == (True, True)
        await borrower.close()

    run(scenario())
