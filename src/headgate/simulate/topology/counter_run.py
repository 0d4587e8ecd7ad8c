"""One counter with all processes that use it, for a few windows of virtual time."""

from __future__ import annotations

import asyncio
from math import exp
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.core.units import SECOND
from headgate.simulate.topology.deployment import REGIONAL, Mode
from headgate.simulate.topology.network import Server
from headgate.simulate.topology.processes import Process, hit_of
from headgate.simulate.topology.tally import Tally
from headgate.simulate.topology.virtual_time import VirtualLoop

if TYPE_CHECKING:
    from headgate.core.decision import Decision
    from headgate.core.units import Micros
    from headgate.simulate.topology.deployment import Deployment
    from headgate.simulate.topology.population import SimulatedCounter

_START: Final[Micros] = 1_700_000_000 * SECOND
_TICK: Final = 0.1
"""Requests that a process gets of one counter within so many seconds come at the same time, if there are several."""
_SHORT_TICK: Final = 0.01
"""For leases, whose blocks are for a tenth of a second."""
_WARM_UP: Final = 2
"""Seconds before the first counted window: blocks, views and exchanges have their sizes and rhythms by then."""
_NORMAL_FROM: Final = 30
_TRIES: Final = 3


class CounterResult(NamedTuple):
    """What was seen of one counter."""

    tally: Tally
    operations: float
    """A second, of all servers."""
    hottest: float
    """A second, on the key that has most of them; of a counter in parts the busiest part."""


def run_counter(counter: SimulatedCounter, deployment: Deployment, mode: Mode) -> CounterResult:
    """Simulate one counter."""
    first = _START - _START % (deployment.window * SECOND)
    loop = VirtualLoop(first - min(_WARM_UP, deployment.window) * SECOND)
    asyncio.set_event_loop(loop)
    try:
        world = _World(counter, deployment, mode, loop, first)
        return loop.run_until_complete(world.run())
    finally:
        asyncio.set_event_loop(None)
        loop.close()


class _World:
    def __init__(
        self, counter: SimulatedCounter, deployment: Deployment, mode: Mode, loop: VirtualLoop, first: Micros
    ) -> None:
        self._loop = loop
        self._deployment = deployment
        self._random = Random(f"{deployment.seed} {counter.rank} {mode} {sorted(counter.rates)}")  # noqa: S311 (a simulation)
        self._tick = _SHORT_TICK if mode is Mode.LEASED else _TICK
        self._counter = counter
        self._tally = Tally(first - deployment.window * SECOND, deployment.window * SECOND)
        regions = deployment.names if mode in REGIONAL else tuple(counter.rates)
        self._servers = {name: Server(loop) for name in regions}
        hit = hit_of(counter, deployment, mode)
        self._processes = {
            name: [
                Process(name, deployment, mode, self._servers, hit, loop, self._random)
                for _ in range(deployment.processes_in[name])
            ]
            for name in counter.rates
        }
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> CounterResult:
        window, windows = self._deployment.window, self._deployment.windows
        for name, processes in self._processes.items():
            self._begin(processes, self._counter.rates[name])
        await asyncio.sleep(min(_WARM_UP, window))
        for server in self._servers.values():
            server.operations.clear()
        await asyncio.sleep(window * windows)
        found = CounterResult(self._tally, *self._operations(window * windows))
        mine = asyncio.current_task()
        others = [task for task in asyncio.all_tasks() if task is not mine]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        return found

    def _operations(self, seconds: float) -> tuple[float, float]:
        by_key = [number for server in self._servers.values() for number in server.operations.values()]
        return sum(by_key) / seconds, max(by_key, default=0) / seconds

    # Requests come

    def _begin(self, processes: list[Process], rate: float) -> None:
        each = rate / len(processes)
        if each * self._tick < 1:
            self._next_request(processes, rate)
            return
        for process in processes:
            self._loop.call_later(self._random.random() * self._tick, self._next_tick, process, each * self._tick)

    def _next_request(self, processes: list[Process], rate: float) -> None:
        self._loop.call_later(self._random.expovariate(rate), self._one_request, processes, rate)

    def _one_request(self, processes: list[Process], rate: float) -> None:
        self._arrive(self._random.choice(processes), 1)
        self._next_request(processes, rate)

    def _next_tick(self, process: Process, mean: float) -> None:
        self._loop.call_later(self._tick, self._next_tick, process, mean)
        self._arrive(process, _poisson(self._random, mean))

    def _arrive(self, process: Process, requests: int) -> None:
        now = self._loop.micros()
        spent = process.spent_from_blocks(requests)
        if spent:
            self._tally.add(spent, now, 0.0, admitted=True)
        left = requests - spent
        if not left:
            return
        if process.is_known_denied():
            self._tally.add(left, now, 0.0, admitted=False)
            return
        task = self._loop.create_task(self._ask(process, left))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, process: Process, requests: int) -> None:
        """Requests that came together ask the store as one; if it has too little, those that fit, and one more."""
        last = process.last
        cost = 1 if last is not None and not last.allowed else requests
        left = requests
        decision: Decision | None = None
        for _ in range(_TRIES):
            sent = self._loop.time()
            (decision,) = await process.store.take((process.hit._replace(cost=cost),))
            process.last = decision
            if decision.allowed:
                self._tally.add(cost, decision.at, self._loop.time() - sent, admitted=True)
                left -= cost
                cost = left
            elif cost == 1:
                break
            else:
                # A request that is refused in between would ask alone.
                cost = max(1, min(decision.remaining, left))
            if not left:
                return
        assert decision is not None  # noqa: S101 (it was asked)
        self._tally.add(left, decision.at, self._loop.time() - sent, admitted=False)
        if process.cache is None:
            server = self._servers[process.region]
            server.operations[process.hit.key] += left - 1


def _poisson(random: Random, mean: float) -> int:
    """How many come, if so many come on average."""
    if mean >= _NORMAL_FROM:
        return max(0, round(random.gauss(mean, mean**0.5)))
    bound, product, count = exp(-mean), random.random(), 0
    while product > bound:
        product *= random.random()
        count += 1
    return count
