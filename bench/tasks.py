"""Contestants with connections, each on an event loop of its own, asked by many tasks at once."""

from __future__ import annotations

import asyncio
import time
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import uvloop
from bench.measure import guard

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence
    from typing import Any, Self

    from bench.loops import AsyncLoop
    from bench.redis_peers import AsyncConnected
    from bench.server import Server

    Opening: TypeAlias = AbstractAsyncContextManager[AsyncLoop]

T = TypeVar("T")


class Tasks:
    """A loop that is connected, on an event loop of its own (uvloop's; all contestants run on it)."""

    def __init__(self, opening: Opening) -> None:
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._open = AsyncExitStack()
        self._loop = self._run(self._open.enter_async_context(opening))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._run(self._open.aclose())
        self._runner.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def ask(self, keys: Sequence[str], tasks: int) -> int:
        """Hit all keys, shared out among so many tasks, each one after the other; how many were admitted."""

        async def together() -> int:
            return sum(await asyncio.gather(*(self._loop(keys[first::tasks]) for first in range(tasks))))

        return self._run(together())

    def latencies(self, keys: Sequence[str]) -> list[float]:
        """Hit all keys, one after the other; the seconds that each took."""

        async def one_by_one() -> list[float]:
            took = []
            for key in keys:
                began = time.perf_counter()
                await self._loop((key,))
                took.append(time.perf_counter() - began)
            return took

        return self._run(one_by_one())


def check_it_limits(contestant: AsyncConnected, server: Server) -> None:
    """Stop unless a contestant admits exactly 5 of 10 under a limit of 5, asked by ten tasks at once."""
    server.flush()
    with Tasks(contestant.make(5)) as limiter:
        guard(contestant.name, limiter.ask(["one-key"] * 10, 10), 5)
