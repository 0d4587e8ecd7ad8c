"""The deny cache on a real server: what refused traffic costs it, and what an outage changes."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from headgate import Limiter, Request, sync
from headgate.core.decision import Source

if TYPE_CHECKING:
    from tests.support.valkey import Server

PATIENT = "?deadline_ms=5000"
"""A busy machine is no outage."""
RULES = {
    "rules": [
        {"name": "search", "per": "user", "limits": ["5/hour", "100/day"]},
        {"name": "everything", "per": "global", "limits": "100000/hour", "algorithm": "fixed_window"},
    ]
}
MANY = 10_000


def _calls(server: Server) -> int:
    return server.script_calls()


def test_refused_hits_cost_one_operation_a_second(valkey: Server) -> None:
    """Ten thousand refused hits on one key are one script call for each second that they take."""

    async def scenario() -> None:
        async with Limiter.open(valkey.url + PATIENT) as limiter:
            while (await limiter.hit("k", "3/hour")).allowed:
                pass
            before, began = _calls(valkey), time.monotonic()
            verdicts = [await limiter.hit("k", "3/hour") for _ in range(MANY // 2)]
            verdicts += await asyncio.gather(*(limiter.hit("k", "3/hour") for _ in range(MANY // 2)))
            elapsed = time.monotonic() - began
            assert not any(verdict.allowed for verdict in verdicts)
            assert {verdict.source for verdict in verdicts} <= {Source.DENY_CACHE, Source.STORE}
            assert _calls(valkey) - before <= elapsed + 1

    asyncio.run(scenario())


def test_refused_requests_cost_one_operation_a_second(valkey: Server) -> None:
    """The same holds for requests that several rules concern."""

    async def scenario() -> None:
        async with Limiter.open(valkey.url + PATIENT, RULES) as limiter:
            request = Request(user="u_42")
            while (await limiter.check(request)).allowed:
                pass
            before, began = _calls(valkey), time.monotonic()
            verdicts = [await limiter.check(request) for _ in range(MANY // 4)]
            verdicts += await asyncio.gather(*(limiter.check(request) for _ in range(MANY // 4)))
            elapsed = time.monotonic() - began
            assert not any(verdict.allowed for verdict in verdicts)
            assert {verdict.policy for verdict in verdicts} == {"search:1h"}
            assert {each.remaining for verdict in verdicts for each in verdict.decisions} == {0, 95, 99_995}
            assert _calls(valkey) - before <= elapsed + 1

    asyncio.run(scenario())


@pytest.mark.parametrize("way", ["direct", "background"])
def test_refused_threads_cost_one_operation_a_second(way: str, valkey: Server) -> None:
    """Threads share what is known to be refused, whichever way they go to the server."""
    limit = "3/hour"
    url = valkey.url + PATIENT + ("&on_store_error=local" if way == "background" else "")
    with sync.Limiter.open(url) as limiter, ThreadPoolExecutor(8) as threads:
        while limiter.hit("k", limit).allowed:
            pass
        limiter.hit("other", limit)
        before, began = _calls(valkey), time.monotonic()
        verdicts = list(threads.map(lambda _: limiter.hit("k", limit), range(MANY)))
        elapsed = time.monotonic() - began
        assert not any(verdict.allowed for verdict in verdicts)
        assert sum(verdict.source is Source.DENY_CACHE for verdict in verdicts) > MANY - elapsed - 16
        # Heartbeats of `local` are script calls too, one in five seconds.
        assert _calls(valkey) - before <= 1.2 * elapsed + 2


@pytest.mark.parametrize("on_store_error", ["allow", "local"])
def test_an_outage_frees_no_caller_who_was_refused(on_store_error: str, valkey: Server) -> None:
    """Who was refused before the server was killed stays refused while it is unavailable; others go by the policy."""

    async def scenario() -> None:
        async with Limiter.open(f"{valkey.url}?on_store_error={on_store_error}") as limiter:
            while (await limiter.hit("refused", "3/hour")).allowed:
                pass
            valkey.kill()
            verdicts = [await limiter.hit("refused", "3/hour") for _ in range(200)]
            assert {(verdict.allowed, verdict.source) for verdict in verdicts} == {(False, Source.DENY_CACHE)}
            assert 0 < (verdicts[-1].retry_after or 0) <= 3600
            assert (await limiter.hit("never met", "3/hour")).allowed

    try:
        asyncio.run(scenario())
    finally:
        valkey.revive()


def test_an_outage_frees_no_thread_that_was_refused(valkey: Server) -> None:
    """The same holds without await, also on the direct way, which finds the server gone first."""
    with sync.Limiter.open(valkey.url) as limiter:
        while limiter.hit("refused", "3/hour").allowed:
            pass
        limiter.hit("smaller", "3/hour", 2)
        assert not limiter.hit("smaller", "3/hour", 3).allowed
        valkey.kill()
        try:
            assert {limiter.hit("refused", "3/hour").source for _ in range(200)} == {Source.DENY_CACHE}
            assert limiter.hit("smaller", "3/hour", 1).source is Source.DEGRADED_ALLOW
            assert limiter.hit("smaller", "3/hour", 3).source is Source.DENY_CACHE
        finally:
            valkey.revive()


def test_a_refund_elsewhere_is_seen_within_a_second(valkey: Server) -> None:
    """What another process gives back frees a caller here as soon as the denial is a second old."""

    async def scenario() -> None:
        async with Limiter.open(valkey.url + PATIENT) as one, Limiter.open(valkey.url + PATIENT) as other:
            taken = await other.hit("k", "1/day")
            assert not (await one.hit("k", "1/day")).allowed
            decided = time.monotonic()
            await other.refund(taken)
            while True:
                asked = time.monotonic()
                verdict = await one.hit("k", "1/day")
                if verdict.source is Source.STORE:
                    break
                assert asked < decided + 1.1  # a tenth for the trip to the server, if one is just on it
                await asyncio.sleep(0.01)
            assert verdict.allowed

    asyncio.run(scenario())


def test_a_refused_caller_who_waits_is_admitted(valkey: Server) -> None:
    """The wait that is told from memory is never too short."""

    async def scenario() -> None:
        async with Limiter.open(valkey.url + PATIENT) as limiter:
            for algorithm in ("fixed_window", "sliding_window_log", "token_bucket"):
                while (await limiter.hit("k", "2/300ms", algorithm=algorithm)).allowed:
                    pass
                verdict = await limiter.hit("k", "2/300ms", algorithm=algorithm)
                if not verdict.allowed:
                    await asyncio.sleep(verdict.retry_after or 0)
                assert (await limiter.hit("k", "2/300ms", algorithm=algorithm)).allowed

    asyncio.run(scenario())
