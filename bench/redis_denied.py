"""A flood on one used-up key on Redis: refusals a second, ours beside our own exact path and the peers'."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from bench.hits import DEFAULT, against_best, figures
from bench.measure import guard, race
from bench.peers import OURS, Contestant
from bench.redis_hits import TASKS
from bench.redis_peers import async_contestants, headgate_without_deny_cache
from bench.rows import pace
from bench.tasks import Tasks

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.measure import Watch
    from bench.redis_peers import AsyncConnected
    from bench.rows import Outcome
    from bench.server import Server

_KEY = "one-key"
_PEERS = ("limits", "throttled-py")


def flood(server: Server, count: int, rounds: int, watch: Watch, outcome: Outcome) -> None:
    """All of 64 tasks ask for a key that has nothing left."""
    exact: AsyncConnected = Contestant(
        "headgate exact", DEFAULT, partial(headgate_without_deny_cache, server.url, DEFAULT)
    )
    competitors = [each for each in async_contestants(server.url) if each.library in (OURS, *_PEERS)]
    server.flush()
    with ExitStack() as stack:
        runs = {}
        for each in (*competitors, exact):
            tasks = stack.enter_context(Tasks(each.make(1)))
            tasks.ask([_KEY], 1)  # the key is used up by the first that counts in the same way
            runs[each.name] = _run(each.name, tasks, count)
        timings = race("a flood of refusals", runs, count, rounds, watch)
    outcome.figures["refusals"] = figures([*competitors, exact], timings)
    ours = next(each for each in competitors if (each.library, each.algorithm) == (OURS, DEFAULT))
    outcome.rows.append(pace("deny_flood", timings[ours.name], timings[exact.name], exact.name))
    outcome.rows.append(against_best("deny_flood_peers", competitors, timings))


def _run(name: str, tasks: Tasks, count: int) -> Callable[[], None]:
    return lambda: guard(name, tasks.ask([_KEY] * count, TASKS), 0)
