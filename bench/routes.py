"""The routes part: one limited view in FastAPI, Flask, Django and Django REST framework, in memory and on Redis.

Applications are called without a server, so that nothing but the framework and the limiter is timed. `…_added` is what
a limit adds to a call: the time of the limited application less that of the same one without a limit. In memory that is
time of the processor, on Redis time that passes. `…_redis_plain` is how far the pace is from that of an application
without a limit, which no limiter can exceed.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING

from bench.measure import Timing, guard, race
from bench.rows import Better, Outcome, Row
from bench.server import programs, running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.measure import Watch

PART = "routes"
PLENTY = 1_000_000
PLAIN = "plain"
PEERS = {
    "fastapi": ("slowapi", "slowapi_bare", "fastapi_limiter"),
    "flask": ("flask_limiter", "flask_limiter_bare"),
    "django": ("django_ratelimit",),
    "drf": ("rest_framework",),
}
"""By framework: those with headers first; `bare` is without."""
_ROUNDS = 5
_MAX_SECONDS = 120
"""For one round of one application: the part ends with an error if one hangs."""


def run(watch: Watch, *, quick: bool = False) -> Outcome:
    """Measure everything of this part; `quick` only shows that it works."""
    calls, rounds = (64, 1) if quick else (960, _ROUNDS)
    outcome = Outcome(PART)
    with running(programs()[0]) as server:
        for framework, peers in PEERS.items():
            names = ("headgate", "headgate_bare", *peers)
            for store, url in (("memory", "memory"), ("redis", server.url)):
                if (framework, store) == ("fastapi", "redis"):
                    names = tuple(
                        name for name in names if name != "fastapi_limiter"
                    )  # its limiter waits for no server
                for name in names:
                    server.flush()
                    with _application(framework, name, url, 5) as ask:
                        guard(f"{framework}, {name}", ask(10)[0], 5)
                server.flush()
                timings = _raced(framework, names, url, calls, rounds, watch)
                outcome.figures[f"{framework}_{store}"] = [
                    {"name": name, "best": timing.best * 1e6, "median": timing.median * 1e6}
                    for name, timing in timings.items()
                ]
                outcome.rows.extend(_rows(framework, store, timings))
    return outcome


def _raced(
    framework: str, names: tuple[str, ...], url: str, calls: int, rounds: int, watch: Watch
) -> dict[str, Timing]:
    seconds: dict[str, list[float]] = {name: [] for name in (PLAIN, *names)}
    with ExitStack() as stack:
        asks = {name: stack.enter_context(_application(framework, name, url, PLENTY)) for name in seconds}
        runs = {name: _guarded(name, ask, calls, seconds[name]) for name, ask in asks.items()}
        timings = race(f"{framework}, {url.partition(':')[0]}", runs, calls, rounds, watch)
    return timings if url != "memory" else {name: Timing(tuple(each[1:])) for name, each in seconds.items()}


def _guarded(
    name: str, ask: Callable[[int], tuple[int, float]], calls: int, seconds: list[float]
) -> Callable[[], None]:
    def run() -> None:
        passed, took = ask(calls)
        guard(name, passed, calls)
        seconds.append(took / calls)

    return run


def _rows(framework: str, store: str, timings: dict[str, Timing]) -> list[Row]:
    """Each peer beside ours with as many headers as it has."""
    rows = []
    plain = timings[PLAIN]
    if store == "redis" and framework != "fastapi":  # fastapi_redis_plain is measured with a server
        ours = timings["headgate"]
        ratio = plain.median / ours.median
        name = f"{framework}_redis_plain"
        rows.append(Row(name, 1 / ours.best, 1 / plain.best, "requests/s", "no limits at all", median_ratio=ratio))
    for peer in PEERS[framework]:
        if peer not in timings:
            continue
        has_headers = peer in {"slowapi", "flask_limiter"}
        ours, theirs = timings["headgate" if has_headers else "headgate_bare"], timings[peer]
        name = f"{framework}_{store}_{peer}"
        if store == "redis":
            ratio = theirs.median / ours.median
            rows.append(Row(name, 1 / ours.best, 1 / theirs.best, "requests/s", peer, median_ratio=ratio))
        added = [(each.best - plain.best) * 1e6 for each in (ours, theirs)]
        ratio = (ours.median - plain.median) / (theirs.median - plain.median)
        rows.append(Row(f"{name}_added", *added, "µs/request", peer, Better.LOWER, median_ratio=ratio))
    return rows


@contextmanager
def _application(framework: str, name: str, url: str, amount: int) -> Iterator[Callable[[int], tuple[int, float]]]:
    """An application in a process of its own.

    The function calls it so often; it says how many calls passed, and how many seconds of the processor they took.
    """
    command = [sys.executable, "-m", "bench.route_apps", framework, name, url, str(amount)]
    with subprocess.Popen(  # noqa: S603 (our own)
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1]
    ) as process:

        def ask(calls: int) -> tuple[int, float]:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(f"{calls}\n")
            process.stdin.flush()
            bound = Timer(_MAX_SECONDS, process.kill)
            bound.start()
            answer = process.stdout.readline().split()
            bound.cancel()
            if not answer:
                msg = f"{framework}, {name}: it ended, or took more than {_MAX_SECONDS} s for {calls} calls"
                raise RuntimeError(msg)
            return int(answer[0]), float(answer[1])

        yield ask  # it ends with its input
