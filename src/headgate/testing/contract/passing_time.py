"""The contract, part three: limits that change, clocks that step back, calendars."""

# ruff: noqa: PLR2004 (expected values are plain numbers)

from __future__ import annotations

from datetime import UTC, tzinfo

from headgate.core.limit import Rate, parse_limit
from headgate.core.meter import Algorithm, Meter
from headgate.core.units import DAY, MINUTE
from headgate.testing.clock import NEW_YEAR
from headgate.testing.contract.trial import RATES, StoreCase, Trial, scenario


def _utc(_name: str) -> tzinfo:
    return UTC


def _monthly(amount: int) -> Meter:
    limit = parse_limit(f"{amount}/calendar month")
    assert isinstance(limit, Rate)
    return Meter(limit, Algorithm.FIXED_WINDOW)


class PassingTime(StoreCase):
    """Usage survives a change of the limit; a clock that steps back admits nothing extra and blocks no caller."""

    @scenario
    async def test_a_raised_limit_keeps_what_was_counted(self, trial: Trial) -> None:
        """Raising a limit in mid-window adds the difference and nothing else."""
        for counter in trial.tens():
            await counter.admitted(10)
            raised = counter.under(str(counter.meter.limit).replace("10", "25", 1))
            assert (await raised.admitted(1)).remaining == 14, counter
            assert (await raised.admitted(14)).remaining == 0, counter
            await raised.refused(1)

    @scenario
    async def test_a_lowered_limit_keeps_what_was_counted(self, trial: Trial) -> None:
        """Lowering a limit in mid-window takes effect at once, and raising it again forgets nothing."""
        for counter in trial.tens():
            await counter.admitted(8)
            lowered = counter.under(str(counter.meter.limit).replace("10", "4", 1))
            decision = await lowered.refused(1)
            assert decision.remaining == 0, counter
            assert await counter.remaining() == 2, counter
            await trial.admitted_first_after(lowered, 1, decision.retry_after)
            trial.clock.advance(seconds=600)

    @scenario
    async def test_a_clock_that_steps_back_refills_nothing(self, trial: Trial) -> None:
        """However far the clock steps back, what was taken stays taken."""
        for back in (1, 999_999, 59 * 1_000_000, MINUTE, MINUTE + 1, 10 * MINUTE, 400 * DAY):
            for counter in trial.tens():
                await counter.admitted(10)
                trial.clock.advance(micros=-back)
                await counter.refused(1)
                assert await counter.remaining() == 0, (counter, back)
                trial.clock.advance(micros=back + 10 * MINUTE)

    @scenario
    async def test_a_clock_that_steps_back_blocks_no_caller(self, trial: Trial) -> None:
        """After a step back the wait is at most one period, and ends when `retry_after` said.

        The sliding counter's period is one microsecond longer: at the very beginning of the
        next window all of the last one is still in view.
        """
        for back in (1, 59 * 1_000_000, MINUTE, 10 * MINUTE, 400 * DAY):
            for counter in trial.tens():
                await counter.admitted(10)
                trial.clock.advance(micros=-back)
                wait = (await counter.refused(1)).retry_after
                assert wait is not None, counter
                longest = MINUTE + (counter.meter.algorithm is Algorithm.SLIDING_WINDOW_COUNTER)
                assert wait <= longest, (counter, back)
                await trial.admitted_first_after(counter, 1, wait)
                trial.clock.advance(micros=back + 10 * MINUTE)

    @scenario
    async def test_a_step_back_within_a_request_that_is_refused(self, trial: Trial) -> None:
        """A counter from the future does not block the other counters of the request."""
        for counter in trial.tens():
            await counter.admitted(4)
            full = trial.counter("1/hour", Algorithm.TOKEN_BUCKET)
            await full.admitted(1)
            trial.clock.advance(seconds=-7200)
            decision, refused = await trial.store.take([counter.hit(6), full.hit(1)])
            assert not refused.allowed, counter
            assert decision.remaining == 6, counter
            await counter.admitted(6)
            await counter.refused(1)
            trial.clock.advance(seconds=2 * 7200)

    @scenario
    async def test_a_calendar_window_ends_where_the_calendar_says(self, trial: Trial) -> None:
        """A monthly quota is exact to the month's last microsecond; the next month starts at zero."""
        january = _monthly(10).at(trial.clock(), _utc)
        counter = trial.counter(january)
        await counter.admitted(10)
        decision = await counter.refused(1)
        assert decision.retry_after == decision.reset_after == 31 * DAY
        trial.clock.advance(micros=31 * DAY - 1)
        assert (await counter.refused(1)).retry_after == 1
        trial.clock.advance(micros=1)
        february = type(counter)(counter.store, counter.key, _monthly(10).at(trial.clock(), _utc))
        assert (await february.admitted(4)).reset_after == 28 * DAY
        assert await february.remaining() == 6

    @scenario
    async def test_a_callers_late_clock_moves_no_calendar_boundary(self, trial: Trial) -> None:
        """Bounds sent just before a boundary are read by the store's clock, which says the next window has begun."""
        january = trial.counter(_monthly(10).at(NEW_YEAR, _utc))
        await january.admitted(10)
        trial.clock.set(NEW_YEAR + 31 * DAY)
        first = await january.admitted(3)
        assert (first.remaining, first.reset_after) == (7, 28 * DAY)
        february = type(january)(january.store, january.key, _monthly(10).at(trial.clock(), _utc))
        assert await february.remaining() == 7
        await january.give_back(first, 3)
        assert await february.remaining() == 10

    @scenario
    async def test_a_callers_early_clock_opens_no_calendar_window(self, trial: Trial) -> None:
        """Bounds sent by a clock that is ahead are read by the store's, which says the old window is not over."""
        trial.clock.set(NEW_YEAR + 31 * DAY - 1)
        january = trial.counter(_monthly(10).at(trial.clock(), _utc))
        early = type(january)(january.store, january.key, _monthly(10).at(trial.clock() + MINUTE, _utc))
        await january.admitted(6)
        first = await early.admitted(4)
        assert (first.remaining, first.reset_after) == (0, 1)
        assert (await early.refused(1)).retry_after == (await january.refused(1)).retry_after == 1
        await early.give_back(first, 4)
        assert await january.remaining() == await early.remaining() == 4
        trial.clock.advance(micros=1)
        await early.admitted(10)
        await january.refused(1)

    @scenario
    async def test_a_calendar_receipt_credits_its_own_window(self, trial: Trial) -> None:
        """What January admitted is credited in January and not in February."""
        january = trial.counter(_monthly(10).at(NEW_YEAR, _utc))
        decision = await january.admitted(10)
        await january.give_back(decision, 4)
        assert await january.remaining() == 4
        trial.clock.set(NEW_YEAR + 31 * DAY)
        february = type(january)(january.store, january.key, _monthly(10).at(trial.clock(), _utc))
        await february.admitted(5)
        await january.give_back(decision, 6)
        assert await february.remaining() == 5

    @scenario
    async def test_untouched_counters_come_back_by_themselves(self, trial: Trial) -> None:
        """After a long pause every counter has its whole limit, and reports it before it is used."""
        for counter in trial.tens():
            await counter.admitted(10)
        trial.clock.advance(micros=1_000 * DAY)
        for counter in (*trial.tens(), *(trial.counter("3/10us", algorithm) for algorithm in RATES)):
            fresh = await counter.peek()
            assert (fresh.remaining, fresh.reset_after) == (counter.meter.capacity, 0), counter
