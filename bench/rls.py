"""The part of Envoy's rate-limit service: real decisions beside an empty handler of grpcio.aio."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from statistics import quantiles
from typing import TYPE_CHECKING, NamedTuple

from bench.http import process_seconds
from bench.measure import guard, race
from bench.rls_load import AT_ONCE, CONNECTIONS, ask, question
from bench.rows import Better, Outcome, Row
from bench.server import programs, running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.measure import Watch

PART = "rls"
_BAR = 2.5
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
        Row("rls", 1 / ours.best, 1 / reference.best, "calls/s", "empty grpcio.aio", _BAR, median_ratio=ratio)
    )
    slowest = min(p99["headgate"][1:])  # the best round counts here, too
    deadline = "Envoy's deadline"
    outcome.rows.append(Row("rls_p99", slowest, _ENVOYS_MILLISECONDS, "ms", deadline, 1, Better.LOWER))
    outcome.figures["rls"] = [
        {
            "server": name,
            "calls_per_second": 1 / timing.best,
            "p99_ms": min(p99[name][1:]),
            "at_once": CONNECTIONS * AT_ONCE,
        }
        for name, timing in timings.items()
    ]
    return outcome
