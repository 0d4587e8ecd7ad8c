"""Checks that come at a steady rate, whatever becomes of those before them, and what each caller waited."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from headgate.core.decision import Source

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from headgate.core.verdict import Verdict

_TICK: Final = 0.001
_PATIENCE: Final = 60.0


class Sample(NamedTuple):
    """One check: when it was asked, how long its caller waited, and what the answer was."""

    asked: float
    wait: float
    queued: float
    """How much of the wait the machine ran other programs while this one was ready to go on."""
    allowed: bool
    source: Source
    number: int


class Load:
    """An open loop of checks. Leave its block to stop it; checks that are still in flight are awaited."""

    def __init__(self, ask: Callable[[int], Awaitable[Verdict]], per_second: int) -> None:
        """`ask` makes the check of a number."""
        self._ask = ask
        self._per_second = per_second
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped = False
        self.samples: list[Sample] = []
        self.errors: list[BaseException] = []
        self.lags: list[tuple[float, float]] = []
        """How late the event loop itself was, and when."""

    async def __aenter__(self) -> Self:
        # To look through all that a test run holds in memory takes 40 ms, which is not the product's doing.
        gc.collect()
        gc.freeze()
        self._running = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_exc: object) -> None:
        self._stopped = True
        await self._running
        await asyncio.gather(*self._tasks)
        gc.unfreeze()
        self.samples.sort()

    async def _run(self) -> None:
        began = looked = time.perf_counter()
        number = 0
        while not self._stopped:
            await asyncio.sleep(_TICK)
            now = time.perf_counter()
            self.lags.append((now, now - looked - _TICK))
            looked = now
            while number < (now - began) * self._per_second:
                task = asyncio.create_task(self._one(number))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                number += 1

    async def _one(self, number: int) -> None:
        asked, before = time.perf_counter(), queued()
        try:
            verdict = await self._ask(number)
        except Exception as error:  # noqa: BLE001 (none may come, and all are reported)
            self.errors.append(error)
            return
        wait = time.perf_counter() - asked
        self.samples.append(Sample(asked, wait, queued() - before, verdict.allowed, verdict.source, number))

    async def steady(self) -> None:
        """Wait until the store answers every check."""
        async with asyncio.timeout(_PATIENCE):
            while any(sample.source is not Source.STORE for sample in self.samples[-self._per_second // 2 :]):  # noqa: ASYNC110 (nothing tells)
                await asyncio.sleep(0.1)

    def between(self, start: float, end: float) -> list[Sample]:
        """What was asked in a span of time."""
        return [sample for sample in self.samples if start <= sample.asked < end]

    def worst_lag(self, start: float, end: float) -> float:
        """How late the event loop was in a span of time, at worst."""
        return max((lag for at, lag in self.lags if start <= at < end), default=0.0)


def queued(thread: int | None = None) -> float:
    """Seconds that a thread (this one) was ready and the machine ran something else; 0 where that is unknown."""
    place = f"/proc/self/task/{thread}" if thread else "/proc/thread-self"
    try:
        with open(f"{place}/schedstat", encoding="ascii") as file:  # noqa: PTH123 (twice for every check)
            return int(file.read().split()[1]) / 1e9
    except OSError:
        return 0.0


def share(waits: Sequence[float], part: float) -> float:
    """The wait that this part of the callers did not exceed."""
    return sorted(waits)[min(len(waits) - 1, int(part * len(waits)))]


class Told(logging.Handler):
    """When the log said that a server is unavailable, and that it has recovered. Use it in ``with``."""

    def __init__(self) -> None:
        """Nothing yet."""
        super().__init__(logging.WARNING)
        self.lines: list[tuple[float, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`."""
        self.lines.append((time.perf_counter(), record.getMessage()))

    def __enter__(self) -> Self:
        logging.getLogger("headgate").addHandler(self)
        return self

    def __exit__(self, *_exc: object) -> None:
        logging.getLogger("headgate").removeHandler(self)

    def first(self, words: str, after: float) -> tuple[float, str]:
        """When something was first said after an instant, and the whole line."""
        said = [line for line in self.lines if words in line[1] and line[0] >= after]
        assert said, f"the log never said {words!r}"
        return min(said)
