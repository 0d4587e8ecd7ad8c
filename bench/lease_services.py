"""The services with leased rules: requests per second, and processor time per request."""

from __future__ import annotations

import time
from contextlib import ExitStack
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

from bench import http, rls
from bench.http_load import load, request
from bench.rls_load import ask, question
from bench.rows import Better, Outcome, Row
from bench.server import programs, running

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.measure import Watch

_EXACT, _LEASED, _AUTO, _MEMORY = "exact", "leased", "auto", "memory"


def run(watch: Watch, outcome: Outcome, *, quick: bool = False) -> None:
    """Both services: exact, leased and auto on one server, and in memory."""
    rounds = 1 if quick else 5
    with ExitStack() as stack:
        redis = stack.enter_context(running(programs()[0]))
        urls = {_EXACT: redis.url, _LEASED: redis.url, _AUTO: redis.url, _MEMORY: "memory://"}
        services = {kind: stack.enter_context(http.serving(http.CHECK, url, 1, kind)) for kind, url in urls.items()}
        asked, seconds = [request("u_hot")], 0.2 if quick else 2.0

        def load_http(kind: str) -> int:
            return len(load(services[kind].port, asked, seconds, 8 if quick else 64))

        _compare(
            "http_check_leased", load_http, {k: partial(_all, s) for k, s in services.items()}, rounds, watch, outcome
        )
    with ExitStack() as stack:
        redis = stack.enter_context(running(programs()[0]))
        patient = f"{redis.url}?deadline_ms=5000"
        urls = {_EXACT: patient, _LEASED: patient, _AUTO: patient, _MEMORY: "memory://"}
        servers = {kind: stack.enter_context(rls.serving("headgate", url, kind)) for kind, url in urls.items()}
        questions = [question("web", "203.0.113.7")] * (200 if quick else 20_000)

        def load_rls(kind: str) -> int:
            return ask(servers[kind].port, questions)[0]

        _compare("rls_leased", load_rls, {k: s.seconds for k, s in servers.items()}, rounds, watch, outcome)


def _all(service: http.Service) -> float:
    """What all processes of a service have taken of the processor."""
    return sum(service.seconds())


def _compare(
    name: str,
    load_once: Callable[[str], int],
    seconds: dict[str, Callable[[], float]],
    rounds: int,
    watch: Watch,
    outcome: Outcome,
) -> None:
    """The same load on each, in turn; the first round only warms up."""
    paces: dict[str, list[float]] = {kind: [] for kind in seconds}
    costs: dict[str, list[float]] = {kind: [] for kind in seconds}
    watch.begin(name, (rounds + 1) * len(seconds))
    for _ in range(rounds + 1):
        for kind, taken in seconds.items():
            before, began = taken(), time.perf_counter()
            answered = load_once(kind)
            paces[kind].append(answered / (time.perf_counter() - began))
            costs[kind].append((taken() - before) / max(1, answered) * 1e6)
            watch.step()
    kept = {kind: pace[1:] for kind, pace in paces.items()}
    ratio = median(kept[_LEASED]) / median(kept[_EXACT])
    against = "the same service with exact rules"
    outcome.rows.append(Row(name, max(kept[_LEASED]), max(kept[_EXACT]), "requests/s", against, median_ratio=ratio))
    cost = {kind: median(many[1:]) for kind, many in costs.items()}
    for kind in (_LEASED, _AUTO):
        row = f"{name}_cost" if kind == _LEASED else f"{name.removesuffix('_leased')}_auto_cost"
        outcome.rows.append(Row(row, cost[kind], cost[_MEMORY], "µs/request", "memory://", Better.LOWER))
    outcome.figures[name] = [
        {"spread": kind, "pace": median(kept[kind]), "microseconds": cost[kind]} for kind in seconds
    ]
