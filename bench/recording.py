"""The recording part: what it costs a limiter, and a service, that what they decide is recorded and stored."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import uvloop
from bench.http_load import load, request
from bench.recording_server import LEADER, WITH, WITHOUT, settings, worker
from bench.rows import Outcome, Row
from bench.server import free_port, programs, running

from headgate import Request
from headgate.edge.http.server import freeze_gc

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.measure import Watch

    from headgate.dataplane.limiter import Limiter
    from headgate.settings import Settings

PART = "recording"
WORKERS = 2
"""Processes that answer on one port, one for each core."""
_ONE_REFUSED_IN = 20
_IN_A_ROW = 50
_AGAINST = "the same without recording; 5 % denied, 1 % of the rest kept, all of it stored in PostgreSQL meanwhile"


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is done: so many seconds of checks in each round, by so many tasks or on so many connections."""

    users: int = 10_000
    checks: int = 200_000
    """Different ones; then the first comes again."""
    tasks: int = 64
    rounds: int = 5
    seconds: float = 10.0
    lead: float = 10.0
    """Seconds of the same load before each round, and of rest behind it. Counts are stored every ten seconds: a round
    pays for storing those of the load before it, so that no round pays for another and no counts are left out."""


QUICK = Scale(users=50, checks=400, tasks=8, rounds=1, seconds=0.1, lead=0.1)


def run(watch: Watch, *, quick: bool = False) -> Outcome:
    """Measure everything of this part; `quick` only shows that it works."""
    scale = QUICK if quick else Scale()
    outcome = Outcome(PART)
    with running(programs()[0]) as redis, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with _process(LEADER, folder, redis.url):
            rates = uvloop.run(_limiter_rates(settings(folder, redis.url), scale, watch))
            outcome.rows.append(_row("events_cost", rates))
            outcome.figures["recording"] = [{"kind": kind, "rates": found} for kind, found in rates.items()]
            rates = _service_rates(folder, redis.url, scale, watch)
            outcome.rows.append(_row("events_cost_service", rates))
            outcome.figures["recording_service"] = [{"kind": kind, "rates": found} for kind, found in rates.items()]
        assert not [*folder.glob("spool/*/*/*/*.log")], "something was recorded and not stored"
    return outcome


def _row(name: str, rates: dict[str, list[float]]) -> Row:
    """Of the medians: what is recorded is stored in bursts, and the best round would be one without."""
    return Row(name, median(rates[WITH]), median(rates[WITHOUT]), "checks/s", _AGAINST)


def _in_turn(rates: dict[str, list[float]], rounds: int) -> Iterator[str]:
    """One kind after the other, and in turn which of them is first."""
    for number in range(rounds):
        yield from rates if number % 2 else reversed(rates)


def _service_rates(folder: Path, redis_url: str, scale: Scale, watch: Watch) -> dict[str, list[float]]:
    """Checks a second of a service of two processes, by HTTP."""
    asked = [request(user, path) for user, path in _callers(scale)]
    rates: dict[str, list[float]] = {WITHOUT: [], WITH: []}
    ports = {kind: free_port() for kind in rates}
    with ExitStack() as stack:
        for kind, port in ports.items():
            for _ in range(WORKERS):
                stack.enter_context(_process(kind, folder, redis_url, str(port)))
        watch.begin("Recording, in a service", scale.rounds * len(rates))
        for kind in _in_turn(rates, scale.rounds):
            load(ports[kind], asked, scale.lead, scale.tasks, may_refuse=True)
            answers = load(ports[kind], asked, scale.seconds, scale.tasks, may_refuse=True)
            rates[kind].append(len(answers) / scale.seconds)
            time.sleep(scale.lead)
            watch.step()
    return rates


async def _limiter_rates(chosen: Settings, scale: Scale, watch: Watch) -> dict[str, list[float]]:
    """Checks a second of a worker's limiter alone, without calls by HTTP or gRPC."""
    requests = [Request(user=user, tier="free", method="POST", path=path) for user, path in _callers(scale)]
    rates: dict[str, list[float]] = {WITHOUT: [], WITH: []}
    async with worker(chosen) as service:
        limiter = service.limiter
        recorder = limiter.observer
        freeze_gc()
        watch.begin("Recording, the limiter alone", scale.rounds * len(rates))
        for kind in _in_turn(rates, scale.rounds):
            limiter.observer = recorder if kind == WITH else None
            await _rate(limiter, requests, scale.lead, scale.tasks)
            rates[kind].append(await _rate(limiter, requests, scale.seconds, scale.tasks))
            await asyncio.sleep(scale.lead)
            watch.step()
        limiter.observer = recorder
    return rates


async def _rate(limiter: Limiter, requests: list[Request], seconds: float, tasks: int) -> float:
    """Checks a second, for about so many seconds."""
    asked, waiting, began = 0, cycle(requests), time.perf_counter()

    async def ask() -> None:
        nonlocal asked
        while time.perf_counter() < began + seconds:
            for each in islice(waiting, _IN_A_ROW):
                await limiter.check(each)
            asked += _IN_A_ROW

    await asyncio.gather(*(ask() for _ in range(tasks)))
    return asked / (time.perf_counter() - began)


def _callers(scale: Scale) -> Iterator[tuple[str, str]]:
    """Who asks for what, one after the other: one in twenty for what is refused."""
    for number in range(scale.checks):
        if number % _ONE_REFUSED_IN:
            yield f"u_{number % scale.users:010}", "/api/search"
        else:
            yield f"u_{number % 7}", "/login"


@contextmanager
def _process(kind: str, folder: Path, redis_url: str, *options: str) -> Iterator[None]:
    """One of `bench.recording_server`, which ends with the block: the leader after the others, as in the service."""
    command = [sys.executable, "-m", "bench.recording_server", kind, str(folder), redis_url, *options]
    with subprocess.Popen(  # noqa: S603 (our own)
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[1]
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n", "it has not started"
        try:
            yield
        finally:
            if kind != LEADER:  # which ends with its input, and ships first
                process.terminate()
