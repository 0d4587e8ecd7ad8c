"""The contract, part four: slots that are held, and reservations that expire."""

# ruff: noqa: PLR2004 (expected values are plain numbers)

from __future__ import annotations

from headgate.core.meter import Algorithm
from headgate.core.units import SECOND
from headgate.testing.contract.trial import RATES, StoreCase, Trial, scenario


class Holding(StoreCase):
    """Slots are free again when released or expired; reservations when settled or expired."""

    @scenario
    async def test_every_holder_has_its_own_slots(self, trial: Trial) -> None:
        """As many holders as the limit allows hold slots; the next is refused until a slot expires."""
        counter = trial.counter("3 concurrent ttl 30s", Algorithm.CONCURRENCY)
        for holder in ("a", "b", "c"):
            await counter.admitted(1, holder)
            trial.clock.advance(seconds=1)
        decision = await counter.refused(1, "d")
        assert decision.retry_after == 27 * SECOND
        assert decision.reset_after == 29 * SECOND
        await trial.admitted_first_after(counter, 1, decision.retry_after)

    @scenario
    async def test_several_slots_wait_for_several_expiries(self, trial: Trial) -> None:
        """A request for two slots waits until two are free, and not for the third."""
        counter = trial.counter("3 concurrent ttl 30s", Algorithm.CONCURRENCY)
        for holder in ("a", "b", "c"):
            await counter.admitted(1, holder)
            trial.clock.advance(seconds=1)
        decision = await counter.refused(2, "d")
        assert decision.retry_after == 28 * SECOND
        await trial.admitted_first_after(counter, 2, decision.retry_after)
        assert await counter.remaining() == 0

    @scenario
    async def test_a_holder_that_asks_again_renews(self, trial: Trial) -> None:
        """The same holder renews its slot, even when all slots are taken."""
        counter = trial.counter("2 concurrent ttl 30s", Algorithm.CONCURRENCY)
        await counter.admitted(1, "a")
        await counter.admitted(1, "b")
        trial.clock.advance(seconds=20)
        assert (await counter.admitted(1, "a")).remaining == 0
        assert (await counter.refused(1, "c")).retry_after == 10 * SECOND
        trial.clock.advance(seconds=10)
        await counter.admitted(1, "c")
        assert (await counter.refused(1, "b")).retry_after == 20 * SECOND

    @scenario
    async def test_a_refused_renewal_loses_nothing(self, trial: Trial) -> None:
        """A holder that asks for too many slots keeps its slots, and they are not reported as free."""
        counter = trial.counter("3 concurrent ttl 30s", Algorithm.CONCURRENCY)
        await counter.admitted(1, "a")
        await counter.admitted(1, "b")
        assert (await counter.refused(3, "a")).remaining == 1
        assert await counter.remaining() == 1
        full = trial.counter("1/hour")
        await full.admitted(1)
        renewal, _ = await trial.store.take([counter.hit(1, "a"), full.hit(1)])
        assert renewal.remaining == 1

    @scenario
    async def test_an_undone_renewal_leaves_what_was_held(self, trial: Trial) -> None:
        """A renewal that is given back under no name leaves its holder what it had, until when it had it."""
        counter = trial.counter("3 concurrent ttl 30s", Algorithm.CONCURRENCY)
        await counter.admitted(2, "a")
        trial.clock.advance(seconds=10)
        renewal = await counter.admitted(3, "a")
        await trial.store.give_back([counter.receipt(renewal, 3)._replace(id="")])
        assert await counter.remaining() == 1
        assert (await counter.refused(2, "b")).retry_after == 20 * SECOND
        taken = await counter.admitted(1, "b")
        await trial.store.give_back([counter.receipt(taken, 1)._replace(id="")])
        renewal = await counter.admitted(2, "a")
        await counter.give_back(renewal, 2)
        assert await counter.remaining() == 3
        await trial.store.give_back([counter.receipt(renewal, 2)._replace(id="")])
        assert await counter.remaining() == 3

    @scenario
    async def test_looking_releases_nothing(self, trial: Trial) -> None:
        """A holder that asks for 0 slots keeps the ones it has."""
        counter = trial.counter("2 concurrent ttl 30s", Algorithm.CONCURRENCY)
        await counter.admitted(1, "a")
        assert (await counter.peek(0, "a")).remaining == 1
        assert (await counter.admitted(0, "a")).remaining == 1
        assert await counter.remaining() == 1

    @scenario
    async def test_each_holder_may_have_a_time_of_its_own(self, trial: Trial) -> None:
        """A slot taken with a ttl expires after that and not after the limit's."""
        counter = trial.counter("2 concurrent ttl 30s", Algorithm.CONCURRENCY)
        await counter.admitted(1, "long", 300 * SECOND)
        await counter.admitted(1, "short", SECOND)
        decision = await counter.refused(1, "c")
        assert (decision.retry_after, decision.reset_after) == (SECOND, 300 * SECOND)
        trial.clock.advance(seconds=1)
        assert await counter.remaining() == 1
        trial.clock.advance(seconds=299)
        assert await counter.remaining() == 2

    @scenario
    async def test_a_released_slot_is_free_at_once(self, trial: Trial) -> None:
        """Releasing frees only the holder's slots; doing it twice changes nothing more."""
        counter = trial.counter("3 concurrent ttl 30s", Algorithm.CONCURRENCY)
        held = await counter.admitted(2, "a")
        await counter.admitted(1, "b")
        receipt = counter.receipt(held, 2, "a")
        await trial.store.give_back([receipt])
        await trial.store.give_back([receipt])
        assert await counter.remaining() == 2
        await counter.admitted(2, "c")
        await trial.store.give_back([receipt])
        assert await counter.remaining() == 0

    @scenario
    async def test_an_expired_slot_can_be_released_in_vain(self, trial: Trial) -> None:
        """Releasing after the slot expired frees no other holder's slot."""
        counter = trial.counter("1 concurrent ttl 30s", Algorithm.CONCURRENCY)
        held = await counter.admitted(1, "a")
        trial.clock.advance(seconds=30)
        await counter.admitted(1, "b")
        await trial.store.give_back([counter.receipt(held, 1, "a")])
        await counter.refused(1, "c")

    @scenario
    async def test_a_forced_hit_counts_past_the_limit(self, trial: Trial) -> None:
        """A forced cost is counted even above the limit, and blocks later requests."""
        for algorithm in RATES:
            counter = trial.counter("10/hour", algorithm)
            await counter.admitted(8)
            (decision,) = await trial.store.take([counter.hit(50)._replace(forced=True)])
            assert decision.allowed, counter
            assert decision.remaining == 0, counter
            assert await counter.remaining() == 0, counter
            await counter.refused(1)

    @scenario
    async def test_a_forced_hit_that_fits_is_a_hit(self, trial: Trial) -> None:
        """Forcing makes no difference below the limit."""
        for algorithm in RATES:
            counter = trial.counter("10/hour", algorithm)
            (decision,) = await trial.store.take([counter.hit(4)._replace(forced=True)])
            assert (decision.allowed, decision.remaining) == (True, 6), counter

    @scenario
    async def test_an_overdrawn_bucket_pays_everything_back(self, trial: Trial) -> None:
        """A cost that was forced beyond a bucket's capacity drains like the rest, to the microsecond."""
        for algorithm in (Algorithm.TOKEN_BUCKET, Algorithm.LEAKY_BUCKET):
            counter = trial.counter("10/hour", algorithm)
            await counter.admitted(8)
            await trial.store.take([counter.hit(5)._replace(forced=True)])
            decision = await counter.refused(1)
            assert decision.retry_after == 4 * 360 * SECOND, counter
            await trial.admitted_first_after(counter, 1, decision.retry_after)

    @scenario
    async def test_what_was_forced_leaves_with_its_window(self, trial: Trial) -> None:
        """An overdrawn window blocks for at most its period, or twice that if two windows are read."""
        for algorithm in (Algorithm.FIXED_WINDOW, Algorithm.SLIDING_WINDOW_LOG, Algorithm.SLIDING_WINDOW_COUNTER):
            counter = trial.counter("10/hour", algorithm)
            await trial.store.take([counter.hit(1_000_000)._replace(forced=True)])
            trial.clock.advance(seconds=2 * 3600)
            assert await counter.remaining() == 10, counter
