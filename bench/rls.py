"""The part of Envoy's rate-limit service: beside an empty handler of grpcio.aio, and beside envoyproxy/ratelimit."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack, contextmanager
from statistics import median, quantiles
from typing import TYPE_CHECKING, NamedTuple

from bench import envoy_ratelimit
from bench.http import process_seconds
from bench.measure import guard, race
from bench.rls_load import AT_ONCE, CONNECTIONS, ask, question
from bench.rows import Better, Outcome, Row
from bench.server import programs, running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.measure import Watch

PART = "rls"
_ENVOYS_MILLISECONDS = 20


class Served(NamedTuple):
    """A server in a process of its own."""

    port: int
    process: subprocess.Popen[str]

    def seconds(self) -> float:
        """What it has taken of the processor."""
        return process_seconds(self.process.pid)


@contextmanager
def serving(kind: str, url: str = "memory://", spread: str = "exact") -> Iterator[Served]:
    """A server in a process of its own."""
    command = [sys.executable, "-m", "bench.rls_servers", kind, url, spread]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 (our own)
        assert process.stdout is not None
        yield Served(int(process.stdout.readline()), process)
        process.terminate()


def run(watch: Watch, *, quick: bool = False) -> Outcome:
    """Measure everything of this part; `quick` only shows that it works."""
    calls, rounds = (200, 1) if quick else (5_000, 5)
    questions = [question("web", f"203.0.{number // 250 % 250}.{number % 250}") for number in range(calls)]
    p99: dict[str, list[float]] = {}

    def asking(name: str, port: int) -> Callable[[], None]:
        def asked() -> None:
            passed, latencies = ask(port, questions)
            guard(name, passed, calls)
            p99.setdefault(name, []).append(1_000 * quantiles(latencies, n=100)[-1])

        return asked

    with (
        running(programs()[0]) as valkey,
        serving("headgate") as memory,
        serving("headgate", f"{valkey.url}?deadline_ms=5000") as redis,
        serving("empty") as empty,
    ):
        for served in (memory, redis):
            guard("headgate", ask(served.port, [question("few", "203.0.113.9")] * 10)[0], 5)
        servers = {"headgate": memory, "headgate, Redis": redis, "grpcio.aio, empty": empty}
        runs = {name: asking(name, served.port) for name, served in servers.items()}
        timings = race("Envoy's rate-limit service", runs, calls, rounds, watch)
    ours, reference = timings["headgate"], timings["grpcio.aio, empty"]
    ratio = reference.median / ours.median
    outcome = Outcome(PART)
    outcome.rows.append(
        Row("rls", 1 / ours.best, 1 / reference.best, "calls/s", "empty grpcio.aio", median_ratio=ratio)
    )
    slowest = min(p99["headgate"][1:])  # the best round counts here, too
    deadline = "Envoy's deadline"
    outcome.rows.append(Row("rls_p99", slowest, _ENVOYS_MILLISECONDS, "ms", deadline, Better.LOWER))
    outcome.figures["rls"] = [
        {
            "server": name,
            "calls_per_second": 1 / timing.best,
            "p99_ms": min(p99[name][1:]),
            "at_once": CONNECTIONS * AT_ONCE,
        }
        for name, timing in timings.items()
    ]
    _processor_time(watch, outcome, quick=quick)
    return outcome


def _processor_time(watch: Watch, outcome: Outcome, *, quick: bool) -> None:
    """What a call takes of the processor: our service and envoyproxy/ratelimit, in turn, on the same Redis."""
    try:
        program = envoy_ratelimit.program()
    except envoy_ratelimit.CannotBuild as error:
        outcome.skipped.append(f"rls_cpu_envoy is not measured: {error}.")
        return
    calls, rounds = (400, 1) if quick else (20_000, 5)
    questions = [question("web", f"203.0.{number // 250 % 20}.{number % 250}") for number in range(calls)]
    costs: dict[str, list[float]] = {}
    with ExitStack() as stack:
        valkey = stack.enter_context(running(programs()[0]))
        ours = stack.enter_context(serving("headgate", f"{valkey.url}?deadline_ms=5000"))
        targets = {"headgate": (ours.port, ours.process.pid)}
        for name, window in (("envoyproxy/ratelimit", "0"), ("envoyproxy/ratelimit, pipelined", "150us")):
            targets[name] = stack.enter_context(envoy_ratelimit.serving(program, valkey.address[1], window))
        watch.begin("processor time of a call", (rounds + 1) * len(targets))
        for name, (port, _) in targets.items():
            guard(name, ask(port, [question("few", f"203.0.113.{len(costs)}")] * 10)[0], 5)
            costs[name] = []
        for _ in range(rounds + 1):
            for name, (port, process) in targets.items():
                before = process_seconds(process)
                guard(name, ask(port, questions)[0], calls)
                costs[name].append((process_seconds(process) - before) / calls * 1e6)
                watch.step()
    found = {name: median(each[1:]) for name, each in costs.items()}  # the first round only warms up
    best = min((name for name in found if name != "headgate"), key=lambda name: found[name])
    # A quick run is too short for the clock of processor time.
    reference = found[best] or 1.0
    outcome.rows.append(Row("rls_cpu_envoy", found["headgate"], reference, "µs/call", best, Better.LOWER))
    outcome.figures["processor time"] = [{"server": name, "microseconds": cost} for name, cost in found.items()]
