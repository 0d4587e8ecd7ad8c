"""The testing kit itself: a clock that obeys, and a suite that finds stores which do not."""

from __future__ import annotations

import asyncio
import doctest
import subprocess
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from headgate import sync
from headgate.adapters.memory import MemoryStore
from headgate.testing import CounterStoreContract, FakeClock, clock, load_vectors, replay

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from headgate.core.decision import Decision, Hit, Receipt


class Generous(MemoryStore):
    """Counts a request even if a part of it is refused."""

    async def take(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        return [decision for hit in hits for decision in self.take_now([hit])]


class Forgetful(MemoryStore):
    """Does not know which receipts it has seen."""

    async def give_back(self, receipts: Sequence[Receipt]) -> None:
        self._spent.clear()
        self.give_back_now(receipts)


class Hasty(MemoryStore):
    """Says to come back a microsecond too early."""

    async def take(self, hits: Sequence[Hit]) -> Sequence[Decision]:
        decisions = self.take_now(hits)
        return [
            decision._replace(retry_after=decision.retry_after - 1) if decision.retry_after else decision
            for decision in decisions
        ]


def _failures(kind: type[MemoryStore]) -> set[str]:
    """The names of the contract's tests that a store fails."""

    class Held(CounterStoreContract):
        @asynccontextmanager
        async def open_store(self, clock: FakeClock) -> AsyncIterator[MemoryStore]:
            yield kind(clock)

    case, failed = Held(), set[str]()
    for name in (name for name in dir(case) if name.startswith("test_")):
        try:
            getattr(case, name)()
        except AssertionError:
            failed.add(name)
    return failed


@pytest.mark.parametrize(
    ("kind", "found_by"),
    [
        (MemoryStore, None),
        (Generous, "test_all_hits_or_none"),
        (Forgetful, "test_a_receipt_counts_once"),
        (Hasty, "test_retry_after_is_exact"),
    ],
)
def test_the_contract_finds_stores_that_break_it(kind: type[MemoryStore], found_by: str | None) -> None:
    """A store that breaks one promise fails the test of that promise; one that keeps them all fails none."""
    failed = _failures(kind)
    assert found_by in failed if found_by else not failed


def test_the_contract_asks_for_a_store() -> None:
    """A subclass that does not override `open_store` gets NotImplementedError."""
    with pytest.raises(NotImplementedError):
        CounterStoreContract().test_all_hits_or_none()


def test_a_wrong_answer_to_a_vector_is_named() -> None:
    """Replaying a vector on a store that answers otherwise names scenario and step."""
    scenario = load_vectors()[0]
    at, store = FakeClock(), Hasty(FakeClock())
    with pytest.raises(AssertionError, match=r"fixed_window: burst and boundary, step \d: .* was expected, not"):
        asyncio.run(replay(scenario, store, at))


def test_the_clock_does_what_its_examples_say() -> None:
    """The examples in the fake clock's documentation are true."""
    assert doctest.testmod(clock).failed == 0


def test_the_clock_can_be_set_back() -> None:
    """A limiter goes by the fake clock: limits pass when it moves, and only then."""
    at = FakeClock()
    limiter = sync.Limiter.open("memory://", clock=at)
    assert limiter.hit("key", "1/minute", algorithm="fixed_window")
    assert not limiter.hit("key", "1/minute", algorithm="fixed_window")
    at.advance(seconds=60)
    assert limiter.hit("key", "1/minute", algorithm="fixed_window")
    at.set(clock.NEW_YEAR)
    assert not limiter.hit("key", "1/minute", algorithm="fixed_window")


def test_the_kit_needs_no_test_runner() -> None:
    """Importing the kit imports neither pytest nor Hypothesis."""
    look = "import sys, headgate.testing; sys.exit(bool({'pytest', 'hypothesis', '_pytest'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", look], check=False).returncode == 0  # noqa: S603 (our own words)
