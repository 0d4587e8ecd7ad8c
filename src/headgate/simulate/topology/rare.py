"""The long tail: counters with so few requests that a simulated one would say nothing about the millions of its kind.

Nothing has to be simulated there: no request finds a block or a known denial, each is one operation and waits for one
round trip, and none is refused, because the limit is far above what comes.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from headgate.core.units import SECOND
from headgate.simulate.topology.counter_run import CounterResult
from headgate.simulate.topology.network import JITTER
from headgate.simulate.topology.tally import Tally

if TYPE_CHECKING:
    from headgate.simulate.topology.deployment import Deployment
    from headgate.simulate.topology.population import SimulatedCounter

_MAX_REQUESTS: Final = 20
"""Requests in the time that is counted."""
_BELOW: Final = 4
_SAMPLES: Final = 500


def is_rare(counter: SimulatedCounter, deployment: Deployment) -> bool:
    """Whether a counter of a user, in its region, belongs to the tail."""
    requests = expected_requests(counter, deployment)
    return requests < _MAX_REQUESTS and _BELOW * requests <= counter.limit


def expected_requests(counter: SimulatedCounter, deployment: Deployment) -> float:
    """How many come on average in the time that is counted."""
    return sum(counter.rates.values()) * deployment.window * deployment.windows


def rare_result(counter: SimulatedCounter, deployment: Deployment) -> CounterResult:
    """What is seen of one such counter, on average."""
    rate = sum(counter.rates.values())
    tally = Tally(0, deployment.window * SECOND)
    for number in range(1, 1 + deployment.windows):
        tally.offered[number] = tally.admitted[number] = rate * deployment.window
    random = Random(deployment.seed)  # noqa: S311 (a simulation)
    each = rate * deployment.window * deployment.windows / _SAMPLES
    for _ in range(_SAMPLES):
        tail = sum(random.expovariate(1 / JITTER) for _ in range(2))
        tally.add_wait(each, deployment.round_trip * (1 + tail / 2))
    return CounterResult(tally, rate, rate)
