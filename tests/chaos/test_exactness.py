"""Sixteen processes after the same limits: they are given what the limits allow, not one more, not one fewer."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from tests.chaos.crowd import NOW, Orders, capacity, narrow, wide

from headgate.adapters.redis import store_at
from headgate.core.meter import Algorithm

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.chaos.conftest import Place
    from tests.chaos.figures import Figures

PROCESSES: Final = 16
AT_ONCE: Final = 32
KEYS: Final = 100
MILLION: Final = 1_000_000
_FULL: Final = os.environ.get("CHAOS") == "full"
_ROOT: Final = Path(__file__).parents[2]


def _decisions(place: Place) -> int:
    return MILLION if _FULL or place.kind == "one server" else MILLION // 10


async def _crowd(orders: Orders, say: Callable[[str], None]) -> Counter[str]:
    """What all processes together were given, by key."""
    done: Counter[int] = Counter()

    async def one(number: int) -> Counter[str]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.chaos.crowd"),
            cwd=_ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=2**24,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(orders._replace(number=number)).encode() + b"\ngo\n")
        given: Counter[str] = Counter()
        async for line in process.stdout:
            found = json.loads(line)
            if isinstance(found, dict):
                given.update(found)
            else:
                done[number] = found
        assert await process.wait() == 0
        return given

    async def tell() -> None:
        while True:
            await asyncio.sleep(10)
            say(f"{orders.algorithm}: {sum(done.values()):,} of {PROCESSES * orders.decisions:,} decisions")

    telling = asyncio.create_task(tell())
    try:
        return sum(await asyncio.gather(*[one(number) for number in range(PROCESSES)]), Counter())
    finally:
        telling.cancel()


async def _remaining(url: str, orders: Orders) -> dict[str, int]:
    """What is left of every limit, by key."""
    store = store_at(f"{url}?deadline_ms=60000", clock=lambda: NOW)
    hits = [each(orders, number) for each in (narrow, wide) for number in range(orders.keys)]
    left = {hit.key: (await store.peek([hit._replace(cost=0, holder="looks")]))[0].remaining for hit in hits}
    await store.close()
    return left


@pytest.mark.parametrize("algorithm", Algorithm)
def test_a_crowd_gets_exactly_the_limit(
    place: Place, algorithm: Algorithm, figures: Figures, say: Callable[[str], None]
) -> None:
    """Of every limit, 16 processes together are given exactly what one alone would be, on every set-up."""
    decisions = _decisions(place) // PROCESSES
    amount = PROCESSES * decisions // KEYS // 4
    orders = Orders(place.url, algorithm, 0, decisions, AT_ONCE, KEYS, amount, is_apart=False)
    began = time.perf_counter()
    admitted = asyncio.run(_crowd(orders, say))
    took = time.perf_counter() - began
    expected = capacity(narrow(orders, 0))
    given = [admitted[narrow(orders, number).key] for number in range(KEYS)]
    case = f"{PROCESSES} processes, {place.kind}, {algorithm}"
    figures.note(case, "decisions", PROCESSES * decisions, "")
    figures.note(case, "decisions a second, start included", PROCESSES * decisions / took, "")
    figures.check(case, "admitted over a limit", max(given) - expected, "", 0)
    figures.check(case, "not admitted below a limit", expected - min(given), "", 0)
    left = asyncio.run(_remaining(place.url, orders))
    beside = wide(orders, 0).meter.amount
    assert all(left[narrow(orders, number).key] == 0 for number in range(KEYS))
    assert all(left[key] == beside - admitted[key] for key in left if ":wide:" in key)


@pytest.mark.parametrize("place", ["cluster", "ring"], indirect=True)
@pytest.mark.parametrize("algorithm", [each for each in Algorithm if each is not Algorithm.CONCURRENCY])
def test_a_crowd_over_several_servers(
    place: Place, algorithm: Algorithm, figures: Figures, say: Callable[[str], None]
) -> None:
    """Requests over several slots never get more than a limit; what they miss is at most what is in flight."""
    decisions = (MILLION if _FULL else MILLION // 50) // PROCESSES
    amount = PROCESSES * decisions // KEYS // 4
    orders = Orders(place.url, algorithm, 0, decisions, AT_ONCE, KEYS, amount, is_apart=True)
    admitted = asyncio.run(_crowd(orders, say))
    shared = wide(orders, 0)
    left = asyncio.run(_remaining(place.url, orders))
    case = f"several slots, {place.kind}, {algorithm}"
    figures.note(case, "decisions", PROCESSES * decisions, "")
    over = max(admitted[key] - (shared.meter.amount if key == shared.key else amount) for key in left)
    figures.check(case, "admitted over a limit", max(0, over), "", 0)
    most_in_flight = PROCESSES * AT_ONCE * 3
    figures.check(case, "not admitted below the limit", left[shared.key], "", most_in_flight)
    for key in left:
        counted = (shared.meter.amount if key == shared.key else amount) - left[key]
        if algorithm is Algorithm.LEAKY_BUCKET and key != shared.key:
            # A position with others behind it in the queue cannot be refunded: too much is counted, never too little.
            assert counted >= admitted[key]
        else:
            assert counted == admitted[key]
