from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from tests.support.leases import AlwaysLeased, AlwaysLeasedByThreads

from headgate.adapters.memory import MemoryStore
from headgate.core import lease
from headgate.dataplane.leased import Leased
from headgate.testing import CounterStoreContract
from headgate.testing.contract.trial import scenario

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from headgate.testing import FakeClock
    from headgate.testing.contract.trial import Trial


class TestLeased(CounterStoreContract):
    """A store keeps every promise of the port when its counters are leased."""

    @asynccontextmanager
    async def open_store(self, clock: FakeClock) -> AsyncIterator[AlwaysLeased]:
        leased = Leased(MemoryStore(clock), lambda: clock() * 1_000)
        yield AlwaysLeased(leased)
        await leased.close()


class TestLeasedToTheLast(TestLeased):
    """The same with blocks that are as large as what is left, so that every counter is leased after two hits."""

    @pytest.fixture(autouse=True)
    def _whole_blocks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(lease, "MIN_SHARE", 1)
        monkeypatch.setattr(lease, "_PER_PROCESS", 1)

    @scenario
    async def test_what_is_given_back_can_be_taken_again(self, trial: Trial) -> None:
        """Giving an admission back undoes it; until then `reset_after` counts all of the block as used."""
        for counter in trial.tens():
            await counter.admitted(3)
            before = await counter.peek()
            decision = await counter.admitted(5)
            await counter.give_back(decision, 5)
            after = await counter.peek()
            assert after[:2] + after[3:5] == before[:2] + before[3:5], counter
            assert after.reset_after <= before.reset_after, counter
            await counter.admitted(7)
            await counter.refused()

    @scenario
    async def test_others_in_a_refused_request_answer_as_they_stand(self, trial: Trial) -> None:
        """Beside a refused hit, a hit that would have passed reports what is left without it."""
        for index, counter in enumerate(trial.tens()):
            full = trial.tens()[index - 1]
            await full.admitted(10)
            await counter.admitted(4)
            for ask in (trial.store.take, trial.store.peek):
                decision, refused = await ask([counter.hit(3), full.hit(1)])
                assert not refused.allowed, counter
                assert decision.allowed, counter
                assert decision.remaining == 6, counter


class TestLeasedThreads(TestLeased):
    """The same where the store blocks its caller, and a thread does what is done in the background."""

    @asynccontextmanager
    async def open_store(self, clock: FakeClock) -> AsyncIterator[AlwaysLeasedByThreads]:
        leased = Leased(MemoryStore(clock), lambda: clock() * 1_000, blocks=True)
        yield AlwaysLeasedByThreads(leased)
        await leased.close()
