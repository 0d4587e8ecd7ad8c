"""Processes that spend one leased limit as fast as they may, and note each admission where a kill cannot lose it.

A holder's notes are a row of numbers in a file that is mapped into memory: what it wrote is there after `SIGKILL`.
"""

from __future__ import annotations

import asyncio
import mmap
import multiprocessing
import os
import signal
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from tests.support.waiting import wait_until

from headgate import Limiter
from headgate.core.decision import Source

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerProcess

ROWS: Final = 256
BINS: Final = 61
_LEASED, _HELD, _FIRST = 0, 1, 2
_COLUMNS: Final = _FIRST + 2 * BINS
_SIZE: Final = ROWS * _COLUMNS * 8
_AT_ONCE: Final = 20
"""So many hits, then a turn of the event loop, in which blocks are renewed."""
_PAUSE: Final = 0.002
"""Between them: a holder wants up to 10,000 units a second."""


class Orders(NamedTuple):
    """What all holders do."""

    url: str
    limit: str
    algorithm: str
    period: int
    """Microseconds; admissions are counted by period of the store's clock."""


class Holders:
    """Some holders and their notes. Use it in ``with``."""

    def __init__(self, file: Path, orders: Orders) -> None:
        """No holder yet."""
        file.write_bytes(bytes(_SIZE))
        self._file = file
        self._orders = orders
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([__name__])
        self._live: dict[int, ForkServerProcess] = {}
        self._next = 0

    def __enter__(self) -> Self:
        """Map the notes."""
        with self._file.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _SIZE)
        self._notes = memoryview(self._map).cast("q")
        return self

    def __exit__(self, *_exc: object) -> None:
        """Kill those that are left."""
        for row in list(self._live):
            self.kill(row)
        self._notes.release()
        self._map.close()

    def start(self) -> int:
        """One more holder; returns its row."""
        row, self._next = self._next, self._next + 1
        assert row < ROWS
        process = self._context.Process(target=hold, args=(str(self._file), row, self._orders), daemon=True)
        process.start()
        self._live[row] = process
        return row

    def kill(self, row: int) -> int:
        """`SIGKILL`; returns how much it held when it last noted that."""
        process = self._live.pop(row)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        process.close()
        return self._notes[row * _COLUMNS + _HELD]

    def stop(self) -> None:
        """Let all end in order, so that they give back what they hold."""
        for process in self._live.values():
            assert process.pid is not None
            os.kill(process.pid, signal.SIGTERM)
        for process in self._live.values():
            process.join()
            process.close()
        self._live.clear()

    def await_leases(self, row: int, many: int) -> None:
        """Wait until a holder was admitted so often from blocks."""
        wait_until(lambda: self._notes[row * _COLUMNS + _LEASED] >= many, "nothing was leased")

    @property
    def live(self) -> list[int]:
        """Their rows."""
        return list(self._live)

    @property
    def leased(self) -> int:
        """How many admissions were from blocks."""
        return sum(self._notes[row * _COLUMNS + _LEASED] for row in range(self._next))

    @property
    def held(self) -> int:
        """What live holders hold, as they last noted it."""
        return sum(self._notes[row * _COLUMNS + _HELD] for row in self._live)

    @property
    def admitted(self) -> Counter[int]:
        """How much was admitted in each period, by all holders there ever were."""
        found: Counter[int] = Counter()
        for row in range(self._next):
            for at in range(row * _COLUMNS + _FIRST, (row + 1) * _COLUMNS, 2):
                if self._notes[at]:
                    found[self._notes[at]] += self._notes[at + 1]
        return found

    def steady(self, seconds: float) -> int:
        """Wait until nothing was admitted for so long; returns how much was admitted altogether."""
        before, since = -1, time.monotonic()
        while time.monotonic() - since < seconds:
            now = self.admitted.total()
            if now != before:
                before, since = now, time.monotonic()
            time.sleep(0.02)
        return before


def hold(file: str, row: int, orders: Orders) -> None:
    """Be a holder."""
    with (
        Path(file).open("r+b") as opened,
        mmap.mmap(opened.fileno(), _SIZE) as mapped,
        memoryview(mapped) as raw,
        raw.cast("q") as notes,
    ):
        asyncio.run(_hold(notes, row * _COLUMNS, orders))


async def _hold(notes: memoryview, base: int, orders: Orders) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    is_window = orders.algorithm == "fixed_window"
    async with Limiter.open(orders.url) as limiter:
        while not ended.is_set():
            for _ in range(_AT_ONCE):
                made = await limiter.hit("hot", orders.limit, algorithm=orders.algorithm)
                if not made.allowed:
                    break
                decision = made.decisions[0]
                assert isinstance(decision.stamp, int | tuple)
                period = (decision.stamp if is_window else decision.at) // orders.period  # type: ignore[operator] # an int
                at = base + _FIRST + 2 * (period % BINS)
                if notes[at] != period:
                    notes[at], notes[at + 1] = period, 0
                notes[at + 1] += 1
                notes[base + _LEASED] += made.source is Source.LEASE
            notes[base + _HELD] = limiter.store.counts.outstanding_units  # type: ignore[attr-defined] # a Leased
            await asyncio.sleep(_PAUSE)


def burn(seconds: float) -> None:
    """Keep a processor busy."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        sum(range(10_000))


def burners(many: int, seconds: float) -> list[ForkServerProcess]:
    """Processes that want the processors for themselves."""
    context = multiprocessing.get_context("forkserver")
    started = [context.Process(target=burn, args=(seconds,), daemon=True) for _ in range(many)]
    for process in started:
        process.start()
    return started
