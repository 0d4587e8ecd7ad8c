from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from headgate.adapters.memory import MemoryStore
from headgate.core.decision import Source
from headgate.core.units import SECOND
from headgate.dataplane.deny_cache import DenyCache
from headgate.testing import CounterStoreContract
from headgate.testing.contract.trial import RATES, scenario

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from headgate.testing import FakeClock
    from headgate.testing.contract.trial import Trial


class TestDenyCache(CounterStoreContract):
    """A store keeps every promise of the port when its denials are remembered."""

    @asynccontextmanager
    async def open_store(self, clock: FakeClock) -> AsyncIterator[DenyCache]:
        cache = DenyCache(MemoryStore(clock), lambda: clock() * 1_000)
        yield cache
        await cache.close()

    @scenario
    async def test_retry_after_is_exact(self, trial: Trial) -> None:
        """A refused cost is refused until `retry_after` is over, to the microsecond, and admitted then."""
        for algorithm in RATES:
            for limit in ("10/minute", "7/second", "3/10us", "1/day"):
                for cost in (1, 2, 7):
                    counter = trial.counter(limit, algorithm)
                    cost = min(cost, counter.meter.amount)  # noqa: PLW2901 (at most what the limit can give)
                    trial.clock.advance(micros=trial.clock() % 7 + 1)
                    while (await counter.take(cost)).allowed:
                        trial.clock.advance(micros=counter.meter.period // 40)
                    trial.clock.advance(micros=3 if counter.meter.period > SECOND else 0)
                    decision = await counter.refused(cost)
                    assert decision.source is Source.DENY_CACHE
                    await trial.admitted_first_after(counter, cost, decision.retry_after)

    @scenario
    async def test_a_greater_cost_is_never_told_to_come_too_early(self, trial: Trial) -> None:
        """A greater cost than the refused one is told a wait from memory after which it is admitted."""
        for algorithm in RATES:
            for limit in ("10/minute", "7/second", "3/10us"):
                counter = trial.counter(limit, algorithm)
                while (first := await counter.take()).allowed:
                    trial.clock.advance(micros=counter.meter.period // 40)
                decision = await counter.refused(3)
                assert decision.source is Source.DENY_CACHE
                assert first.retry_after is not None
                assert decision.retry_after is not None
                assert decision.retry_after >= first.retry_after
                assert (await counter.refused(11)).retry_after is None
                trial.clock.advance(micros=decision.retry_after)
                await counter.admitted(3)
