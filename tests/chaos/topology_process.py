"""One process of a real deployment beside the simulated one: ``python -m tests.chaos.topology_process JSON``.

Requests come at random, at a rate, from a given moment on. Prints what it asked and was admitted in each window, and
how many counter operations it sent to the stores after the first window.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import uvloop

from headgate import Limiter, Request
from headgate.adapters.redis import RedisStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

_REQUEST = Request(method="GET", path="/api")
_operations: Counter[str] = Counter()


def _count(name: str) -> None:
    """Have every store count what goes to its server by a method."""
    real: Callable[[RedisStore, Sequence[object]], Awaitable[object]] = getattr(RedisStore, name)

    def counted(self: RedisStore, what: Sequence[object]) -> Awaitable[object]:
        _operations[name] += len(what)
        return real(self, what)

    setattr(RedisStore, name, counted)


async def _run(task: dict[str, Any]) -> None:
    chosen = random.Random(task["seed"])
    window, begins, windows = task["window"], task["begins"], task["windows"]
    offered: Counter[int] = Counter()
    admitted: Counter[int] = Counter()
    asking: set[asyncio.Task[None]] = set()

    async def ask(limiter: Limiter) -> None:
        is_allowed = (await limiter.check(_REQUEST)).allowed
        number = int((time.time() - begins) // window)
        offered[number] += 1
        admitted[number] += is_allowed

    options = {"region": task["region"], "regions": task["regions"]} if task["regions"] else {}
    async with Limiter.open(
        task["url"],
        task["rules"],
        deny_cache_mb=task["deny_cache_mb"],
        gossip_seconds=task["gossip_seconds"],
        **options,
    ) as limiter:
        due = begins + chosen.expovariate(task["rate"])
        before = 0
        is_counting = False
        while due < begins + windows * window:
            await asyncio.sleep(max(0.0, due - time.time()))
            if not is_counting and due >= begins + window:
                is_counting, before = True, _operations.total()
            each = asyncio.create_task(ask(limiter))
            asking.add(each)
            each.add_done_callback(asking.discard)
            due += chosen.expovariate(task["rate"])
        operations = _operations.total() - before
        late = time.time() - due
        await asyncio.gather(*asking)
    sys.stdout.write(json.dumps({"offered": offered, "admitted": admitted, "operations": operations, "late": late}))


if __name__ == "__main__":
    for method in ("take", "peek", "give_back"):
        _count(method)
    uvloop.run(_run(json.loads(sys.argv[1])))
