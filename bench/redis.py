"""The Redis part: hits beside the peers, what they cost the server, and what counters weigh there."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench import redis_bytes, redis_core, redis_denied, redis_hits, redis_single, redis_threads
from bench.rows import Outcome
from bench.server import programs, running

if TYPE_CHECKING:
    from bench.measure import Watch

PART = "redis"


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is done. One run of a contestant is `hits` hits."""

    keys: int = 4_000
    hits: int = 4_000
    rounds: int = 5
    single: int = 1_000
    """Checks, one at a time, in each round."""
    tasks: tuple[int, ...] = (1, 8, 64, 256, 1_024)
    a_few_counters: int = 10_000
    counters: int = 1_000_000


QUICK = Scale(keys=20, hits=40, rounds=1, single=20, tasks=(1, 8), a_few_counters=100, counters=2_000)


def run(watch: Watch, *, quick: bool = False) -> Outcome:
    """Measure everything of this part; `quick` only shows that it works."""
    scale = QUICK if quick else Scale()
    keys = [f"u_{number:010}" for number in range(scale.keys)]
    outcome = Outcome(PART)
    with ExitStack() as stack:
        servers = [stack.enter_context(running(program)) for program in programs()]
        server = servers[0]
        redis_hits.many_keys(server, keys, scale.hits, scale.rounds, watch, outcome)
        redis_single.single_latency(server, keys[: scale.single], scale.rounds, watch, outcome)
        redis_hits.more_tasks(server, keys, scale.tasks, scale.rounds, watch, outcome)
        redis_denied.flood(server, scale.hits, scale.rounds, watch, outcome)
        redis_threads.threads(server, keys, scale.hits, scale.rounds, watch, outcome)
        redis_core.core_share(server, keys, scale.rounds, watch, outcome)
        redis_core.own_connection(server, keys, scale.rounds, watch, outcome)
        # A second server takes as long again, so it is content with a tenth of the keys.
        sizes = [scale.counters, *[scale.counters // 10] * (len(servers) - 1)]
        counters = [
            redis_bytes.counters(each, scale.a_few_counters, size, watch, outcome)
            for each, size in zip(servers, sizes, strict=True)
        ]
        logs = [redis_bytes.log(each, watch, outcome) for each in servers]
    outcome.rows.append(max(counters, key=lambda row: row.ratio))
    outcome.rows.append(max(logs, key=lambda row: row.ratio))
    return outcome
