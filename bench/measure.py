"""Timing several contestants fairly on a machine that is never quite quiet.

All contestants run in turn, round after round, so that a slow minute of the machine falls
on all of them; each round begins with another one. The first round only warms up. What
counts is the best round (disturbances only ever add time); the median is kept beside it.

The garbage collector stays on, as in real programs. Everything that exists before a race
is frozen, so that no competitor pays for the collector's walk over the objects of another.
"""

from __future__ import annotations

import asyncio
import gc
import time
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from typing import Self

T = TypeVar("T")

REST_SECONDS = 0.02
"""Between two runs, so that a thread one contestant has left behind (limits' expiry timer) is done."""


class Watch(Protocol):
    """Receives the progress of a run."""

    def begin(self, text: str, steps: int) -> None:
        """A new race of so many runs."""

    def step(self) -> None:
        """One run is done."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds per operation, one for each round."""

    rounds: tuple[float, ...]

    @property
    def best(self) -> float:
        """The least disturbed round."""
        return min(self.rounds)

    @property
    def median(self) -> float:
        """The usual round."""
        return median(self.rounds)


def race(
    text: str, runs: Mapping[str, Callable[[], object]], operations: int, rounds: int, watch: Watch
) -> dict[str, Timing]:
    """Time every contestant's run, which does so many operations, once in each round."""
    order = list(runs)
    timings: dict[str, list[float]] = {name: [] for name in order}
    watch.begin(text, (rounds + 1) * len(order))
    gc.collect()
    gc.freeze()
    for turn in range(rounds + 1):
        for name in order[turn % len(order) :] + order[: turn % len(order)]:
            time.sleep(REST_SECONDS)
            gc.collect()
            began = time.perf_counter()
            runs[name]()
            timings[name].append((time.perf_counter() - began) / operations)
            watch.step()
    gc.unfreeze()
    return {name: Timing(tuple(times[1:])) for name, times in timings.items()}


class DoesNotLimit(Exception):
    """A contestant that does not do its work must not be timed."""


def guard(name: str, admitted: int, expected: int) -> None:
    """Stop if a contestant admitted something else than it should have."""
    if admitted != expected:
        msg = f"{name} admitted {admitted} where {expected} should have passed"
        raise DoesNotLimit(msg)


def guarded(name: str, loop: Callable[[Sequence[T]], int], asked: Sequence[T], expected: int) -> Callable[[], None]:
    """A run that asks for everything once and must admit so many."""
    return lambda: guard(name, loop(asked), expected)


class EventLoops:
    """An event loop for each contestant, so that tasks one leaves behind do not run in another's time."""

    def __init__(self) -> None:
        self._runners: list[asyncio.Runner] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        for runner in self._runners:
            runner.close()

    def own(self, loop: Callable[[Sequence[T]], Awaitable[int]]) -> Callable[[Sequence[T]], int]:
        """The loop as a plain function that runs on an event loop of its own."""
        runner = asyncio.Runner()
        self._runners.append(runner)

        async def awaited(asked: Sequence[T]) -> int:
            return await loop(asked)

        return lambda asked: runner.run(awaited(asked))
