"""One process that takes from a hot counter: ``python -m bench.lease_holder JSON``; says what it did as JSON."""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from typing import TYPE_CHECKING, Any

import uvloop

from headgate import Limiter, Request

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from headgate.core.verdict import Verdict

TASKS = 16
_OTHERS = 10_000
_AT_ONCE = 100
"""So many requests between two looks at the clock and a turn of the event loop."""


async def _main(task: dict[str, Any]) -> None:
    spread, limit = task["spread"], task.get("limit", "1000000000/day")
    algorithm = task.get("algorithm", "fixed_window")
    rules = [{"name": "api", "limits": limit, "algorithm": algorithm, "spread": spread}]
    share, times = task.get("share", 1.0), task.get("times", 0) // TASKS
    chosen = random.Random(15)
    keys = ["hot" if chosen.random() < share else f"k{chosen.randrange(_OTHERS)}" for _ in range(10_000)]
    request = Request(user="u1", method="GET", path="/api/search")
    done = {"requests": 0, "admitted": 0}
    async with Limiter.open(f"{task['url']}?deadline_ms=5000&spread={spread}", rules) as limiter:

        def ask(turn: int) -> Awaitable[Verdict]:
            if task["how"] == "check":
                return limiter.check(request)
            return limiter.hit(keys[turn % len(keys)], limit, algorithm=algorithm)

        await limiter.peek("warm", limit)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        began = time.perf_counter()
        ends = began + task["seconds"]
        await asyncio.gather(*[_worker(ask, first * 619, times, ends, done) for first in range(TASKS)])
        took = time.perf_counter() - began
    print(json.dumps({**done, "seconds": took}), flush=True)


async def _worker(
    ask: Callable[[int], Awaitable[Verdict]], first: int, times: int, ends: float, done: dict[str, int]
) -> None:
    turn = first
    while turn - first < times if times else time.perf_counter() < ends:
        for _ in range(min(_AT_ONCE, times - (turn - first)) if times else _AT_ONCE):
            verdict = await ask(turn)
            done["requests"] += 1
            done["admitted"] += verdict.allowed
            turn += 1
        await asyncio.sleep(0)


if __name__ == "__main__":
    uvloop.run(_main(json.loads(sys.argv[1])))
