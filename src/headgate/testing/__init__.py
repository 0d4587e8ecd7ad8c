"""The testing kit: for tests of programs that use headgate, and of stores for it.

    from headgate.sync import Limiter
    from headgate.testing import FakeClock

    clock = FakeClock()
    limiter = Limiter.open("memory://", clock=clock)
    assert limiter.hit("login:u_42", "1/minute").allowed
    assert not limiter.hit("login:u_42", "1/minute").allowed
    clock.advance(seconds=120)
    assert limiter.hit("login:u_42", "1/minute").allowed

`assert_limited` calls an application until it refuses. pytest has the fixtures `headgate_clock`, `headgate_limiter`
and `headgate_sync_limiter`. `CounterStoreContract` proves a store of your own, and `FaultProxy` plays a server that is
slow, silent or gone.
"""

from headgate.testing.assertions import assert_limited
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
    "assert_limited",
    "load_vectors",
    "replay",
]
