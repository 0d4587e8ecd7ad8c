"""The contract, part one: what is admitted, what is refused, and what both answer."""

# ruff: noqa: PLR2004 (expected values are plain numbers)

from __future__ import annotations

import asyncio

from headgate.core.meter import Algorithm
from headgate.core.units import MAX_AMOUNT
from headgate.errors import StoreError
from headgate.testing.contract.trial import RATES, TEN, StoreCase, Trial, scenario


class Admission(StoreCase):
    """Exactly the limit passes; all hits of a request, or none."""

    @scenario
    async def test_exactly_the_limit_is_admitted(self, trial: Trial) -> None:
        """Every algorithm admits its limit, one by one, and refuses the next; `remaining` counts down."""
        for counter in trial.tens():
            for taken in range(1, 11):
                decision = await counter.admitted()
                assert decision.remaining == 10 - taken, counter
                assert decision.retry_after == 0, counter
                assert decision.at == trial.clock(), counter
            assert (await counter.refused()).remaining == 0, counter

    @scenario
    async def test_a_cost_takes_that_much(self, trial: Trial) -> None:
        """A cost counts in full: a cost that does not fit is refused as a whole, a smaller one still passes."""
        for counter in trial.tens():
            assert (await counter.admitted(7)).remaining == 3, counter
            assert (await counter.refused(4)).remaining == 3, counter
            assert (await counter.admitted(3)).remaining == 0, counter

    @scenario
    async def test_counters_know_nothing_of_each_other(self, trial: Trial) -> None:
        """Counters are independent: another algorithm or another key does not see a counter's usage."""
        for counter, other in zip(trial.tens(), trial.tens(), strict=True):
            await counter.admitted(10)
            assert await other.remaining() == 10, counter

    @scenario
    async def test_all_hits_or_none(self, trial: Trial) -> None:
        """If one hit of a request is refused, no counter of it changes, whatever the algorithms."""
        for full in range(len(TEN)):
            counters = trial.tens()
            await counters[full].admitted(10)
            decisions = await trial.store.take([counter.hit(2) for counter in counters])
            assert [decision.allowed for decision in decisions] == [index != full for index in range(len(TEN))]
            left = [await counter.remaining() for counter in counters]
            assert left == [0 if index == full else 10 for index in range(len(TEN))]

    @scenario
    async def test_all_hits_of_an_admitted_request_count(self, trial: Trial) -> None:
        """If all hits pass, all of them count, and the answers come in the order of the hits."""
        counters = trial.tens()
        hits = [counter.hit(cost) for cost, counter in enumerate(counters, start=1)]
        decisions = await trial.store.take(hits)
        left = [10 - cost for cost, _ in enumerate(counters, start=1)]
        assert [decision.remaining for decision in decisions] == left
        assert [await counter.remaining() for counter in counters] == left
        assert list(await trial.store.take([])) == []

    @scenario
    async def test_others_in_a_refused_request_answer_as_they_stand(self, trial: Trial) -> None:
        """Beside a refused hit, a hit that would have passed reports what is left without it."""
        for index, counter in enumerate(trial.tens()):
            full = trial.tens()[index - 1]
            await full.admitted(10)
            await counter.admitted(4)
            standing = await counter.peek()
            for ask in (trial.store.take, trial.store.peek):
                decision, refused = await ask([counter.hit(3), full.hit(1)])
                assert not refused.allowed, counter
                assert decision[:5] == standing[:5], counter
                assert decision.remaining == 6, counter

    @scenario
    async def test_a_refusal_changes_nothing(self, trial: Trial) -> None:
        """Any number of refusals changes nothing, now or later."""
        for counter in trial.tens():
            await counter.admitted(8)
            trial.clock.advance(seconds=1)
            before = [await counter.peek(cost) for cost in range(12)]
            for cost in (3, 9, 10, 11):
                await counter.refused(cost + await counter.remaining())
            assert [_plain(await counter.peek(cost)) for cost in range(12)] == [_plain(d) for d in before], counter
            trial.clock.advance(seconds=60)

    @scenario
    async def test_peek_answers_what_take_would(self, trial: Trial) -> None:
        """`peek` gives the answer that `take` then gives, and changes nothing."""
        for counter in trial.tens():
            for cost in (0, 3, 8, 6, 1, 11, 0, 1):
                hit = counter.hit(cost)
                once, again = await trial.store.peek([hit]), await trial.store.peek([hit])
                assert list(once) == list(again) == list(await trial.store.take([hit])), (counter, cost)
                trial.clock.advance(seconds=7)
        hits = [counter.hit(4) for counter in trial.tens()]
        for _ in range(4):
            assert list(await trial.store.peek(hits)) == list(await trial.store.take(hits))

    @scenario
    async def test_a_cost_of_nothing_changes_nothing(self, trial: Trial) -> None:
        """A cost of 0 passes while the limit is not exceeded, and changes nothing."""
        for counter in trial.tens():
            await counter.admitted(0)
            assert (await counter.peek()).reset_after == 0, counter
            await counter.admitted(10, holder="h")
            before = await counter.peek()
            trial.clock.advance(seconds=1)
            assert (await counter.admitted(0, holder="h")).remaining == (await counter.peek()).remaining, counter
            trial.clock.advance(seconds=-1)
            assert _plain(await counter.peek()) == _plain(before), counter
            trial.clock.advance(seconds=600)

    @scenario
    async def test_retry_after_is_exact(self, trial: Trial) -> None:
        """A refused cost is refused until `retry_after` is over, to the microsecond, and admitted then."""
        for algorithm in RATES:
            for limit in ("10/minute", "7/second", "3/10us", "1/day"):
                for cost in (1, 2, 7):
                    counter = trial.counter(limit, algorithm)
                    cost = min(cost, counter.meter.amount)  # noqa: PLW2901 (at most what the limit can give)
                    trial.clock.advance(micros=trial.clock() % 7 + 1)
                    while (decision := await counter.take()).allowed:
                        trial.clock.advance(micros=counter.meter.period // 40)
                    decision = await counter.refused(cost)
                    await trial.admitted_first_after(counter, cost, decision.retry_after)

    @scenario
    async def test_the_whole_limit_is_available_after_reset_after(self, trial: Trial) -> None:
        """When `reset_after` is over the whole limit passes at once, and one microsecond earlier it does not."""
        for counter in trial.tens():
            await counter.admitted(3)
            trial.clock.advance(seconds=5)
            decision = await counter.admitted(2)
            await trial.admitted_first_after(counter, 10, decision.reset_after)
            trial.clock.advance(seconds=600)

    @scenario
    async def test_what_can_never_pass_is_told_so(self, trial: Trial) -> None:
        """A cost above the capacity has no `retry_after`: it can never pass."""
        for counter in trial.tens():
            for cost in (11, 10**9, MAX_AMOUNT):
                assert (await counter.refused(cost)).retry_after is None, counter
            assert await counter.remaining() == 10, counter
        burst = trial.counter("10/minute burst 3", Algorithm.TOKEN_BUCKET)
        assert (await burst.refused(4)).retry_after is None
        await burst.admitted(3)

    @scenario
    async def test_one_counter_twice_in_a_request_is_an_error(self, trial: Trial) -> None:
        """Two hits of one request on the same counter are refused for good, and nothing is counted."""
        for counter in trial.tens():
            try:
                await trial.store.take([counter.hit(1), counter.hit(2)])
            except StoreError as error:
                assert not error.transient, counter  # noqa: PT017 (no pytest here)
            else:
                raise AssertionError(counter)
            assert await counter.remaining() == 10, counter

    @scenario
    async def test_large_amounts_and_long_periods_are_exact(self, trial: Trial) -> None:
        """A million millions over ten years are counted to the unit and to the microsecond."""
        for algorithm in RATES:
            if algorithm is Algorithm.SLIDING_WINDOW_LOG:
                continue  # it keeps every admission, so its limits are small
            for limit in (f"{MAX_AMOUNT}/3660d", f"{MAX_AMOUNT}/us", f"{MAX_AMOUNT - 1}/1234567us", "300000/second"):
                counter = trial.counter(limit, algorithm)
                amount = counter.meter.amount
                assert (await counter.admitted(amount - 1)).remaining == 1, counter
                assert (await counter.admitted(1)).remaining == 0, counter
                cost = amount // 3
                decision = await counter.refused(cost)
                await trial.admitted_first_after(counter, cost, decision.retry_after)

    @scenario
    async def test_a_full_log_holds_all_its_admissions(self, trial: Trial) -> None:
        """A log of 65,536 admits them all, at once or bit by bit, and not one more."""
        counter = trial.counter("65536/hour", Algorithm.SLIDING_WINDOW_LOG)
        for cost in (1, 15, 16, 17, 65_000):
            await counter.admitted(cost)
            trial.clock.advance(micros=1)
        assert (await counter.admitted(487)).remaining == 0
        decision = await counter.refused(1)
        await trial.admitted_first_after(counter, 1, decision.retry_after)
        assert await counter.remaining() == 0

    @scenario
    async def test_tasks_at_the_same_time_share_the_limit(self, trial: Trial) -> None:
        """Many concurrent tasks together get exactly the limit."""
        for algorithm in Algorithm:
            limit = "40 concurrent" if algorithm is Algorithm.CONCURRENCY else "40/minute"
            counter = trial.counter(limit, algorithm)
            decisions = await asyncio.gather(*(counter.take() for _ in range(100)))
            assert sum(decision.allowed for decision in decisions) == 40, counter


def _plain(decision: tuple[object, ...]) -> tuple[object, ...]:
    """A decision without its stamp, which may name a new holder, and without its instant."""
    return decision[:5]
