"""The HTTP part: what a check costs as a request to the decision service, beside a constant answer of its server."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING

from bench.http_load import load, request
from bench.rows import Better, Outcome, Row
from bench.server import free_port, programs, running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.measure import Watch

PART = "http"
CONSTANT, CHECK, AUTO = "constant", "check", "auto"
WORKERS = 2
"""Processes that answer on one port, one for each core."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is done. One run is `seconds` of requests on so many connections."""

    users: int = 4_000
    seconds: float = 2.0
    connections: int = 64
    rounds: int = 5


QUICK = Scale(users=64, seconds=0.1, connections=8, rounds=1)


def run(watch: Watch, *, quick: bool = False) -> Outcome:
    """Measure everything of this part; `quick` only shows that it works."""
    scale = QUICK if quick else Scale()
    outcome = Outcome(PART)
    asked = [request(f"u_{number:010}") for number in range(scale.users)]
    with ExitStack() as stack:
        redis = stack.enter_context(running(programs()[0]))
        with ExitStack() as alone:
            ports = {kind: alone.enter_context(serving(kind, redis.url, 1)).port for kind in (CONSTANT, CHECK)}
            found = _saturation(ports, asked, scale, watch, "one process")
            outcome.rows.append(_row("http_check_one_process", found))
        services = {kind: stack.enter_context(serving(kind, redis.url, WORKERS)) for kind in (CONSTANT, CHECK)}
        ports = {kind: service.port for kind, service in services.items()}
        found = _saturation(ports, asked, scale, watch, "two processes")
        outcome.rows.append(_row("http_check", found))
        outcome.figures["saturation"] = [{"kind": kind, "rates": rate} for kind, rate in found.items()]
        services[AUTO] = stack.enter_context(serving(CHECK, redis.url, WORKERS, AUTO))
        targets = {kind: (service.port, asked) for kind, service in services.items()}
        targets[AUTO] = (services[AUTO].port, [request("u_hot")])
        _latency(targets, median(found[CHECK]) / 2, scale, watch, outcome)
        outcome.figures["workers"] = [
            {"kind": kind, "seconds": service.seconds()} for kind, service in services.items()
        ]
    return outcome


def _saturation(
    ports: dict[str, int], asked: list[bytes], scale: Scale, watch: Watch, what: str
) -> dict[str, list[float]]:
    """As many requests as there can be: how many a second, in each round."""
    rates: dict[str, list[float]] = {kind: [] for kind in ports}
    watch.begin(f"HTTP, at saturation, {what}", (scale.rounds + 1) * len(ports))
    for _ in range(scale.rounds + 1):
        for kind, port in ports.items():
            rates[kind].append(len(load(port, asked, scale.seconds, scale.connections)) / scale.seconds)
            watch.step()
    return {kind: rate[1:] for kind, rate in rates.items()}  # the first round only warms up


def _row(name: str, found: dict[str, list[float]]) -> Row:
    ours, reference = (max(found[kind]) for kind in (CHECK, CONSTANT))
    ratio = median(found[CHECK]) / median(found[CONSTANT])
    return Row(name, ours, reference, "checks/s", "the same server answering a constant", median_ratio=ratio)


def _latency(
    targets: dict[str, tuple[int, list[bytes]]], pace: float, scale: Scale, watch: Watch, outcome: Outcome
) -> None:
    """What a check adds to a request at half of saturation: the difference of two runs, one after the other."""
    p99s: dict[str, list[float]] = {kind: [] for kind in targets}
    watch.begin("HTTP, at half of saturation", scale.rounds * len(targets))
    for _ in range(scale.rounds):
        for kind, (port, asked) in targets.items():
            latencies = load(port, asked, scale.seconds, scale.connections, pace)
            p99s[kind].append(quantiles(latencies, n=100)[-1] * 1e3)
            watch.step()
    against = f"1 ms; the constant's p99 is {median(p99s[CONSTANT]):.2f} ms at the same {pace:,.0f}/s"
    for name, kind in (("check_p99_added", CHECK), ("check_p99_added_auto", AUTO)):
        added = [ours - reference for ours, reference in zip(p99s[kind], p99s[CONSTANT], strict=True)]
        outcome.rows.append(Row(name, max(median(added), 0.0), 1.0, "ms/request", against, Better.LOWER))
    outcome.figures["latency"] = [{"kind": kind, "pace": pace, "p99_ms": p99} for kind, p99 in p99s.items()]


@dataclass(frozen=True, slots=True)
class Service:
    """Processes that share a port."""

    port: int
    processes: tuple[subprocess.Popen[bytes], ...]

    def seconds(self) -> list[float]:
        """What each has taken of the processor: whether all of them were used."""
        return [process_seconds(process.pid) for process in self.processes]


@contextmanager
def serving(kind: str, redis_url: str, workers: int, spread: str = "exact") -> Iterator[Service]:
    """A service of so many processes, as `headgate serve --workers` has them."""
    port = free_port()
    command = [sys.executable, "-m", "bench.http_server", kind, str(port), redis_url, spread]
    with ExitStack() as stack:
        processes = []
        for _ in range(workers):
            process = stack.enter_context(
                subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[1])  # noqa: S603 (our own)
            )
            stack.callback(process.terminate)
            assert process.stdout is not None
            process.stdout.readline()
            processes.append(process)
        yield Service(port, tuple(processes))


def process_seconds(process: int) -> float:
    """What a process has taken of the processor, as Linux counts it."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
