"""The testing kit: for tests of programs that use headgate, and of stores for it."""

from headgate.testing.clock import FakeClock
from headgate.testing.contract import CounterStoreContract
from headgate.testing.fault_proxy import FaultProxy
from headgate.testing.faults import ErrorLine, Fault
from headgate.testing.golden import Scenario, load_vectors, replay

__all__ = [
    "CounterStoreContract",
    "ErrorLine",
    "FakeClock",
    "Fault",
    "FaultProxy",
    "Scenario",
    "load_vectors",
    "replay",
]
