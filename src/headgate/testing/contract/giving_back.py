"""The contract, part two: refunds, settlements and resets."""

# ruff: noqa: PLR2004 (expected values are plain numbers)

from __future__ import annotations

from headgate.core.meter import Algorithm
from headgate.testing.contract.trial import RATES, StoreCase, Trial, scenario


class GivingBack(StoreCase):
    """A receipt credits exactly the window it was counted in, once, and not after that has passed."""

    @scenario
    async def test_what_is_given_back_can_be_taken_again(self, trial: Trial) -> None:
        """Giving an admission back undoes it."""
        for counter in trial.tens():
            await counter.admitted(3)
            before = await counter.peek()
            decision = await counter.admitted(5)
            await counter.give_back(decision, 5)
            assert (await counter.peek())[:5] == before[:5], counter
            await counter.admitted(7)
            await counter.refused(1)

    @scenario
    async def test_a_receipt_counts_once(self, trial: Trial) -> None:
        """A receipt that is given back again and again counts the first time only."""
        for algorithm in RATES:
            counter = trial.counter("10/minute", algorithm)
            await counter.admitted(4)
            receipt = counter.receipt(await counter.admitted(3), 3)
            await trial.store.give_back([receipt, receipt])
            await trial.store.give_back([receipt])
            await trial.store.give_back([receipt._replace(amount=1)])
            assert await counter.remaining() == 6, counter

    @scenario
    async def test_a_part_can_be_given_back(self, trial: Trial) -> None:
        """A receipt for a part credits that part, and the rest stays counted."""
        for algorithm in RATES:
            counter = trial.counter("10/minute", algorithm)
            decision = await counter.admitted(8)
            await counter.give_back(decision, 3)
            assert await counter.remaining() == 5, counter
            await counter.admitted(5)
            await counter.refused(1)

    @scenario
    async def test_two_receipts_are_two(self, trial: Trial) -> None:
        """Receipts of one counter are distinct, even if they are from the same instant."""
        for algorithm in RATES:
            counter = trial.counter("10/minute", algorithm)
            first, second = await counter.admitted(2), await counter.admitted(3)
            # The last first: in a queue, an admission with others behind it is not credited.
            await counter.give_back(second, 3)
            assert await counter.remaining() == 8, counter
            await counter.give_back(first, 2)
            assert await counter.remaining() == 10, counter

    @scenario
    async def test_several_are_given_back_at_once(self, trial: Trial) -> None:
        """The receipts of one request, which may share a name, are all given back in one call."""
        counters = trial.tens()
        decisions = await trial.store.take([counter.hit(4, holder="one-request") for counter in counters])
        receipts = [
            counter.receipt(decision, 4, "one-request") for counter, decision in zip(counters, decisions, strict=True)
        ]
        await trial.store.give_back(receipts)
        assert [await counter.remaining() for counter in counters] == [10] * len(counters)
        await trial.store.give_back([])

    @scenario
    async def test_nothing_is_credited_once_its_time_has_passed(self, trial: Trial) -> None:
        """Giving back credits nothing once the cost is available again by itself."""
        for algorithm in RATES:
            counter = trial.counter("10/minute", algorithm)
            decision = await counter.admitted(10)
            trial.clock.advance(micros=decision.reset_after)
            await counter.admitted(10)
            await counter.give_back(decision, 10)
            if algorithm is Algorithm.SLIDING_WINDOW_COUNTER:
                trial.clock.advance(seconds=1)  # of the first ten, a part is in view until a period later
            assert await counter.remaining() == 0, counter
            trial.clock.advance(seconds=600)

    @scenario
    async def test_a_window_is_credited_and_no_other(self, trial: Trial) -> None:
        """What a fixed window admitted is not credited to the next one."""
        counter = trial.counter("10/minute", Algorithm.FIXED_WINDOW)
        decision = await counter.admitted(6)
        trial.clock.advance(seconds=60, micros=-1)
        await counter.give_back(decision, 2)
        assert await counter.remaining() == 6
        trial.clock.advance(micros=1)
        await counter.admitted(6)
        await counter.give_back(decision, 2)
        assert await counter.remaining() == 4

    @scenario
    async def test_the_last_window_is_credited_while_in_view(self, trial: Trial) -> None:
        """A sliding counter credits the window before as well, by the part of it that is still in view."""
        counter = trial.counter("10/minute", Algorithm.SLIDING_WINDOW_COUNTER)
        decision = await counter.admitted(8)
        trial.clock.advance(seconds=90)  # half of the last window is in view
        assert await counter.remaining() == 6
        await counter.give_back(decision, 4)
        assert await counter.remaining() == 8
        await counter.admitted(8)
        await counter.refused(1)

    @scenario
    async def test_a_log_loses_only_the_receipts_instant(self, trial: Trial) -> None:
        """Of a log, exactly the entries of the receipt are taken out, wherever they stand."""
        counter = trial.counter("10/minute", Algorithm.SLIDING_WINDOW_LOG)
        await counter.admitted(3)
        trial.clock.advance(seconds=10)
        middle = await counter.admitted(4)
        trial.clock.advance(seconds=10)
        await counter.admitted(3)
        await counter.give_back(middle, 4)
        assert await counter.remaining() == 4
        trial.clock.advance(seconds=40)  # a minute after the first three
        assert await counter.remaining() == 7
        trial.clock.advance(seconds=10)
        await counter.give_back(middle, 4)
        assert await counter.remaining() == 7

    @scenario
    async def test_a_bucket_is_not_refilled_twice(self, trial: Trial) -> None:
        """Tokens that were refilled are not credited a second time."""
        counter = trial.counter("10/10s", Algorithm.TOKEN_BUCKET)
        decision = await counter.admitted(10)
        trial.clock.advance(seconds=7)
        await counter.admitted(7)
        await counter.give_back(decision, 10)  # seven of the ten are refilled, three are not
        assert await counter.remaining() == 3

    @scenario
    async def test_refunds_do_not_add_up_to_more_than_the_bucket(self, trial: Trial) -> None:
        """Where one refund has already emptied the debt, an older receipt cannot credit later requests."""
        for span, seconds in ((5, 5), (4, 4)):
            counter = trial.counter("10/10s", Algorithm.TOKEN_BUCKET)
            first, second = await counter.admitted(5), await counter.admitted(5)
            await counter.give_back(first, 5)
            trial.clock.advance(seconds=seconds)  # the second one's tokens are refilled, or nearly
            await counter.admitted(5 + span)
            await counter.give_back(second, 5)
            assert await counter.remaining() == 5 - span, counter

    @scenario
    async def test_a_queue_is_left_only_from_its_end(self, trial: Trial) -> None:
        """In a leaky bucket, an admission with others behind it is not credited: their delays are fixed."""
        counter = trial.counter("10/10s", Algorithm.LEAKY_BUCKET)
        first = await counter.admitted(2)
        behind = await counter.admitted(1)
        assert behind.delay == 2_000_000
        await counter.give_back(first, 2)
        assert await counter.remaining() == 7
        trial.clock.advance(seconds=1)
        await counter.give_back(behind, 1)
        assert (await counter.peek(1)).delay == 1_000_000

    @scenario
    async def test_a_receipt_from_before_the_limit_changed_is_worth_its_amount(self, trial: Trial) -> None:
        """Giving back credits no more and no less than its amount, also after the limit was raised."""
        for algorithm in RATES:
            counter = trial.counter("10/minute", algorithm)
            decision = await counter.admitted(6)
            raised = counter.under("100/minute")
            behind = await raised.admitted(90)
            if algorithm is Algorithm.LEAKY_BUCKET:
                await raised.give_back(behind, 90)
                assert await raised.remaining() == 94, raised
                continue
            await counter.give_back(decision, 6)
            assert await raised.remaining() == 10, raised

    @scenario
    async def test_reset_forgets_everything(self, trial: Trial) -> None:
        """After a reset a counter is as if it had never been used; others are as they were."""
        counters, others = trial.tens(), trial.tens()
        for counter in (*counters, *others):
            await counter.admitted(10)
        await trial.store.reset([*(counter.key for counter in counters), "rl:{u=contract}:unknown:fw1m"])
        await trial.store.reset([])
        for counter, other in zip(counters, others, strict=True):
            fresh = await counter.peek()
            assert (fresh.remaining, fresh.reset_after) == (10, 0), counter
            assert await other.remaining() == 0, counter
            await counter.admitted(10)

    @scenario
    async def test_giving_back_to_a_counter_that_is_gone_is_harmless(self, trial: Trial) -> None:
        """A receipt of a counter that was reset credits nothing."""
        for counter in trial.tens():
            decision = await counter.admitted(5)
            await trial.store.reset([counter.key])
            await counter.give_back(decision, 5)
            assert await counter.remaining() == 10, counter
