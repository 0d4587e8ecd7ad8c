"""What one lease hit costs: beside the same call on the memory store, and beside a peer's call to Redis."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

from bench.measure import guard, race
from bench.peers import OURS
from bench.redis_peers import async_contestants
from bench.rows import Better, Outcome, Row, growth
from bench.tasks import Tasks

from headgate import Request
from headgate.sync import Limiter

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.measure import Watch
    from bench.server import Server

_LIMIT = "1000000000/day"
_RULES = [{"name": "api", "per": "user", "limits": _LIMIT, "algorithm": "fixed_window"}]


def hit_rows(server: Server, watch: Watch, outcome: Outcome, *, quick: bool) -> None:
    """`hit` and `check` of the limiter without `await`: from a block, and on ``memory://``."""
    count, rounds = (2_000, 1) if quick else (100_000, 7)
    server.flush()
    with ExitStack() as stack:
        url = f"{server.url}?deadline_ms=5000&spread=leased"
        leased = stack.enter_context(Limiter.open(url, [{**_RULES[0], "spread": "leased"}]))
        memory = stack.enter_context(Limiter.open("memory://", _RULES))
        for name, run in {"lease_hit": _hits, "lease_check": _checks}.items():
            runs = {"leased": partial(run, leased, count), "memory": partial(run, memory, count)}
            timings = race(name, runs, count, rounds, watch)
            outcome.rows.append(growth(name, timings["leased"], timings["memory"], "memory://"))


def _hits(limiter: Limiter, count: int) -> None:
    hit = limiter.hit
    guard("hits", sum(hit("hot", _LIMIT, algorithm="fixed_window").allowed for _ in range(count)), count)


def _checks(limiter: Limiter, count: int) -> None:
    check, request = limiter.check, Request(user="u1", method="GET", path="/api/search")
    guard("checks", sum(check(request).allowed for _ in range(count)), count)


def single_row(server: Server, watch: Watch, outcome: Outcome, *, quick: bool) -> None:
    """One hit at a time on one warm key: ours with `auto` against the fastest peer, which asks Redis each time."""
    count, rounds = (50, 1) if quick else (2_000, 5)
    server.flush()
    peers = [each for each in async_contestants(server.url) if each.library != OURS]
    ours = next(
        each for each in async_contestants(f"{server.url}?spread=auto&deadline_ms=5000") if each.library == OURS
    )
    keys = ["hot"] * count
    took: dict[str, list[float]] = {}
    with ExitStack() as stack:
        runs: dict[str, Callable[[], object]] = {}
        for name, each in {"ours": ours, **{each.name: each for each in peers}}.items():
            tasks = stack.enter_context(Tasks(each.make(10**9)))
            runs[name] = partial(_latencies, took.setdefault(name, []), tasks, keys)
        race("one at a time, auto", runs, count, rounds, watch)
    medians = {name: median(times) * 1e6 for name, times in took.items()}
    best = min(medians, key=lambda name: (name == "ours", medians[name]))
    outcome.rows.append(Row("redis_single_auto", medians["ours"], medians[best], "µs/check", best, Better.LOWER))


def _latencies(took: list[float], tasks: Tasks, keys: list[str]) -> None:
    took += tasks.latencies(keys)
