"""Callers that give up or are cancelled: no caller ever gets an answer that was meant for another."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import TYPE_CHECKING, Final

import uvloop

from headgate import Limiter
from headgate.core.decision import Source
from headgate.testing import Fault, FaultProxy

if TYPE_CHECKING:
    from tests.chaos.figures import Figures
    from tests.support.valkey import Server

_CANCELLED: Final = 100_000
_AT_ONCE: Final = 1_000
_LATE: Final = 20_000


async def _own_answer(limiter: Limiter, number: int) -> Source:
    """Ask for a key with an amount of its own, so that an answer to another caller shows."""
    verdict = await limiter.hit(f"own{number}", f"{number + 1}/hour", algorithm="fixed_window")
    if verdict.source is Source.STORE:
        assert (verdict.limit, verdict.remaining) == (number + 1, number)
    return verdict.source


def test_a_hundred_thousand_cancelled_checks(valkey: Server, figures: Figures) -> None:
    """However many checks are cancelled, before, while and after they are sent, the others get their own answers."""

    async def scenario() -> Counter[object]:
        chance = random.Random(7)
        seen: Counter[object] = Counter()
        async with Limiter.open(f"{valkey.url}?deadline_ms=60000") as limiter:
            await limiter.hit("first", "5/hour")
            number = 0
            while seen[asyncio.CancelledError] < _CANCELLED:
                tasks = [asyncio.create_task(_own_answer(limiter, number + each)) for each in range(_AT_ONCE)]
                number += _AT_ONCE
                victims = chance.sample(tasks, _AT_ONCE * 3 // 4)
                for turn in range(3):  # not yet asked, not yet sent, in flight
                    for task in victims[turn::3]:
                        task.cancel()
                    await asyncio.sleep(0)
                results = await asyncio.gather(*tasks, return_exceptions=True)
                seen.update(type(each) if isinstance(each, BaseException) else each for each in results)
        return seen

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        seen = runner.run(scenario())
    assert set(seen) == {asyncio.CancelledError, Source.STORE}
    figures.note("cancelled checks", "cancelled", seen[asyncio.CancelledError], "")
    figures.note("cancelled checks", "live beside them, all right", seen[Source.STORE], "")


def test_answers_that_come_too_late(valkey: Server, figures: Figures) -> None:
    """An answer that comes after the deadline is dropped: neither its own caller nor another one gets it."""

    async def scenario() -> Counter[object]:
        chance = random.Random(7)
        seen: Counter[object] = Counter()
        with FaultProxy(path=valkey.socket) as proxy:
            async with Limiter.open(f"{proxy.url}?deadline_ms=20&probe_ms=20") as limiter:
                number = 0
                while seen.total() < _LATE:
                    slow = chance.choice((0, 0, 0, 0.01, 0.02, 0.03))
                    await asyncio.to_thread(proxy.play, Fault.SLOW if slow else Fault.NONE, seconds=slow)
                    tasks = []
                    for _ in range(chance.randrange(1, 100)):
                        tasks.append(asyncio.create_task(_own_answer(limiter, number)))
                        number += 1
                        if chance.random() < 0.1:
                            await asyncio.sleep(chance.random() / 500)
                        if chance.random() < 0.1:
                            chance.choice(tasks).cancel()
                    results = await asyncio.gather(*tasks, return_exceptions=True)
                    seen.update(type(each) if isinstance(each, BaseException) else each for each in results)
        return seen

    seen = asyncio.run(scenario())
    assert set(seen) == {asyncio.CancelledError, Source.STORE, Source.DEGRADED_ALLOW}
    figures.note("answers after the deadline", "given up", seen[Source.DEGRADED_ALLOW], "")
    figures.note("answers after the deadline", "in time, all right", seen[Source.STORE], "")
