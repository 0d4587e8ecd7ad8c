"""Several processes whose callers wait for one key, and what each of them saw.

As a program it is one of the processes: it starts its waiters when it is told to, and prints what it saw as JSON.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate import Limiter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.core.verdict import Verdict

PATIENT: Final = "?deadline_ms=30000"
"""A busy machine is no outage."""
_SECOND: Final = 1_000_000
_SECONDS: Final = 300


class Seen(NamedTuple):
    """What one process saw."""

    order: list[int]
    """Its waiters as they were admitted, by their number."""
    admitted: list[int]
    """When the server admitted them, in microseconds."""
    refused: int
    """How often the first of them was refused, each time with a time to ask again."""
    early: int
    """How often it asked again before that time."""


def run_fleet(url: str, limit: str, algorithm: str, *, processes: int, waiters: int, cancelled: int = 0) -> list[Seen]:
    """Let `waiters` callers in each process wait for one key, of which the first `cancelled` are cancelled."""
    command = [sys.executable, str(Path(__file__)), url, limit, algorithm, str(waiters), str(cancelled)]
    running = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: S603 (ourselves)
        for _ in range(processes)
    ]
    try:
        for each in running:
            assert each.stdout is not None
            assert each.stdout.readline() == "ready\n"
        for each in running:
            assert each.stdin is not None
            each.stdin.write("go\n")
            each.stdin.flush()
        return [Seen(**json.loads(each.communicate(timeout=_SECONDS)[0])) for each in running]
    finally:
        for each in running:
            each.kill()
            each.wait()


def rate_of(times: Sequence[int], rate: float) -> float:
    """How fast admissions followed each other, as a share of `rate`.

    Measured between the most punctual admission of the first tenth and that of the last, so that a moment in which
    the machine was busy is not taken for the rate, while tokens that were lost on the way are noticed.
    """
    lateness = [time - index * _SECOND / rate for index, time in enumerate(times)]
    tenth = len(times) // 10
    first = min(range(tenth), key=lateness.__getitem__)
    last = min(range(len(times) - tenth, len(times)), key=lateness.__getitem__)
    return (last - first) / ((times[last] - times[first]) / _SECOND) / rate


async def _wait(url: str, limit: str, algorithm: str, waiters: int, cancelled: int) -> dict[str, Any]:
    async with Limiter.open(url) as limiter:
        order: list[int] = []
        admitted: list[int] = []
        refusals: list[float] = []
        early = 0
        ask = limiter.hit

        async def hit(*arguments: Any, **named: Any) -> Verdict:  # noqa: ANN401 (as `Limiter.hit`)
            nonlocal early
            early += bool(refusals) and time.monotonic() < refusals[-1]
            verdict = await ask(*arguments, **named)
            if verdict.allowed:
                admitted.append(verdict.decisions[0].at)
            else:
                refusals.append(time.monotonic() + (verdict.retry_after or 0))
            return verdict

        limiter.hit = hit  # type: ignore[method-assign] # to see every call

        async def one(number: int) -> None:
            await limiter.acquire("fleet", limit, algorithm=algorithm)
            order.append(number)

        await limiter.peek("fleet", limit, 0, algorithm=algorithm)
        print("ready", flush=True)  # noqa: T201 (tells the test)
        await asyncio.to_thread(sys.stdin.readline)
        tasks = [asyncio.create_task(one(number)) for number in range(waiters)]
        await asyncio.sleep(0.05 if cancelled else 0)
        for task in tasks[:cancelled]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, left
        assert limiter.acquirer._waiter._queues.waiting == 0
    return {"order": order, "admitted": admitted, "refused": len(refusals), "early": early}


if __name__ == "__main__":
    seen = asyncio.run(_wait(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])))
    print(json.dumps(seen))  # noqa: T201 (the result)
