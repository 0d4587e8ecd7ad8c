"""A limited API without a network: headgate's own limiter behind an httpx transport, in virtual time."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

import httpx

from headgate import Limiter, Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate import Verdict
    from headgate.testing import FakeClock


def all_headers(verdict: Verdict) -> dict[str, str]:
    """All headers that headgate sends."""
    return verdict.headers()


def only_x(verdict: Verdict) -> dict[str, str]:
    """The headers of most APIs: nothing about the window."""
    return {name: value for name, value in verdict.headers().items() if name.startswith("X-") or name == "Retry-After"}


def nothing(verdict: Verdict) -> dict[str, str]:
    """No headers, as some APIs do."""
    return {} if verdict.allowed else {"X-Nothing": "429 is all I say"}


class LimitedApi(httpx.AsyncBaseTransport):
    """Answers after a delay, and refuses calls above its limit."""

    def __init__(
        self,
        clock: FakeClock,
        limit: str,
        algorithm: str = "sliding_window_log",
        headers: Callable[[Verdict], dict[str, str]] = all_headers,
        latency: float = 0.005,
    ) -> None:
        rules = {"rules": [{"name": "all", "per": ["global"], "limits": [limit], "algorithm": algorithm}]}
        self._limiter = Limiter.open("memory://", rules=rules, clock=clock)
        self._headers = headers
        self._latency = latency
        self._chance = Random(1)
        self.clock = clock
        self.answers: list[int] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Decide at some time between request and answer."""
        await asyncio.sleep(self._latency * self._chance.random())
        verdict = await self._limiter.check(Request(path=request.url.path))
        self.answers.append(200 if verdict.allowed else 429)
        await asyncio.sleep(self._latency * self._chance.random())
        return httpx.Response(self.answers[-1], headers=self._headers(verdict))

    @property
    def refused(self) -> int:
        """How many calls were refused."""
        return self.answers.count(429)
