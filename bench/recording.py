"""The recording part: what it costs a deciding process that what it decides is recorded, and stored."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import uvloop
from bench.rows import Outcome, Row
from bench.server import programs, running

from headgate import Request
from headgate.edge.http.server import settle_down
from headgate.settings import Settings
from headgate.wiring.serving import decision_service
from headgate.wiring.telemetry import Telemetry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.measure import Watch

    from headgate.dataplane.limiter import Limiter

PART = "recording"
WITH, WITHOUT = "with", "without"
RULES = """
rules:
  - {name: search, per: [user], limits: 1000000/hour, match: {endpoints: [/api/search]}, sample: 0.01}
  - {name: login, per: [user], limits: 1/hour, match: {endpoints: [/login]}, sample: 0.01}
"""
"""One that admits everybody, and one that refuses."""
_ONE_REFUSED_IN = 20
_PATIENCE = 60


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is done: so many checks a round, by so many tasks."""

    users: int = 10_000
    checks: int = 200_000
    tasks: int = 64
    rounds: int = 7


QUICK = Scale(users=50, checks=400, tasks=8, rounds=1)


def run(watch: Watch, *, quick: bool = False) -> Outcome:
    """Measure everything of this part; `quick` only shows that it works."""
    scale = QUICK if quick else Scale()
    outcome = Outcome(PART)
    requests = [_request(number, scale.users) for number in range(scale.checks)]
    with running(programs()[0]) as redis, tempfile.TemporaryDirectory() as folder:
        settings = _settings(Path(folder), redis.url)
        with _shipping(settings):
            rates = uvloop.run(_rates(settings, requests, scale, watch))
    ratio = median(rates[WITH]) / median(rates[WITHOUT])
    against = "the same without recording; 5 % denied, 1 % of the rest kept, all of it stored in PostgreSQL meanwhile"
    best = {kind: max(found) for kind, found in rates.items()}
    outcome.rows.append(Row("events_cost", best[WITH], best[WITHOUT], "checks/s", against, 0.9, median_ratio=ratio))
    outcome.figures["recording"] = [{"kind": kind, "rates": found} for kind, found in rates.items()]
    return outcome


async def _rates(settings: Settings, requests: list[Request], scale: Scale, watch: Watch) -> dict[str, list[float]]:
    """Checks a second of a process that does as a worker of the service does, with and without its recorder."""
    rates: dict[str, list[float]] = {WITHOUT: [], WITH: []}
    async with decision_service(settings, Telemetry("1"), leads=False) as service:
        limiter = service.limiter
        async with asyncio.timeout(_PATIENCE):
            while limiter.snapshots.current.number == 0:  # noqa: ASYNC110 (nobody says when the rules are there)
                await asyncio.sleep(0.05)
        recorder = limiter.recorder
        settle_down()
        watch.begin("Recording", (scale.rounds + 1) * len(rates))
        for _ in range(scale.rounds + 1):
            for kind, found in rates.items():
                limiter.recorder = recorder if kind == WITH else None
                found.append(await _rate(limiter, requests, scale.tasks))
                watch.step()
        limiter.recorder = recorder
    return {kind: found[min(1, scale.rounds - 1) :] for kind, found in rates.items()}  # the first round only warms up


async def _rate(limiter: Limiter, requests: list[Request], tasks: int) -> float:
    waiting = iter(requests)

    async def ask() -> None:
        for request in waiting:
            await limiter.check(request)

    began = time.perf_counter()
    await asyncio.gather(*(ask() for _ in range(tasks)))
    return len(requests) / (time.perf_counter() - began)


def _request(number: int, users: int) -> Request:
    path = "/api/search" if number % _ONE_REFUSED_IN else "/login"
    user = f"u_{number % users:010}" if number % _ONE_REFUSED_IN else f"u_{number % 7}"
    return Request(user=user, tier="free", method="POST", path=path)


def _settings(folder: Path, redis_url: str) -> Settings:
    rules = folder / "rules.yaml"
    rules.write_text(RULES)
    return replace(
        Settings(), data_dir=folder, redis_url=redis_url, database_url=f"embedded://{folder}/postgres", rules_file=rules
    )


@contextmanager
def _shipping(settings: Settings) -> Iterator[None]:
    """The process that leads: it has the database, and stores what the others record."""
    command = [sys.executable, "-m", "bench.recording", str(settings.data_dir), settings.redis_url or ""]
    with subprocess.Popen(  # noqa: S603 (our own)
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[1]
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield


async def _lead(folder: Path, redis_url: str) -> None:
    async with decision_service(_settings(folder, redis_url), Telemetry()):
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(_lead(Path(sys.argv[1]), sys.argv[2]))
