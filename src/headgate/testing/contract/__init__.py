"""The suite that every `CounterStore` has to pass.

A store runs it in ten lines:

    class TestMyStore(CounterStoreContract):
        @asynccontextmanager
        async def open_store(self, clock: FakeClock) -> AsyncIterator[CounterStore]:
            store = MyStore(clock)
            yield store
            await store.close()

It needs no particular test runner: the methods whose names begin with ``test_`` take no arguments and raise
`AssertionError`. Only the port and the clock are used.
"""

from __future__ import annotations

from headgate.testing.contract.admission import Admission
from headgate.testing.contract.giving_back import GivingBack
from headgate.testing.contract.holding import Holding
from headgate.testing.contract.passing_time import PassingTime
from headgate.testing.contract.trial import Counter, StoreCase, Trial, scenario
from headgate.testing.golden import load_vectors, replay

__all__ = ["Counter", "CounterStoreContract", "StoreCase", "Trial", "scenario"]


class CounterStoreContract(Admission, GivingBack, PassingTime, Holding):
    """Everything that the `CounterStore` port promises, proved. Override `open_store`."""

    @scenario
    async def test_the_golden_vectors_are_answered_to_the_microsecond(self, trial: Trial) -> None:
        """Every scenario of `headgate.testing.load_vectors` is answered exactly as written."""
        for vector in load_vectors():
            await replay(vector, trial.store, trial.clock)
