"""One outage under steady load: what is done to the server, and what its callers notice of it."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.chaos.load import Load, Sample, Told, share

from headgate import Limiter
from headgate.core.decision import Source

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from tests.chaos.figures import Figures

    from headgate.core.verdict import Verdict

DEADLINE: Final = 0.05
RATE: Final = 1_000
_BEFORE: Final = 1.0
_AFTER: Final = 3.0
_KEYS: Final = 500
LIMIT: Final = "1000000/hour"


class Outage(NamedTuple):
    """What was seen of an outage."""

    during: list[Sample]
    after: list[Sample]
    """From two seconds after its end."""
    opened_after: float
    """Seconds from the first answer that was not the store's until the circuit opened."""
    enforcing_after: float
    """Seconds from the end of the outage until the store answered again."""
    lag: float
    """How late the event loop itself was at worst meanwhile."""
    why: str
    """What the log said when the circuit opened."""


async def outage(
    url: str, seconds: float, begin: Callable[[], None], end: Callable[[], None], rate: int = RATE, crowd: int = 0
) -> Outage:
    """Let an outage come and go while checks arrive, none of which may raise anything.

    Beside them a `crowd` asks as fast as it is answered.
    """
    async with Limiter.open(url) as limiter, _crowd(limiter, crowd):

        def ask(number: int) -> Awaitable[Verdict]:
            return limiter.hit(f"k{number % _KEYS}", LIMIT)

        await limiter.hit("first", LIMIT)
        with Told() as told:
            async with Load(ask, rate) as load:
                await asyncio.sleep(_BEFORE)
                await load.steady()
                began = time.perf_counter()
                await asyncio.to_thread(begin)
                await asyncio.sleep(seconds)
                await asyncio.to_thread(end)
                ended = time.perf_counter()
                await asyncio.sleep(_AFTER)
    if load.errors:
        raise load.errors[0]
    during = load.between(began, ended)
    missed = min(sample.asked + sample.wait for sample in during if sample.source is not Source.STORE)
    away, why = told.first("circuit open", began)
    told.first("circuit closed", ended)
    back = [sample.asked for sample in load.between(ended, ended + 60) if sample.source is Source.STORE]
    return Outage(
        during,
        load.between(ended + 2, ended + 60),
        max(0.0, away - missed),
        min(back, default=ended + 60) - ended,
        load.worst_lag(began, ended),
        why,
    )


@asynccontextmanager
async def _crowd(limiter: Limiter, number: int) -> AsyncIterator[None]:
    """So many who ask all the time."""

    async def keep_asking(key: str) -> None:
        while True:
            await limiter.hit(key, LIMIT)
            await asyncio.sleep(0)  # where the circuit is open there is nothing to wait for

    asking = [asyncio.create_task(keep_asking(f"crowd {each}")) for each in range(number)]
    try:
        yield
    finally:
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)


def judge(case: str, seen: Outage, figures: Figures, *, is_long: bool = False) -> None:
    """Hold what was seen against what is promised, and keep the figures.

    Waits are judged without the time for which the machine ran other programs instead.
    """
    waits = [sample.wait for sample in seen.during]
    own_waits = [sample.wait - sample.queued for sample in seen.during]
    figures.note(case, "checks", len(waits), "")
    figures.note(case, "event loop late at worst", 1000 * seen.lag, "ms")
    figures.note(case, "longest wait", 1000 * max(waits), "ms")
    figures.note(case, "p99.9 of waits", 1000 * share(waits, 0.999), "ms")
    if is_long:  # in a short one, those who came before the breaker opened are more than one in a hundred
        figures.note(case, "p99 of waits", 1000 * share(waits, 0.99), "ms")
        figures.check(case, "p99 of waits, machine aside", 1000 * share(own_waits, 0.99), "ms", 10)
    figures.check(case, "p99.9 of waits, machine aside", 1000 * share(own_waits, 0.999), "ms", 1000 * DEADLINE + 25)
    figures.check(case, "circuit open after first miss", 1000 * seen.opened_after, "ms", 250)
    figures.check(case, "enforcing again after", seen.enforcing_after, "s", 2)
    by_store = sum(sample.source is Source.STORE for sample in seen.after)
    assert by_store >= 0.9 * len(seen.after)  # not all, because a busy machine makes servers late too
