"""Bare hits on memory stores: a key, a limit, an answer; ours beside the peers'."""

from __future__ import annotations

import asyncio
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

from bench.measure import EventLoops, Timing, Watch, guard, guarded, race
from bench.peers import OURS, Contestant, async_contestants, contestants
from bench.rows import Outcome, Row, pace

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bench.loops import AsyncLoop, Loop

PLENTY = 60_000
"""A limit that no key comes near. A sliding window log allows hardly more."""
WITHOUT_END = 10**9
DEFAULT = "sliding_window_counter"


def many_keys(keys: list[str], count: int, rounds: int, watch: Watch, outcome: Outcome) -> None:
    """All keys in turn, first with limits that allow everything, then with limits that are used up."""
    asked = list(islice(cycle(keys), count))
    competitors = contestants()
    for each in competitors:
        guard(each.name, each.make(5)(keys[:1] * 10), 5)
    admitting = {each.name: guarded(each.name, each.make(PLENTY), asked, count) for each in competitors}
    allowed = race("hits, all allowed", admitting, count, rounds, watch)
    refusing = {each.name: guarded(each.name, _used_up(each, keys), asked, 0) for each in competitors}
    denied = race("hits, all denied", refusing, count, rounds, watch)

    outcome.figures["hits"] = figures(competitors, allowed)
    outcome.figures["denied hits"] = figures(competitors, denied)
    outcome.rows.append(against_best("memory_hit", competitors, allowed))
    without_choice = [each for each in competitors if each.library != OURS or each.algorithm == DEFAULT]
    outcome.rows.append(against_best("memory_hit_default", without_choice, allowed))
    outcome.rows.append(against_best("memory_hit_denied", competitors, denied))
    for algorithm in dict.fromkeys(each.algorithm for each in competitors):
        same = [each for each in competitors if each.algorithm == algorithm]
        outcome.rows.append(against_best(f"memory_hit_{algorithm}", same, allowed))


def one_key(count: int, rounds: int, watch: Watch, outcome: Outcome) -> None:
    """The same without what many keys cost: limits looks at all of them every 10 ms."""
    asked = ["user:1"] * count
    steady = [each for each in contestants() if not each.keeps_log]
    runs = {each.name: guarded(each.name, each.make(WITHOUT_END), asked, count) for each in steady}
    timings = race("hits of one key", runs, count, rounds, watch)
    outcome.rows.append(against_best("memory_hit_one_key", steady, timings))


def with_await(keys: list[str], count: int, rounds: int, watch: Watch, outcome: Outcome) -> None:
    """All keys in turn, in asynchronous programs."""
    asked = list(islice(cycle(keys), count))
    competitors = async_contestants()
    for each in competitors:
        guard(each.name, asyncio.run(_awaited(each.make(5), keys[:1] * 10)), 5)
    with EventLoops() as loops:
        runs = {each.name: guarded(each.name, loops.own(each.make(PLENTY)), asked, count) for each in competitors}
        timings = race("hits with await, all allowed", runs, count, rounds, watch)
    outcome.figures["async hits"] = figures(competitors, timings)
    outcome.rows.append(against_best("memory_hit_async", competitors, timings))


def _used_up(contestant: Contestant[Loop], keys: list[str]) -> Loop:
    """A loop whose keys have nothing left."""
    loop = contestant.make(1)
    guard(contestant.name, loop(keys), len(keys))
    return loop


async def _awaited(loop: AsyncLoop, keys: Sequence[str]) -> int:
    return await loop(keys)


def against_best(name: str, rivals: Iterable[Contestant[Any]], timings: Mapping[str, Timing]) -> Row:
    """Our fastest among the rivals against the fastest of the others."""
    by_pace = sorted(rivals, key=lambda each: timings[each.name].best)
    ours = next(each for each in by_pace if each.library == OURS)
    best = next(each for each in by_pace if each.library != OURS)
    return pace(name, timings[ours.name], timings[best.name], best.name)


def figures(competitors: Iterable[Contestant[Any]], timings: Mapping[str, Timing]) -> list[dict[str, Any]]:
    """Hits a second of every competitor."""
    return [
        {
            "library": each.library,
            "algorithm": each.algorithm,
            "variant": each.variant,
            "best": 1 / timings[each.name].best,
            "median": 1 / timings[each.name].median,
        }
        for each in competitors
    ]
