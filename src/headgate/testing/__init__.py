"""The testing kit: what people need to test their own use of headgate, and stores of their own."""

from headgate.testing.clock import FakeClock
from headgate.testing.contract import CounterStoreContract
from headgate.testing.golden import Scenario, load_vectors, replay

__all__ = ["CounterStoreContract", "FakeClock", "Scenario", "load_vectors", "replay"]
