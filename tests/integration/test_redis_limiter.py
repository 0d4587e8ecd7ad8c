from __future__ import annotations

import asyncio
import gc
from contextlib import nullcontext
from typing import TYPE_CHECKING

import pytest

from headgate import Limiter, Request
from headgate.core.decision import Decision, Hit

if TYPE_CHECKING:
    from tests.support.valkey import Server

PATIENT = "?deadline_ms=5000"
"""A busy machine is no outage."""


RULES = {
    "rules": [
        {"name": "search", "per": "user", "limits": ["5/minute", "100/hour"]},
        {"name": "everything", "per": "global", "limits": "1000/second", "algorithm": "token_bucket"},
    ]
}


def test_limiters_of_two_programs_share_their_counters(valkey: Server) -> None:
    """Two limiters on one server admit together what one limit allows, and no more."""

    async def scenario() -> None:
        async with Limiter.open(valkey.url + PATIENT, RULES) as one, Limiter.open(valkey.url + PATIENT, RULES) as other:
            request = Request(user="u_42", path="/api/search")
            verdicts = await asyncio.gather(*(limiter.check(request) for limiter in (one, other) for _ in range(10)))
            assert sum(verdict.allowed for verdict in verdicts) == 5
            refused = next(verdict for verdict in verdicts if not verdict)
            assert refused.policy == "search:1m"

    asyncio.run(scenario())


def test_many_checks_take_one_trip(valkey: Server) -> None:
    """Requests that are checked together are decided in their order, by one script call."""

    async def scenario() -> None:
        async with Limiter.open(valkey.url + PATIENT, RULES) as limiter:
            request = Request(user="u_42", path="/api/search")
            await limiter.peek(request)
            before = valkey.script_calls()
            verdicts = await limiter.check_many([request] * 8)
            assert [verdict.allowed for verdict in verdicts] == [True] * 5 + [False] * 3
            assert valkey.script_calls() == before + 1

    asyncio.run(scenario())


def test_checks_leave_nothing_for_the_garbage_collector(valkey: Server) -> None:
    """What was asked and answered is freed with its verdict; to look for it would stop the whole process."""

    async def scenario() -> None:
        async with Limiter.open(valkey.url + PATIENT, RULES) as limiter:
            await limiter.check(Request(user="first", path="/api/search"))
            gc.collect()
            before = _asked_and_answered()
            gc.disable()
            for _ in range(20):
                await limiter.check(Request(user="u_42", path="/api/search"))
            # What a snapshot remembers stays; each check would leave three hits and as many decisions.
            assert _asked_and_answered() <= before + 6

    try:
        asyncio.run(scenario())
    finally:
        gc.enable()


def _asked_and_answered() -> int:
    # By its type: to be asked for their class wakes lazy objects of other people.
    return sum(type(each) in {Hit, Decision} for each in gc.get_objects())


def test_everything_a_limiter_does_works_on_redis(valkey: Server) -> None:
    """Hits, peeks, refunds, resets, reservations and slots mean on Redis what they mean in memory."""

    async def scenario() -> None:
        async with Limiter.open(valkey.url + PATIENT) as limiter:
            taken = await limiter.hit("k", "5/minute", 3)
            assert taken.remaining == 2
            await limiter.refund(taken, 1)
            assert (await limiter.peek("k", "5/minute", 0)).remaining == 3
            await limiter.reset("k", "5/minute")
            assert (await limiter.peek("k", "5/minute", 0)).remaining == 5
            async with limiter.reserve("tokens", "1000/hour", 400) as reservation:
                reservation.settle(actual=150)
            assert (await limiter.peek("tokens", "1000/hour", 0)).remaining == 850
            async with limiter.slot("reports", "1 concurrent"):
                assert not (await limiter.slot("reports", "1 concurrent").take()).verdict.allowed
            assert (await limiter.slot("reports", "1 concurrent").take()).verdict.allowed

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("on_store_error", "source"),
    [("allow", "degraded_allow"), ("deny", "degraded_deny"), ("local", "degraded_local")],
)
def test_without_a_server_keys_are_answered_as_the_address_says(on_store_error: str, source: str) -> None:
    """A server that was never there is no error for callers: the address says what holds for keys without rules."""

    async def scenario() -> None:
        async with Limiter.open(f"unix:///nowhere.sock?on_store_error={on_store_error}") as limiter:
            verdict = await limiter.hit("k", "5/minute")
            assert (verdict.allowed, verdict.source) == (on_store_error != "deny", source)
            await limiter.refund(verdict)
            assert (await limiter.peek("k", "5/minute")).source == source
            async with limiter.reserve("tokens", "100/minute", 10) if verdict else nullcontext():
                pass

    asyncio.run(scenario())


def test_without_a_server_rules_are_answered_as_they_say() -> None:
    """Each rule says itself what holds while its counters are out of reach; one that refuses is enough."""
    rules = {
        "rules": [
            {"name": "mild", "per": "user", "limits": "5/minute"},
            {
                "name": "own",
                "per": "ip",
                "limits": "1/minute",
                "on_store_error": "local",
                "match": {"methods": ["GET"]},
            },
            {
                "name": "strict",
                "per": "global",
                "limits": "9/s",
                "on_store_error": "deny",
                "match": {"methods": ["PUT"]},
            },
        ]
    }

    async def scenario() -> None:
        async with Limiter.open("unix:///nowhere.sock", rules) as limiter:

            async def asked(method: str) -> tuple[bool, str]:
                verdict = await limiter.check(Request(user="u", ip="203.0.113.9", method=method))
                return verdict.allowed, verdict.source

            assert await asked("POST") == (True, "degraded_allow")
            assert await asked("GET") == (True, "degraded_local")
            assert await asked("GET") == (False, "degraded_local")
            assert await asked("PUT") == (False, "degraded_deny")

    asyncio.run(scenario())
