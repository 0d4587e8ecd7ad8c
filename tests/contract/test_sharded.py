from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from tests.support.spreading import Renamed

from headgate.adapters.memory import MemoryStore
from headgate.core.meter import ALGORITHMS, Algorithm
from headgate.core.units import MINUTE, SECOND
from headgate.dataplane.sharded import Sharded
from headgate.testing import CounterStoreContract, load_vectors, replay
from headgate.testing.contract.trial import scenario

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from headgate.ports import CounterStore
    from headgate.testing import FakeClock
    from headgate.testing.contract.trial import Trial

SPLIT = tuple(algorithm for algorithm in Algorithm if ALGORITHMS[algorithm].spread)


class Shared(MemoryStore):
    """A store in memory that stands for servers."""

    async def present(self, name: str, seconds: float) -> int:
        assert name
        return int(seconds > 0)


def sharded(clock: FakeClock) -> Sharded:
    return Sharded(Shared(clock), lambda key: hash(key) % 3, clock)


class TestCountersInOnePiece(CounterStoreContract):
    """A store that can split counters keeps every promise of the port for those that are not split."""

    @asynccontextmanager
    async def open_store(self, clock: FakeClock) -> AsyncIterator[CounterStore]:
        store = sharded(clock)
        yield store
        await store.close()


class TestOneShard(CounterStoreContract):
    """A counter in one part keeps every promise of the port, to the microsecond."""

    @asynccontextmanager
    async def open_store(self, clock: FakeClock) -> AsyncIterator[CounterStore]:
        store = Renamed(sharded(clock), "|#1")
        yield store
        await store.close()


class TestFourShards(CounterStoreContract):
    """A counter in parts keeps the promises of the port, but for those that its parts can keep only each for itself."""

    @asynccontextmanager
    async def open_store(self, clock: FakeClock) -> AsyncIterator[CounterStore]:
        store = Renamed(sharded(clock), "|#4")
        yield store
        await store.close()

    @scenario
    async def test_the_golden_vectors_are_answered_to_the_microsecond(self, trial: Trial) -> None:
        """Algorithms that cannot be split are not touched; of the others never more is admitted at the beginning."""
        for vector in load_vectors():
            if not ALGORITHMS[vector.algorithm].spread:
                await replay(vector, trial.store, trial.clock)

    @scenario
    async def test_retry_after_is_exact(self, trial: Trial) -> None:
        """For a cost of 1 the wait is exact; a greater cost is never told to come too early."""
        for algorithm in SPLIT:
            for limit in ("10/minute", "7/second", "3/10us", "1/day"):
                for cost in (1, 2, 7):
                    counter = trial.counter(limit, algorithm)
                    cost = min(cost, counter.meter.amount)  # noqa: PLW2901 (at most what the limit can give)
                    trial.clock.advance(micros=trial.clock() % 7 + 1)
                    while (await counter.take()).allowed:
                        trial.clock.advance(micros=counter.meter.period // 40)
                    decision = await counter.refused(cost)
                    if cost == 1:
                        await trial.admitted_first_after(counter, cost, decision.retry_after)
                    else:
                        assert decision.retry_after is not None
                        trial.clock.advance(micros=decision.retry_after)
                        await counter.admitted(cost)

    @scenario
    async def test_a_lowered_limit_keeps_what_was_counted(self, trial: Trial) -> None:
        """Each part has its lower part at once, so never more than the new limit is admitted on top."""
        for algorithm in SPLIT:
            counter = trial.counter("10/minute", algorithm)
            await counter.admitted(8)
            lowered = counter.under("4/minute")
            admitted = 0
            while (await lowered.take()).allowed:
                admitted += 1
            assert admitted <= 4, counter
            assert (await lowered.refused()).remaining == 0, counter

    @scenario
    async def test_a_clock_that_steps_back_blocks_no_caller(self, trial: Trial) -> None:
        """After a step back what was taken stays taken, for at most one period more than the refusal says."""
        for back in (1, 59_000_000, MINUTE, 10 * MINUTE):
            for algorithm in SPLIT:
                counter = trial.counter("10/minute", algorithm)
                await counter.admitted(10)
                trial.clock.advance(micros=-back)
                wait = (await counter.refused(1)).retry_after
                assert wait is not None
                assert wait <= MINUTE + 1, (counter, back)
                trial.clock.advance(micros=wait + MINUTE)
                await counter.admitted(1)
                trial.clock.advance(micros=back + 10 * MINUTE)

    @scenario
    async def test_an_overdrawn_bucket_pays_everything_back(self, trial: Trial) -> None:
        """What is forced on a bucket is shared by its parts, so that all pay back together, to the rounding."""
        counter = trial.counter("40/hour", Algorithm.TOKEN_BUCKET)
        await counter.admitted(40)
        await trial.store.take([counter.hit(40)._replace(forced=True)])
        decision = await counter.refused(1)
        assert decision.retry_after == 41 * 90 * SECOND + 3 * 90 * SECOND
        await trial.admitted_first_after(counter, 1, decision.retry_after)

    @scenario
    async def test_a_bucket_is_not_refilled_twice(self, trial: Trial) -> None:
        """What came back by itself is not put back once more by a receipt, in any part."""
        counter = trial.counter("8/8s", Algorithm.TOKEN_BUCKET)
        decision = await counter.admitted(8)
        trial.clock.advance(seconds=4)
        assert await counter.remaining() == 4
        await counter.give_back(decision, 8)
        assert await counter.remaining() == 8
        await counter.admitted(8)
        await counter.refused(1)

    @scenario
    async def test_refunds_do_not_add_up_to_more_than_the_bucket(self, trial: Trial) -> None:
        """Receipts and refill together put back no more than the bucket can hold."""
        counter = trial.counter("8/8s", Algorithm.TOKEN_BUCKET)
        first, second = await counter.admitted(4), await counter.admitted(4)
        await counter.give_back(first, 4)
        trial.clock.advance(seconds=4)
        await counter.give_back(second, 4)
        assert await counter.remaining() == 8
        await counter.admitted(8)
        await counter.refused(1)

    @scenario
    async def test_the_last_window_is_credited_while_in_view(self, trial: Trial) -> None:
        """A receipt of the last window credits what is still in view of it, part by part."""
        counter = trial.counter("40/minute", Algorithm.SLIDING_WINDOW_COUNTER)
        decision = await counter.admitted(40)
        trial.clock.advance(seconds=90)
        assert await counter.remaining() == 20
        await counter.give_back(decision, 20)
        assert await counter.remaining() == 30
