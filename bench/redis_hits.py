"""Bare hits on Redis: how many a second, how long one takes, and what it costs the server."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import cycle, islice
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

from bench.hits import DEFAULT, PLENTY, against_best, figures
from bench.measure import guard, race
from bench.peers import OURS, Contestant
from bench.redis_peers import async_contestants
from bench.rows import Better, Outcome, Row
from bench.tasks import Tasks, check_it_limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from bench.measure import Watch
    from bench.redis_peers import AsyncConnected
    from bench.server import Server

TASKS = 64


def many_keys(server: Server, keys: list[str], count: int, rounds: int, watch: Watch, outcome: Outcome) -> None:
    """All keys in turn by 64 tasks; then the best of each library with fewer and with more tasks."""
    asked = list(islice(cycle(keys), count))
    competitors = async_contestants(server.url)
    for each in competitors:
        check_it_limits(each, server)
    with _all_connected(competitors, server) as connected:
        runs = {name: _run(name, tasks, asked, TASKS) for name, tasks in connected.items()}
        timings = race(f"{TASKS} tasks", runs, count, rounds, watch)
        _latency(competitors, connected, asked, rounds, watch, outcome)
        _server_cost(server, competitors, runs, count, watch, outcome)
    outcome.figures["async hits"] = figures(competitors, timings)
    outcome.rows.append(against_best("redis_async_many_keys", competitors, timings))
    without_choice = [each for each in competitors if each.library != OURS or each.algorithm == DEFAULT]
    outcome.rows.append(against_best("redis_async_default", without_choice, timings))
    for algorithm in dict.fromkeys(each.algorithm for each in competitors):
        same = [each for each in competitors if each.algorithm == algorithm]
        outcome.rows.append(against_best(f"redis_async_{algorithm}", same, timings))


def more_tasks(
    server: Server, keys: list[str], counts: Sequence[int], rounds: int, watch: Watch, outcome: Outcome
) -> None:
    """Our default and the fastest of each library, by fewer and by more tasks."""
    table = outcome.figures["async hits"]
    best = {row["library"]: row for row in sorted(table, key=lambda row: row["best"])}
    chosen = [
        each
        for each in async_contestants(server.url)
        if (each.algorithm, each.variant) == (best[each.library]["algorithm"], best[each.library]["variant"])
        or (each.library, each.algorithm) == (OURS, DEFAULT)
    ]
    outcome.figures["tasks"] = []
    for tasks in counts:
        with _all_connected(chosen, server) as connected:
            runs = {name: _run(name, each, keys, tasks) for name, each in connected.items()}
            timings = race(f"{tasks} task{'s' * (tasks > 1)}", runs, len(keys), rounds, watch)
        outcome.figures["tasks"] += [{**row, "tasks": tasks} for row in figures(chosen, timings)]
        outcome.rows.append(against_best(f"redis_async_{tasks}_tasks", chosen, timings))


@contextmanager
def _all_connected(competitors: Iterable[AsyncConnected], server: Server) -> Iterator[dict[str, Tasks]]:
    """All competitors on an empty server, with a limit that no key comes near."""
    server.flush()
    with ExitStack() as stack:
        yield {each.name: stack.enter_context(Tasks(each.make(PLENTY))) for each in competitors}


def _run(name: str, connected: Tasks, asked: Sequence[str], tasks: int) -> Callable[[], None]:
    """A run that asks for everything once, which must all be admitted."""
    return lambda: guard(name, connected.ask(asked, tasks), len(asked))


def _latency(
    competitors: Sequence[AsyncConnected],
    connected: Mapping[str, Tasks],
    asked: Sequence[str],
    rounds: int,
    watch: Watch,
    outcome: Outcome,
) -> None:
    """One check at a time: what the median one takes, in microseconds."""
    took: dict[str, list[float]] = {each.name: [] for each in competitors}
    a_few = asked[: max(2, len(asked) // 20)]
    runs = {name: partial(_note, took[name], tasks, a_few) for name, tasks in connected.items()}
    race("one at a time", runs, len(a_few), rounds, watch)
    medians = {name: median(times) * 1e6 for name, times in took.items()}
    outcome.figures["latency"] = [
        {**_named(each), "median": medians[each.name], "p99": quantiles(took[each.name], n=100)[98] * 1e6}
        for each in competitors
    ]
    outcome.rows.append(_cheapest("redis_single_peer", competitors, medians))


def _note(took: list[float], tasks: Tasks, keys: Sequence[str]) -> None:
    took += tasks.latencies(keys)


def _server_cost(
    server: Server,
    competitors: Sequence[AsyncConnected],
    runs: Mapping[str, Callable[[], None]],
    count: int,
    watch: Watch,
    outcome: Outcome,
) -> None:
    """What a check of 64 tasks takes in the server: in the script or command alone, and with all around it."""
    scripts, all_in_all = {}, {}
    watch.begin("server time", len(runs))
    for name, run in runs.items():
        server.ask("CONFIG", "RESETSTAT")
        before = server.cpu_seconds()
        run()
        scripts[name] = server.script_microseconds() / count
        all_in_all[name] = (server.cpu_seconds() - before) / count * 1e6
        watch.step()
    outcome.figures["server"] = [
        {**_named(each), "script": scripts[each.name], "cpu": all_in_all[each.name]} for each in competitors
    ]
    outcome.rows.append(_cheapest("redis_server_script", competitors, scripts))
    outcome.rows.append(_cheapest("redis_server_cpu", competitors, all_in_all))


def _cheapest(name: str, competitors: Iterable[AsyncConnected], costs: Mapping[str, float]) -> Row:
    """Our cheapest against the cheapest of the others, in microseconds."""
    by_cost = sorted(competitors, key=lambda each: costs[each.name])
    ours = next(each for each in by_cost if each.library == OURS)
    best = next(each for each in by_cost if each.library != OURS)
    return Row(name, costs[ours.name], costs[best.name], "µs/check", best.name, Better.LOWER)


def _named(contestant: Contestant[Any]) -> dict[str, Any]:
    return {name: getattr(contestant, name) for name in ("library", "algorithm", "variant")}
