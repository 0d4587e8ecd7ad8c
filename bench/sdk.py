"""The SDK part: 20 tasks that make 1,000 calls to a server limited to 50 a second, beside a naive client."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
from bench.limited_server import LIMIT
from bench.rows import Better, Outcome, Row

from headgate.client import AsyncRateLimitTransport, Pacers, RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.measure import Watch

PART = "sdk"
TASKS = 20
CALLS = 1_000
_QUICK_CALLS = 60
_NAIVE_REST = 0.05
_FREE = httpx.Limits(max_connections=TASKS)


class Counted(httpx.AsyncBaseTransport):
    """Notes the time and the status of every answer."""

    def __init__(self) -> None:
        self._transport = httpx.AsyncHTTPTransport(limits=_FREE)
        self.answers: list[tuple[float, int]] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Pass it on."""
        response = await self._transport.handle_async_request(request)
        self.answers.append((time.monotonic(), response.status_code))
        return response

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()


@contextmanager
def _server() -> Iterator[str]:
    command = [sys.executable, "-m", "bench.limited_server"]
    root = Path(__file__).parents[1]
    with subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 (our own words)
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/"
        process.communicate()


async def _calls(client: httpx.AsyncClient, url: str, calls: int) -> None:
    """All calls, shared out among the tasks; who is refused tries again a moment later."""
    left = list(range(calls))

    async def work() -> None:
        while left:
            left.pop()
            while (await client.get(url)).status_code != HTTPStatus.OK:  # noqa: ASYNC110 (no event tells)
                await asyncio.sleep(_NAIVE_REST)

    await asyncio.gather(*[work() for _ in range(TASKS)])


def _run(url: str, calls: int, *, paced: bool) -> tuple[float, list[tuple[float, int]]]:
    """How long it takes, and every answer with the second it came in."""
    counted = Counted()
    pacers = Pacers(RetryPolicy(max_wait=600))
    transport = AsyncRateLimitTransport(counted, pacers) if paced else counted

    async def main() -> float:
        async with httpx.AsyncClient(transport=transport) as client:
            began = time.monotonic()
            await _calls(client, url, calls)
            return began

    began = asyncio.run(main())
    answers = [(round(at - began, 3), status) for at, status in counted.answers]
    return answers[-1][0], answers


def _timeline(name: str, answers: list[tuple[float, int]]) -> list[dict[str, Any]]:
    """How many were answered and refused until the end of each half second."""
    end = int(answers[-1][0] * 2) + 2
    return [
        {
            "client": name,
            "second": half / 2,
            "answered": sum(at <= half / 2 and status == HTTPStatus.OK for at, status in answers),
            "refused": sum(at <= half / 2 and status != HTTPStatus.OK for at, status in answers),
        }
        for half in range(end)
    ]


def run(watch: Watch, *, quick: bool = False) -> Outcome:
    """Measure both clients; `quick` only shows that it works."""
    calls = _QUICK_CALLS if quick else CALLS
    ideal = calls / LIMIT
    outcome = Outcome(PART)
    watch.begin("SDK beside a naive client", 2)
    timeline: list[dict[str, Any]] = []
    for name, paced in (("headgate", True), ("naive", False)):
        with _server() as url:
            seconds, answers = _run(url, calls, paced=paced)
        watch.step()
        refused = sum(status != HTTPStatus.OK for _, status in answers)
        timeline += _timeline(name, answers)
        prefix = "sdk" if paced else "sdk_naive"
        rows = [
            Row(f"{prefix}_time", seconds, ideal, "s", "the ideal time", Better.LOWER),
            Row(
                f"{prefix}_refused",
                refused,
                len(answers),
                "calls",
                "all calls that were sent",
                Better.LOWER,
            ),
        ]
        outcome.rows.extend(rows)
    outcome.figures["timeline"] = timeline
    return outcome
