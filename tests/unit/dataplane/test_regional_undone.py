"""Requests of several regions that get no answer, or are refused late: nothing of them stays counted."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.support.receipts import receipt_of
from tests.unit.dataplane.test_regional import PLAIN, World, hit, run, spread, used_up

from headgate.core.limit import Rate
from headgate.core.meter import Algorithm, Meter
from headgate.core.spread import RegionMode
from headgate.core.units import MINUTE, SECOND
from headgate.dataplane.deny_cache import DenyCache
from headgate.dataplane.regional import Regional
from headgate.errors import NotFound, Overloaded, StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.unit.dataplane.test_regional import Link

    from headgate.core.decision import Decision, Hit, Receipt

HUNDRED = Meter(Rate(100, MINUTE), Algorithm.FIXED_WINDOW)
ENDINGS = [Overloaded(), StoreError("timeout", transient=True), RuntimeError("a defect")]


@pytest.fixture
def world() -> World:
    return World()


def fails(link: Link, error: Exception | None) -> None:
    """What is taken over a link fails without having been counted, or never ends."""

    async def take(hits: Sequence[Hit]) -> Sequence[Decision]:
        assert hits
        if error is None:
            await asyncio.Event().wait()
            pytest.fail("nothing ends this wait")
        raise error

    link.take = take  # type: ignore[method-assign]


async def broken_off(world: World, hits: Sequence[Hit]) -> None:
    """A request of eu whose caller does not wait any more."""
    asking = asyncio.create_task(world.regions["eu"].take(hits))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not asking.done()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


async def ended(world: World, hits: Sequence[Hit], error: Exception | None) -> None:
    if error is None:
        await broken_off(world, hits)
        return
    with pytest.raises(type(error)):
        await world.regions["eu"].take(hits)


@pytest.mark.parametrize("error", [*ENDINGS, None], ids=repr)
def test_units_of_a_block_are_put_back_when_this_region_gives_no_answer(world: World, error: Exception | None) -> None:
    """Whatever ends the request: too much in flight, an outage, a defect, or a caller that is gone."""

    async def scenario() -> None:
        borrowed = hit("borrow.us", meter=HUNDRED)
        eu = world.regions["eu"]
        for _ in range(20):
            await eu.take([borrowed])
            await asyncio.sleep(0)
        held = eu.borrowers["us"].outstanding
        assert held > 3
        fails(world.stores["eu"], error)
        for _ in range(3):
            await ended(world, [PLAIN, borrowed], error)
        assert eu.borrowers["us"].outstanding == held
        await world.close()

    run(scenario())


@pytest.mark.parametrize("error", [Overloaded(), RuntimeError("a defect"), None], ids=repr)
def test_what_was_counted_is_given_back_when_another_region_gives_no_answer(
    world: World, error: Exception | None
) -> None:
    """Both what was counted here and what was counted in regions that were asked before."""

    async def scenario() -> None:
        eu = world.regions["eu"]
        here, first, last = PLAIN, hit("central.us"), hit("central.ap")
        fails(world.links["eu", "ap"], error)
        for _ in range(13):
            await ended(world, [here, first, last], error)
        left = await eu.peek([here._replace(cost=0), first._replace(cost=0)])
        assert [decision.remaining for decision in left] == [12, 12]
        await world.close()

    run(scenario())


def test_giving_back_goes_on_without_the_caller(world: World) -> None:
    """A caller that leaves while its refused request is undone does not end that; closing waits for it."""

    async def scenario() -> None:
        eu, store = world.regions["eu"], world.stores["eu"]
        none = hit("central.us", 13)
        reached, goes_on = asyncio.Event(), asyncio.Event()
        real = store.give_back

        async def slow(receipts: Sequence[Receipt]) -> None:
            reached.set()
            await goes_on.wait()
            await real(receipts)

        store.give_back = slow  # type: ignore[method-assign]
        asking = asyncio.create_task(eu.take([PLAIN, none]))
        await reached.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        asyncio.get_running_loop().call_soon(goes_on.set)
        await world.close()
        assert store.inner.peek_now([PLAIN._replace(cost=0)])[0].remaining == 12

    run(scenario())


def test_an_overloaded_process_that_cannot_give_back_still_says_so(world: World) -> None:
    """The caller hears of what ended its request, not of what could not be undone."""

    async def scenario() -> None:
        fails(world.links["eu", "us"], Overloaded("the first"))

        async def full(receipts: Sequence[Receipt]) -> None:
            assert receipts
            raise Overloaded

        world.stores["eu"].give_back = full  # type: ignore[method-assign]
        with pytest.raises(Overloaded, match="the first"):
            await world.regions["eu"].take([PLAIN, hit("central.us")])
        await world.close()

    run(scenario())


# What other regions hear of

ALGORITHMS = [Algorithm.FIXED_WINDOW, Algorithm.SLIDING_WINDOW_COUNTER, Algorithm.TOKEN_BUCKET]


async def left(world: World, each: Hit) -> list[int]:
    """What each region has left, after all have heard of each other."""
    await world.exchange()
    return [(await region.peek([each._replace(cost=0)]))[0].remaining for region in world.regions.values()]


@pytest.mark.parametrize("cost", [1, 7])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_is_denied_here_is_not_counted_in_any_region(world: World, algorithm: Algorithm, cost: int) -> None:
    """A limit that is exchanged is not used up by requests that a limit elsewhere refuses."""

    async def scenario() -> None:
        exchanged = hit("gossip", cost, meter=Meter(Rate(100, MINUTE), algorithm))
        full = hit("central.ap", 13)
        for _ in range(30):
            assert not all(decision.allowed for decision in await world.regions["eu"].take([exchanged, full]))
        assert await left(world, exchanged) == [100, 100, 100]
        await world.close()

    run(scenario())


def test_a_refund_of_a_window_reaches_the_other_regions(world: World) -> None:
    """Of the rest of a partial refund they know too; it counts once, and what they heard before stays with them."""

    async def scenario() -> None:
        each = hit("gossip", 10, meter=HUNDRED)
        us = world.regions["us"]
        (taken,) = await us.take([each])
        refund = receipt_of(each, taken)._replace(amount=7)
        await us.give_back([refund])
        await us.give_back([refund])
        assert await left(world, each) == [97, 97, 97]
        (taken,) = await us.take([each])
        assert await left(world, each) == [87, 87, 87]
        await us.give_back([receipt_of(each, taken)])
        assert await left(world, each) == [87, 87, 97]
        await us.take([each._replace(cost=15)])
        assert await left(world, each) == [82, 82, 82]
        await world.close()

    run(scenario())


@pytest.mark.parametrize("mark", ["gossip", "split"])
def test_a_refund_of_a_region_that_is_not_known_is_refused(world: World, mark: str) -> None:
    """It is credited nowhere, and neither is what comes with it: another region's units were never counted here."""

    async def scenario() -> None:
        each = hit(mark, 10, meter=HUNDRED, policy=spread(RegionMode(mark), ap=1, eu=1, us=1))
        eu, us = world.regions["eu"], world.regions["us"]
        (theirs,), (here,) = await us.take([each]), await eu.take([each])
        del eu.others["us"]  # type: ignore[attr-defined] # eu starts again without it
        before = (await eu.peek([each]))[0].remaining
        with pytest.raises(NotFound, match="counted in the region 'us', which this process does not know: eu, ap"):
            await eu.give_back([receipt_of(each, here), receipt_of(each, theirs)])
        assert (await eu.peek([each]))[0].remaining == before
        await eu.give_back([receipt_of(each, here)])
        assert (await eu.peek([each]))[0].remaining == before + 10
        await world.close()

    run(scenario())


@pytest.mark.parametrize("algorithm", ALGORITHMS[1:])
def test_a_refund_of_other_algorithms_stays_in_its_region(world: World, algorithm: Algorithm) -> None:
    """Their ledgers are of many periods: what others charged to one must not hide what is admitted in the next."""

    async def scenario() -> None:
        each = hit("gossip", 10, meter=Meter(Rate(100, MINUTE), algorithm))
        us = world.regions["us"]
        (taken,) = await us.take([each])
        assert await left(world, each) == [90, 90, 90]
        await us.give_back([receipt_of(each, taken)])
        world.clock.advance(seconds=120)
        await world.exchange()
        await us.take([each])
        assert await left(world, each) == [90, 90, 90]
        await world.close()

    run(scenario())


def test_a_step_of_the_wall_clock_prolongs_no_block(world: World) -> None:
    """What was borrowed in one window is not spent in the next, and answers without a store have a date."""

    async def scenario() -> None:
        began, steps = world.clock(), [0]
        others = {name: world.links["us", name] for name in ("ap", "eu")}
        us = Regional(
            world.stores["us"],
            "us",
            others,
            lambda: world.clock() - began,
            wall_clock=lambda: world.clock() + steps[0],
        )
        eu, each = world.regions["eu"], hit("borrow.eu", meter=HUNDRED)
        world.clock.advance(seconds=50)
        for _ in range(30):
            await us.take([each])
        await used_up(eu, each)
        steps[0] = -30 * SECOND
        world.clock.advance(seconds=11)
        assert await used_up(eu, each) == 100
        assert await used_up(us, each) == 0
        none = hit("split", meter=HUNDRED, policy=spread(RegionMode.SPLIT, eu=1))
        assert (await us.take([none]))[0].at == world.clock() - 30 * SECOND
        await us.gossip.close()
        await us.borrowers["eu"].close()
        await world.close()

    run(scenario())


# In front of it: the deny cache


def test_a_denial_of_a_borrowed_limit_ends_when_home_has_units_again(world: World) -> None:
    """What a block admits is decided by the store, so a known denial does not outlast its second."""

    async def scenario() -> None:
        eu = world.regions["eu"]
        cache = DenyCache(eu, lambda: world.clock() * 1_000)
        each = hit("borrow.us", meter=HUNDRED)
        (taken,) = await eu.take([each])
        while (await cache.take([each]))[0].allowed:
            pass
        await eu.give_back([receipt_of(each, taken)])
        assert not (await cache.take([each]))[0].allowed
        world.clock.advance(seconds=1)
        assert [(await cache.take([each]))[0].allowed for _ in range(2)] == [True, False]
        await world.close()

    run(scenario())
