"""Bare hits on Redis from the threads of a synchronous program."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import cycle, islice
from typing import TYPE_CHECKING

from bench.hits import DEFAULT, PLENTY, against_best, figures
from bench.measure import guard, guarded, race
from bench.peers import OURS
from bench.redis_peers import contestants

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.loops import Loop
    from bench.measure import Watch
    from bench.rows import Outcome
    from bench.server import Server

THREADS = 8


def threads(server: Server, keys: list[str], count: int, rounds: int, watch: Watch, outcome: Outcome) -> None:
    """All keys in turn by eight threads, and by one."""
    asked = list(islice(cycle(keys), count))
    competitors = contestants(server.url)
    for each in competitors:
        server.flush()
        with each.make(5) as loop, ThreadPoolExecutor(THREADS) as pool:
            guard(each.name, _shared_out(loop, pool)(["one-key"] * 16), 5)
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(THREADS))
        connected = {each.name: stack.enter_context(each.make(PLENTY)) for each in competitors}
        runs = {name: guarded(name, _shared_out(loop, pool), asked, count) for name, loop in connected.items()}
        timings = race(f"{THREADS} threads", runs, count, rounds, watch)
        fewer = asked[: count // 4]
        alone = {name: guarded(name, loop, fewer, len(fewer)) for name, loop in connected.items()}
        by_one = race("1 thread", alone, len(fewer), rounds, watch)
    outcome.figures["threads"] = figures(competitors, timings)
    outcome.rows.append(against_best("redis_sync_threads", competitors, timings))
    without_choice = [each for each in competitors if each.library != OURS or each.algorithm == DEFAULT]
    outcome.rows.append(against_best("redis_sync_threads_default", without_choice, timings))
    outcome.rows.append(against_best("redis_sync_one_thread", competitors, by_one))


def _shared_out(loop: Loop, pool: ThreadPoolExecutor) -> Loop:
    """The loop, by eight threads that each take their part of the keys."""

    def shared(keys: Sequence[str]) -> int:
        return sum(pool.map(loop, [keys[first::THREADS] for first in range(THREADS)]))

    return shared
