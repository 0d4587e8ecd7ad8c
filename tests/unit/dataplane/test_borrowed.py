"""Blocks of a home region's units: while others use up the home, while windows end, and what goes back by itself."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.contract.test_sharded import Shared

from headgate.core.borrow import HORIZON
from headgate.core.decision import Decision, Hit, Receipt, Source
from headgate.core.limit import Rate
from headgate.core.meter import Algorithm, Meter
from headgate.core.units import MINUTE
from headgate.dataplane import borrowed
from headgate.dataplane.borrowed import Borrower
from headgate.errors import StoreError
from headgate.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

KEY = "rl:{g=all}:all:fw1m|@borrow.us"
METER = Meter(Rate(600, MINUTE), Algorithm.FIXED_WINDOW)
ONE = Hit(KEY, METER, 1)


class Home(Shared):
    """The home region's store, which notes what is asked of it and answers a little later."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.asked: list[int] = []
        self.returned: list[int] = []
        self.before_answer: Callable[[], None] | None = None

    async def take(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        self.asked += [hit.cost for hit in hits]
        decisions = self.take_now(hits)
        await asyncio.sleep(0)  # as a server that answers later
        if self.before_answer is not None:
            self.before_answer()
        return decisions

    async def give_back(self, receipts: Sequence[Receipt]) -> None:
        self.returned += [receipt.amount for receipt in receipts]
        self.give_back_now(receipts)

    def left(self) -> int:
        return self.peek_now([ONE._replace(cost=0)])[0].remaining


class Setup:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.home = Home(self.clock)
        self.borrower = Borrower(self.home, "us", 2, self.clock)

    async def demand(self, hits: int) -> None:
        """Hits a millisecond apart, so that blocks grow."""
        for _ in range(hits):
            self.clock.advance(micros=1_000)
            assert (await self.borrower.take(ONE)).decision.allowed
            await asyncio.sleep(0)


@pytest.fixture
def setup() -> Setup:
    return Setup()


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


def test_one_that_waited_takes_from_the_block_that_another_got(setup: Setup) -> None:
    """A block is for more than one hit, so that home is asked once for both."""

    async def scenario() -> None:
        await setup.demand(30)
        await setup.borrower.return_unused(everything=True)
        setup.home.asked.clear()
        both = await asyncio.gather(setup.borrower.take(ONE), setup.borrower.take(ONE))
        assert [taken.decision.source for taken in both] == [Source.LEASE, Source.LEASE]
        assert len(setup.home.asked) == 1
        assert setup.home.asked[0] > 1
        await setup.borrower.close()
        assert setup.home.left() == 600 - 30 - 2

    run(scenario())


def test_home_that_has_less_than_a_block_gives_what_is_missing(setup: Setup) -> None:
    """Others have used up home since: it refuses the block, and is asked again for the hit alone."""

    async def scenario() -> None:
        await setup.demand(30)
        await setup.borrower.return_unused(everything=True)
        assert setup.home.take_now([ONE._replace(cost=setup.home.left() - 1)])[0].allowed
        setup.home.asked.clear()
        taken = await setup.borrower.take(ONE)
        assert taken.decision.allowed
        assert len(setup.home.asked) == 2
        assert setup.home.asked[0] > 1
        assert setup.home.asked[1] == 1
        assert setup.home.left() == 0
        assert not (await setup.borrower.take(ONE)).decision.allowed
        await setup.borrower.close()

    run(scenario())


def test_a_block_that_ended_while_home_was_asked_is_not_spent(setup: Setup) -> None:
    """The hit is then counted at home, in the window that is now."""

    async def scenario() -> None:
        def next_window() -> None:
            setup.home.before_answer = None
            setup.clock.advance(seconds=60)

        setup.home.before_answer = next_window
        taken = await setup.borrower.take(ONE)
        assert taken.decision.allowed
        assert taken.decision.source is not Source.LEASE
        assert setup.home.asked == [1, 1]
        assert setup.home.left() == 599
        assert [grant.left for grant in taken.grants] == [1]
        await setup.borrower.close()

    run(scenario())


def test_what_is_in_demand_is_kept(setup: Setup) -> None:
    """Only what no hit has asked for in a while is given back."""

    async def scenario() -> None:
        await setup.demand(30)
        held = setup.borrower.outstanding
        assert held
        await setup.borrower.return_unused()
        assert (setup.borrower.outstanding, setup.home.returned) == (held, [])
        setup.clock.advance(micros=HORIZON)
        await setup.borrower.return_unused()
        assert (setup.borrower.outstanding, sum(setup.home.returned)) == (0, held)
        assert setup.home.left() == 570
        await setup.borrower.close()

    run(scenario())


def test_units_go_back_by_themselves(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    """That goes on for as long as something is held of a counter, and begins again with the next one."""
    monkeypatch.setattr(borrowed, "HORIZON", 0)

    async def scenario() -> None:
        for _ in range(2):
            setup.home.returned.clear()
            taken = await setup.borrower.take(ONE)
            setup.borrower.put_back(ONE, taken)
            async with asyncio.timeout(30):
                while not setup.home.returned:  # noqa: ASYNC110 (it is the returning that is waited for)
                    await asyncio.sleep(0)
            assert setup.home.returned == [1]
            setup.borrower.forget(KEY)
            others = asyncio.all_tasks() - {asyncio.current_task()}
            assert others
            async with asyncio.timeout(30):
                await asyncio.gather(*others)
        await setup.borrower.close()

    run(scenario())


# How many blocks there are


def of(user: int) -> Hit:
    return ONE._replace(key=f"rl:{{u={user}}}:all:fw1m|@borrow.us")


def test_beyond_so_many_counters_home_counts(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each block takes memory, so only so many are held; one that is idle makes room for another, refused or not."""
    monkeypatch.setattr(borrowed, "MAX_BLOCKS", 2)

    async def scenario() -> None:
        full = of(0)
        assert setup.home.take_now([full._replace(cost=600)])[0].allowed
        sources = [(await setup.borrower.take(each)).decision.source for each in (full, of(1), of(2), of(1))]
        assert sources == [Source.STORE, Source.LEASE, Source.STORE, Source.LEASE]
        setup.clock.advance(micros=HORIZON)
        await setup.borrower.return_unused()
        sources = [(await setup.borrower.take(of(user))).decision.source for user in (2, 3, 4)]
        assert sources == [Source.LEASE, Source.LEASE, Source.STORE]
        await setup.borrower.close()
        left = setup.home.peek_now([of(user)._replace(cost=0) for user in range(5)])
        assert [decision.remaining for decision in left] == [0, 598, 598, 599, 599]

    run(scenario())


def test_a_block_in_use_is_kept(setup: Setup) -> None:
    """What is borrowed while idle blocks are dropped is held, and spent or given back."""

    async def scenario() -> None:
        await setup.demand(30)
        await setup.borrower.return_unused(everything=True)
        setup.clock.advance(micros=HORIZON)
        taking = asyncio.create_task(setup.borrower.take(ONE))
        await asyncio.sleep(0)
        assert not taking.done()
        await setup.borrower.return_unused()
        assert (await taking).decision.allowed
        held = setup.borrower.outstanding
        assert held
        await setup.borrower.take(ONE._replace(cost=held))  # which is renewed in the background
        setup.clock.advance(micros=HORIZON)
        await setup.borrower.return_unused()
        for _ in range(5):
            await asyncio.sleep(0)
        assert setup.borrower.outstanding
        await setup.borrower.close()
        assert setup.home.left() == 600 - 31 - held

    run(scenario())


def test_what_ended_goes_back_while_the_counter_is_in_use(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of buckets end after a tenth of the period; many go back in several calls."""
    monkeypatch.setattr(borrowed, "_AT_ONCE", 1)

    async def scenario() -> None:
        buckets = [of(user)._replace(meter=Meter(Rate(600, MINUTE), Algorithm.TOKEN_BUCKET)) for user in range(2)]
        for _ in range(30):
            setup.clock.advance(micros=1_000)
            for each in buckets:
                await setup.borrower.take(each)
                await asyncio.sleep(0)
        held = setup.borrower.outstanding
        assert held
        setup.clock.advance(seconds=6)
        for each in buckets:
            await setup.borrower.take(each)
        await setup.borrower.return_unused()
        assert sum(setup.home.returned) == held
        await setup.borrower.close()

    run(scenario())


def test_units_of_a_counter_that_is_no_longer_held_go_back(setup: Setup) -> None:
    """A take that is undone after the block was dropped."""

    async def scenario() -> None:
        taken = await setup.borrower.take(ONE)
        setup.borrower.forget(KEY)
        setup.borrower.put_back(ONE, taken)
        await setup.borrower.close()
        assert setup.home.returned[0] == 1

    run(scenario())


def test_answers_are_dated_by_the_home(setup: Setup) -> None:
    """This process's clock is monotonic, and begins anywhere."""

    async def scenario() -> None:
        began = setup.clock()
        borrower = Borrower(setup.home, "us", 2, lambda: setup.clock() - began)
        for _ in range(3):
            setup.clock.advance(seconds=1)
            taken = await borrower.take(ONE)
            assert (taken.decision.source, taken.decision.at) == (Source.LEASE, setup.clock())
        await borrower.close()

    run(scenario())


def test_a_counter_that_is_reset_while_home_is_asked(setup: Setup) -> None:
    """The hit gets what it asked for; nothing of the old block is spent afterwards."""

    async def scenario() -> None:
        setup.home.before_answer = lambda: setup.borrower.forget(KEY)
        assert (await setup.borrower.take(ONE)).decision.allowed
        assert setup.borrower.outstanding == 0
        await setup.borrower.close()

    run(scenario())


def test_every_block_that_an_admission_spent_from_gets_its_part_back(setup: Setup) -> None:
    """A receipt counts once, so each part has an id of its own; one without an id stays without."""
    receipt = Receipt(KEY, METER, "0:2:100 1:3:200", 4, "r1")
    parts = setup.borrower.receipts(receipt)
    assert [(part.amount, part.stamp) for part in parts] == [(3, 200), (1, 100)]
    assert len({part.id for part in parts}) == 2
    assert {part.id for part in setup.borrower.receipts(receipt._replace(id=""))} == {""}


# Callers that do not wait any more


def test_what_a_cancelled_caller_asked_for_is_held(setup: Setup) -> None:
    """Home has counted it: the next callers spend it, and what is left goes back."""

    async def scenario() -> None:
        await setup.demand(30)
        await setup.borrower.return_unused(everything=True)
        setup.home.asked.clear()
        callers = [asyncio.create_task(setup.borrower.take(ONE)) for _ in range(2)]
        while not setup.home.asked:  # noqa: ASYNC110 (it is the asking that is waited for)
            await asyncio.sleep(0)
        for caller in callers:
            caller.cancel()
        await asyncio.wait(callers)
        assert all(caller.cancelled() for caller in callers)
        assert (await setup.borrower.take(ONE)).decision.source is Source.LEASE
        assert len(setup.home.asked) == 1
        await setup.borrower.close()
        assert setup.home.left() == 600 - 31

    run(scenario())


def test_what_a_cancelled_caller_asked_for_goes_back_at_the_end(setup: Setup) -> None:
    """Closing waits for the answer."""

    async def scenario() -> None:
        caller = asyncio.create_task(setup.borrower.take(ONE))
        while not setup.home.asked:  # noqa: ASYNC110 (it is the asking that is waited for)
            await asyncio.sleep(0)
        caller.cancel()
        await asyncio.wait([caller])
        await setup.borrower.close()
        assert (setup.home.asked, setup.home.returned, setup.home.left()) == ([1], [1], 600)

    run(scenario())


def test_those_who_wait_for_one_answer_share_an_outage(setup: Setup) -> None:
    """A home that does not answer is asked once for all of them, not by one after the other."""

    async def scenario() -> None:
        def fail() -> None:
            msg = "timeout"
            raise StoreError(msg, transient=True)

        setup.home.before_answer = fail
        results = await asyncio.gather(*[setup.borrower.take(ONE) for _ in range(5)], return_exceptions=True)
        assert [type(each) for each in results] == [StoreError] * 5
        assert setup.home.asked == [1]
        await setup.borrower.close()

    run(scenario())


# Limits that change while blocks are out


@pytest.mark.parametrize(("amount", "left"), [(20, 0), (31, 1), (6_000, 5_970)])
def test_a_limit_that_changes_calls_its_blocks_back(setup: Setup, amount: int, left: int) -> None:
    """What was granted under the former limit is not spent under the new one, also what is on its way."""

    async def scenario() -> None:
        await setup.demand(30)
        held = setup.borrower.outstanding
        assert held
        changed = ONE._replace(meter=Meter(Rate(amount, MINUTE), Algorithm.FIXED_WINDOW))
        renewed = await setup.borrower.take(ONE._replace(cost=held))  # of which the renewal is on its way
        setup.borrower.put_back(ONE._replace(cost=held), renewed)
        admitted = 0
        while (await setup.borrower.take(changed)).decision.allowed and admitted < left:
            admitted += 1
            await asyncio.sleep(0)
        assert admitted == left
        await setup.borrower.close()

    run(scenario())


def test_a_peek_waits_for_a_block_that_is_on_its_way(setup: Setup) -> None:
    """Else its units would be missing both here and at home."""

    async def scenario() -> None:
        await setup.demand(30)
        await setup.borrower.return_unused(everything=True)
        taking = asyncio.create_task(setup.borrower.take(ONE))
        setup.home.asked.clear()
        while not setup.home.asked:  # noqa: ASYNC110 (it is the asking that is waited for)
            await asyncio.sleep(0)
        standing = await setup.borrower.peek(ONE._replace(cost=0))
        assert (await taking).decision.allowed
        assert standing.remaining in {570, 569}
        await setup.borrower.close()

    run(scenario())


def test_units_of_a_former_limit_go_home(setup: Setup) -> None:
    """A take that is undone after the limit was changed: its units are not spent under the new one."""

    async def scenario() -> None:
        taken = await setup.borrower.take(ONE)
        changed = ONE._replace(meter=Meter(Rate(7, MINUTE), Algorithm.FIXED_WINDOW))
        await setup.borrower.take(changed)
        held = setup.borrower.outstanding
        setup.borrower.put_back(ONE, taken)
        assert setup.borrower.outstanding == held
        before = sum(setup.home.returned)
        await setup.borrower.close()
        assert sum(setup.home.returned) - before > held

    run(scenario())


def test_peeks_do_not_wait_for_each_other(setup: Setup) -> None:
    """A slow home answers many at once: refused requests, which are told how the counter stands, are many."""

    async def scenario() -> None:
        await setup.borrower.take(ONE)
        asked, answer = 0, asyncio.Event()

        async def slowly(hits: Sequence[Hit]) -> Sequence[Decision]:
            nonlocal asked
            asked += 1
            await answer.wait()
            return setup.home.peek_now(hits)

        setup.home.peek = slowly  # type: ignore[method-assign]
        peeks = [asyncio.create_task(setup.borrower.peek(ONE._replace(cost=0))) for _ in range(10)]
        for _ in range(50):
            await asyncio.sleep(0)
        assert asked == 10
        answer.set()
        await asyncio.gather(*peeks)
        await setup.borrower.close()

    run(scenario())
