"""Regions in one process, each with a store of its own: what is shared, what is cut off, and what comes back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.contract.test_sharded import Shared
from tests.support.receipts import receipt_of

from headgate.core.decision import Decision, Hit, Receipt, Source
from headgate.core.failure_policy import FailurePolicy
from headgate.core.limit import Rate
from headgate.core.meter import Algorithm, Meter
from headgate.core.spread import RegionMode, Spread, SpreadMode
from headgate.core.units import MINUTE
from headgate.dataplane import gossip
from headgate.dataplane.regional import Regional
from headgate.errors import PartlyAnswered, StoreError
from headgate.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from headgate.core.decision import Key

TWELVE = Meter(Rate(12, MINUTE), Algorithm.FIXED_WINDOW)
PLAIN = Hit("rl:{u=a}:each:fw1m", TWELVE, 1)
REGIONS = ("ap", "eu", "us")
DOWN = StoreError("timeout", transient=True)


class Link(Shared):
    """A region's store as the others see it: a link that can be cut."""

    def __init__(self, store: Shared, clock: FakeClock) -> None:
        super().__init__(clock)
        self.inner = store
        self.error: StoreError | None = None
        self.calls = 0

    def _check(self) -> None:
        self.calls += 1
        if self.error is not None:
            raise self.error

    async def take(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        self._check()
        await asyncio.sleep(0)  # as a server that answers later
        return self.inner.take_now(hits)

    async def peek(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        self._check()
        return self.inner.peek_now(hits)

    async def give_back(self, receipts: Sequence[Receipt]) -> None:
        self._check()
        self.inner.give_back_now(receipts)

    async def reset(self, keys: Sequence[Key]) -> None:
        self._check()
        self.inner.reset_now(keys)


class World:
    """Three regions, and the links between them."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.stores = {name: Link(Shared(self.clock), self.clock) for name in REGIONS}
        self.links = {
            (here, there): Link(self.stores[there].inner, self.clock)
            for here in REGIONS
            for there in REGIONS
            if here != there
        }
        self.regions = {
            here: Regional(
                self.stores[here],
                here,
                {there: self.links[here, there] for there in REGIONS if there != here},
                self.clock,
            )
            for here in REGIONS
        }

    def cut(self, region: str, *, is_cut: bool = True) -> None:
        for pair, link in self.links.items():
            if region in pair:
                link.error = DOWN if is_cut else None

    async def exchange(self) -> None:
        for each in self.regions.values():
            await each.gossip.exchange()

    async def close(self) -> None:
        for each in self.regions.values():
            await each.close()


def spread(mode: RegionMode, **shares: int) -> FailurePolicy:
    return FailurePolicy(spread=Spread(SpreadMode.REGIONS, regions=mode, shares=shares))


def hit(mark: str, cost: int = 1, meter: Meter = TWELVE, policy: FailurePolicy | None = None) -> Hit:
    return Hit(f"rl:{{g=all}}:all:{meter.code}|@{mark}", meter, cost, failure_policy=policy)


@pytest.fixture
def world() -> World:
    return World()


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


async def wait_until_async(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not is_so():  # noqa: ASYNC110 (it is the exchange that is waited for)
            await asyncio.sleep(0.001)


async def used_up(regional: Regional, each: Hit, most: int = 100) -> int:
    """How many are admitted until one is refused."""
    for number in range(most):
        if not (await regional.take([each]))[0].allowed:
            return number
    return most


# Central


def test_central_is_counted_at_home_from_anywhere(world: World) -> None:
    """All regions together get the limit; without the home it is an outage of that rule only."""

    async def scenario() -> None:
        central = hit("central.us")
        assert await used_up(world.regions["eu"], central) == 12
        assert await used_up(world.regions["us"], central) == 0
        world.cut("us")
        with pytest.raises(PartlyAnswered) as caught:
            await world.regions["eu"].take([central, PLAIN])
        unknown, known = caught.value.decisions
        assert unknown is None
        assert known is not None
        assert known.allowed
        await world.close()

    run(scenario())


def test_a_refusal_elsewhere_gives_back_what_was_counted_here(world: World) -> None:
    """A request's hits are taken in all regions or in none."""

    async def scenario() -> None:
        eu = world.regions["eu"]
        both = [hit("central.us"), PLAIN, hit("central.ap", meter=Meter(Rate(1, MINUTE), Algorithm.FIXED_WINDOW))]
        assert all(decision.allowed for decision in await eu.take(both))
        refused = await eu.take(both)
        assert [decision.allowed for decision in refused] == [True, True, False]
        assert [decision.remaining for decision in refused] == [11, 11, 0]
        assert [decision.remaining for decision in await eu.peek(both)] == [11, 11, 0]
        world.links["eu", "us"].error = DOWN
        (full,) = await eu.take([both[2]])
        assert not full.allowed
        await world.close()

    run(scenario())


def test_what_is_refused_here_is_not_asked_elsewhere(world: World) -> None:
    """The other regions take nothing for a request that this one refuses."""

    async def scenario() -> None:
        eu, link = world.regions["eu"], world.links["eu", "us"]
        one = PLAIN._replace(meter=Meter(Rate(1, MINUTE), Algorithm.FIXED_WINDOW))
        await eu.take([one])
        taken: list[Hit] = []
        real = link.inner.take_now

        def noted(hits: Sequence[Hit]) -> list[Decision]:
            taken.extend(hits)
            return real(hits)

        link.inner.take_now = noted  # type: ignore[method-assign]
        first, second = await eu.take([hit("central.us"), one])
        assert (first.allowed, first.remaining, second.allowed) == (True, 12, False)
        assert not taken
        await world.close()

    run(scenario())


def test_what_cannot_be_given_back_stays_counted(world: World) -> None:
    """Too much is counted, never too little, and the answer is the refusal."""

    async def scenario() -> None:
        eu = world.regions["eu"]
        one = hit("central.ap", meter=Meter(Rate(1, MINUTE), Algorithm.FIXED_WINDOW))
        await eu.take([one])
        us = world.links["eu", "us"]
        real = us.inner.take_now

        def last_answer(hits: Sequence[Hit]) -> list[Decision]:
            us.error = DOWN
            return real(hits)

        us.inner.take_now = last_answer  # type: ignore[method-assign]
        first, second = await eu.take([hit("central.us"), one])
        assert (first.allowed, second.allowed) == (True, False)
        await world.close()

    run(scenario())


def test_an_error_for_good_is_raised_and_nothing_is_counted(world: World) -> None:
    """An input that a region can never take is no outage."""

    async def scenario() -> None:
        eu = world.regions["eu"]
        world.links["eu", "us"].error = StoreError("holds something else", transient=False)
        with pytest.raises(StoreError, match="something else"):
            await eu.take([PLAIN, hit("central.us")])
        (left,) = await eu.peek([PLAIN._replace(cost=0)])
        assert left.remaining == 12
        with pytest.raises(StoreError, match="same counter"):
            await eu.take([hit("central.us"), hit("central.us")])
        await world.close()

    run(scenario())


# Split


def test_split_gives_each_region_its_share(world: World) -> None:
    """The shares add up to the limit; refunds go to the share; a region whose share is nothing refuses for good."""

    async def scenario() -> None:
        split = hit("split", policy=spread(RegionMode.SPLIT, eu=2, us=1, ap=1))
        got = {name: await used_up(region, split) for name, region in world.regions.items()}
        assert got == {"eu": 6, "us": 3, "ap": 3}
        await world.regions["eu"].reset([split.key])
        (taken,) = await world.regions["eu"].take([split])
        assert taken.remaining == 5
        await world.regions["eu"].give_back([receipt_of(split, taken)])
        assert (await world.regions["eu"].peek([split._replace(cost=0)]))[0].remaining == 6
        assert await used_up(world.regions["us"], split) == 3
        bucket = hit("split", meter=Meter(Rate(12, MINUTE, 8), Algorithm.TOKEN_BUCKET), policy=split.failure_policy)
        (taken,) = await world.regions["eu"].take([bucket])
        assert taken.remaining == 3
        await world.regions["eu"].give_back([receipt_of(bucket, taken)])
        assert (await world.regions["eu"].peek([bucket._replace(cost=0)]))[0].remaining == 4
        tiny = hit("split", meter=Meter(Rate(1, MINUTE), Algorithm.FIXED_WINDOW), policy=split.failure_policy)
        await world.regions["eu"].reset([tiny.key])
        answers = [(await region.take([tiny, PLAIN]))[0] for region in world.regions.values()]
        assert sorted((each.allowed, each.retry_after) for each in answers if each.allowed) == [(True, 0)]
        assert [each.retry_after for each in answers if not each.allowed] == [None, None]
        none = hit("split", policy=spread(RegionMode.SPLIT, us=1))
        assert not (await world.regions["eu"].peek([none]))[0].allowed
        await world.regions["eu"].give_back([Receipt(split.key, TWELVE, 60, 1, "whole")])
        await world.close()

    run(scenario())


def test_a_settled_split_needs_no_rule(world: World) -> None:
    """A forced hit of a token, which has no shares, is counted here."""

    async def scenario() -> None:
        (decision,) = await world.regions["eu"].take([hit("split", 3)._replace(forced=True)])
        assert decision.allowed
        await world.close()

    run(scenario())


# Gossip


def test_gossip_begins_with_what_the_others_have_left(world: World) -> None:
    """The first hit of a process hears of the others first, and without them it has its share."""

    async def scenario() -> None:
        each = hit("gossip")
        eu, us, ap = (world.regions[name] for name in ("eu", "us", "ap"))
        world.links["us", "ap"].error = DOWN
        assert await used_up(us, each) == 4
        world.links["us", "ap"].error = None
        both = await asyncio.gather(eu.take([each]), eu.take([each]))
        assert sorted(decision.remaining for (decision,) in both) == [6, 7]
        assert await used_up(eu, each) == 12 - 4 - 2
        await world.exchange()
        await world.exchange()
        for region in (us, ap, eu):
            assert await used_up(region, each) == 0
        assert (await eu.peek([each]))[0].retry_after == MINUTE
        world.clock.advance(seconds=60)
        await world.exchange()
        assert (await ap.take([each]))[0].allowed
        await world.close()

    run(scenario())


@pytest.mark.parametrize(
    "algorithm", [Algorithm.FIXED_WINDOW, Algorithm.SLIDING_WINDOW_COUNTER, Algorithm.TOKEN_BUCKET]
)
def test_gossip_holds_the_sum_of_all_regions(world: World, algorithm: Algorithm) -> None:
    """With an exchange after every hit no more than the limit is admitted, whatever the algorithm."""

    async def scenario() -> None:
        each = hit("gossip", meter=Meter(Rate(30, MINUTE), algorithm))
        for region in world.regions.values():
            await region.peek([each])
        await world.exchange()
        admitted = 0
        for number in range(60):
            (decision,) = await world.regions[REGIONS[number % 3]].take([each])
            admitted += decision.allowed
            await world.exchange()
        assert admitted == 30
        await world.close()

    run(scenario())


def test_an_exchange_counts_once_however_often_and_by_whom(world: World) -> None:
    """Two processes of a region that exchange the same counts add them once."""

    async def scenario() -> None:
        each = hit("gossip", 2)
        eu, us = world.regions["eu"], world.regions["us"]
        second = Regional(world.stores["eu"], "eu", {"us": world.links["eu", "us"]}, world.clock)
        await us.take([each])
        for process in (eu, second, eu):
            await process.peek([each])
            await asyncio.gather(process.gossip.exchange(), second.gossip.exchange())
        assert (await eu.peek([each._replace(cost=0)]))[0].remaining == 10
        assert (await us.peek([each._replace(cost=0)]))[0].remaining == 10
        await eu.reset([each.key])
        await world.exchange()
        assert (await us.take([each]))[0].allowed
        await second.gossip.close()
        await world.close()

    run(scenario())


def test_a_region_that_falls_silent_is_not_trusted(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """After three intervals each region has its share only, the limit in all; healed, the sum decides again."""

    async def scenario() -> None:
        each = hit("gossip", policy=spread(RegionMode.GOSSIP, eu=6, us=5, ap=1))
        eu, us = world.regions["eu"], world.regions["us"]
        for region in world.regions.values():
            await region.take([each._replace(cost=0)])
        await world.exchange()
        world.cut("ap")
        for _ in range(4):
            world.clock.advance(seconds=1)
            await world.exchange()
        got = [await used_up(world.regions[name], each) for name in ("eu", "us", "ap")]
        assert got == [6, 5, 1]
        assert [peer.region for peer in eu.gossip.peers() if peer.is_silent] == ["ap"]
        assert "region silent: ap, no counts for 4.0 s, shares are enforced: timeout" in caplog.text
        world.cut("ap", is_cut=False)
        await world.exchange()
        assert "region recovered: ap, silent for 4.0 s" in caplog.text
        assert not any(peer.is_silent for peer in us.gossip.peers())
        assert (await us.peek([each]))[0].remaining == 0
        await world.close()

    run(scenario())


def test_a_share_of_nothing_waits_for_the_sum(world: World) -> None:
    """A region whose share is less than a unit refuses until the others were heard of, and then has what is left."""

    async def scenario() -> None:
        each = hit("gossip", meter=Meter(Rate(1, MINUTE), Algorithm.FIXED_WINDOW))
        us = world.regions["us"]
        world.cut("ap")
        (refused,) = await us.take([each])
        assert not refused.allowed
        world.cut("ap", is_cut=False)
        await world.exchange()
        (taken,) = await us.take([each])
        assert taken.allowed
        forced = each._replace(forced=True, cost=5)
        assert (await us.take([forced]))[0].allowed
        await us.give_back([Receipt(each.key, each.meter, 60, 1, "in one piece")])
        await world.close()

    run(scenario())


def test_counters_that_are_not_used_are_not_exchanged(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only so many are kept, and those of which a period has passed without a hit are dropped."""
    monkeypatch.setattr(gossip, "MAX_COUNTERS", 2)

    async def scenario() -> None:
        eu = world.regions["eu"]
        for number in range(4):
            await eu.take([hit("gossip")._replace(key=f"rl:{{u={number}}}:all:fw1m|@gossip")])
        await eu.gossip.close()
        world.links["eu", "us"].calls = 0
        await eu.gossip.exchange()
        assert world.links["eu", "us"].calls == 2
        assert not eu.gossip.is_up_to_date("rl:{u=0}:all:fw1m|@gossip", TWELVE)
        world.clock.advance(seconds=61)
        await eu.gossip.exchange()
        assert world.links["eu", "us"].calls == 2
        await world.close()

    run(scenario())


def test_the_exchange_runs_by_itself(world: World) -> None:
    """It begins with the first hit on a counter, at once, and goes on every interval."""

    async def scenario() -> None:
        eu = Regional(world.stores["eu"], "eu", {"us": world.links["eu", "us"]}, world.clock, 0.001)
        await eu.take([hit("gossip")])
        heard = world.links["eu", "us"]
        await wait_until_async(lambda: heard.calls >= 3)
        await eu.take([hit("gossip")._replace(key="rl:{u=b}:all:fw1m|@gossip")])
        before = heard.calls
        await wait_until_async(lambda: heard.calls >= before + 4)
        heard.error = RuntimeError("a defect")  # type: ignore[assignment]
        with pytest.raises(RuntimeError):
            await eu.gossip.exchange()
        await eu.close()
        await world.close()

    run(scenario())


# Borrow


def test_borrowed_units_are_spent_without_the_home(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Blocks grow with the demand; cut off, a region goes on with what it holds, and then it is an outage."""

    async def scenario() -> None:
        big = hit("borrow.us", meter=Meter(Rate(6_000, MINUTE), Algorithm.FIXED_WINDOW))
        eu = world.regions["eu"]
        sources = []
        for _ in range(200):
            world.clock.advance(micros=1_000)
            (decision,) = await eu.take([big])
            sources.append(decision.source)
            await asyncio.sleep(0)
        assert sources.count(Source.LEASE) == 200
        assert world.links["eu", "us"].calls < 40
        held = eu.borrowers["us"].outstanding
        assert held > 5
        world.cut("us")
        for _ in range(held):
            assert (await eu.take([big, PLAIN._replace(cost=0)]))[0].allowed
        with pytest.raises(PartlyAnswered) as caught:
            await eu.take([big, PLAIN._replace(cost=0)])
        assert caught.value.decisions[0] is None
        assert "home region unavailable: us" in caplog.text
        world.cut("us", is_cut=False)
        assert (await eu.take([big]))[0].allowed
        assert "home region recovered: us" in caplog.text
        await world.close()

    run(scenario())


def test_unused_units_go_back(world: World) -> None:
    """After a second without demand, and at the end: home has everything but what was spent."""

    async def scenario() -> None:
        for algorithm in (Algorithm.FIXED_WINDOW, Algorithm.TOKEN_BUCKET):
            each = hit("borrow.us", meter=Meter(Rate(600, MINUTE), algorithm))
            eu = world.regions["eu"]
            borrower = eu.borrowers["us"]
            for _ in range(30):
                world.clock.advance(micros=1_000)
                await eu.take([each])
                await asyncio.sleep(0)
            assert borrower.outstanding
            assert (await eu.peek([each._replace(cost=0)]))[0].remaining == 570
            world.clock.advance(seconds=1)
            world.links["eu", "us"].error = DOWN
            await borrower.return_unused()
            world.links["eu", "us"].error = None
            assert borrower.outstanding == 0
            await eu.reset([each.key])
            (taken,) = await eu.take([each._replace(cost=5)])
            assert taken.allowed
            await eu.give_back([receipt_of(each._replace(cost=5), taken)._replace(amount=4)])
            await borrower.return_unused(everything=True)
            assert (await world.regions["us"].peek([each._replace(cost=0)]))[0].remaining == 599
            world.clock.advance(seconds=7)
            await borrower.return_unused()
            world.clock.advance(seconds=61)
            await borrower.return_unused()
            await eu.give_back(
                [Receipt(each.key, each.meter, (1, 1) if algorithm is Algorithm.TOKEN_BUCKET else 60, 1, "x")]
            )
        await world.close()

    run(scenario())


def test_a_refused_request_puts_its_units_back_into_the_block(world: World) -> None:
    """Nothing is asked of home for it."""

    async def scenario() -> None:
        eu = world.regions["eu"]
        each = hit("borrow.us", 2)
        one = PLAIN._replace(meter=Meter(Rate(1, MINUTE), Algorithm.FIXED_WINDOW))
        assert all(decision.allowed for decision in await eu.take([each, one]))
        first, second = await eu.take([each, one])
        assert (first.allowed, first.remaining, second.allowed) == (True, 10, False)
        (full,) = await eu.take([each._replace(cost=11)])
        assert (full.allowed, full.remaining) == (False, 10)
        (over, _) = await eu.take([each._replace(cost=11), PLAIN._replace(key="rl:{u=b}:each:fw1m")])
        assert not over.allowed
        world.stores["eu"].error = DOWN
        with pytest.raises(StoreError):
            await eu.take([each, one])
        world.stores["eu"].error = None
        assert (await eu.take([each._replace(cost=10)]))[0].allowed
        eu.borrowers["us"].forget(each.key)
        from headgate.dataplane.borrowed import BorrowedDecision  # noqa: PLC0415 (what it returns)

        eu.borrowers["us"].put_back(each, BorrowedDecision(first, []))
        await world.close()

    run(scenario())


def test_many_at_once_borrow_once(world: World) -> None:
    """Of concurrent hits one asks home, and together they get exactly the limit."""

    async def scenario() -> None:
        eu = world.regions["eu"]
        answers = await asyncio.gather(*[eu.take([hit("borrow.us")]) for _ in range(30)])
        assert sum(decision.allowed for (decision,) in answers) == 12
        calls = world.links["eu", "us"].calls
        again = await asyncio.gather(*[eu.take([hit("borrow.us")]) for _ in range(30)])
        assert not any(decision.allowed for (decision,) in again)
        assert world.links["eu", "us"].calls == calls + 1
        await world.close()

    run(scenario())


def test_a_part_of_a_cluster_that_does_not_answer(world: World) -> None:
    """What the other servers of this region have counted is given back, and the request is an outage."""

    async def scenario() -> None:
        eu = world.regions["eu"]
        store = world.stores["eu"]
        split = hit("split", policy=spread(RegionMode.SPLIT, eu=1, us=1))
        (decision,) = store.inner.take_now([PLAIN])
        for transient in (True, False):
            store.error = PartlyAnswered(StoreError("timeout", transient=transient), [decision, None])
            with pytest.raises(StoreError) as caught:
                await eu.take([PLAIN, split])
            assert caught.value.transient is transient
            with pytest.raises(StoreError):
                await eu.peek([PLAIN, split])
        await eu.present("process", 1)
        store.error = None
        await world.close()

    run(scenario())


def test_only_what_a_part_of_a_cluster_has_counted_is_given_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A peek has counted nothing."""

    async def scenario() -> None:
        store = world.stores["eu"]
        given_back: list[Receipt] = []

        async def give_back(receipts: Sequence[Receipt]) -> None:
            given_back.extend(receipts)

        monkeypatch.setattr(store, "give_back", give_back)
        split = hit("split", policy=spread(RegionMode.SPLIT, eu=1, us=1))
        (decision,) = store.inner.take_now([PLAIN])
        store.error = PartlyAnswered(StoreError("timeout", transient=True), [decision, None])
        with pytest.raises(StoreError):
            await world.regions["eu"].peek([PLAIN, split])
        assert not given_back
        with pytest.raises(StoreError):
            await world.regions["eu"].take([PLAIN, split])
        assert [receipt.key for receipt in given_back] == [PLAIN.key]
        store.error = None
        await world.close()

    run(scenario())
