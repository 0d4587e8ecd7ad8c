"""The testing kit: what people need to test their own use of headgate, and stores of their own."""

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
