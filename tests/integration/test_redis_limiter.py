from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from headgate import Limiter, Request, StoreError

if TYPE_CHECKING:
    from tests.integration.conftest import Server

RULES = {
    "rules": [
        {"name": "search", "per": "user", "limits": ["5/minute", "100/hour"]},
        {"name": "everything", "per": "global", "limits": "1000/second", "algorithm": "token_bucket"},
    ]
}


def test_limiters_of_two_programs_share_their_counters(valkey: Server) -> None:
    """Two limiters on one server admit together what one limit allows, and no more."""

    async def scenario() -> None:
        async with Limiter.open(valkey.url, RULES) as one, Limiter.open(valkey.url, RULES) as other:
            request = Request(user="u_42", path="/api/search")
            verdicts = await asyncio.gather(*(limiter.check(request) for limiter in (one, other) for _ in range(10)))
            assert sum(verdict.allowed for verdict in verdicts) == 5
            refused = next(verdict for verdict in verdicts if not verdict)
            assert refused.policy == "search:1m"

    asyncio.run(scenario())


def test_everything_a_limiter_does_works_on_redis(valkey: Server) -> None:
    """Hits, peeks, refunds, resets, reservations and slots mean on Redis what they mean in memory."""

    async def scenario() -> None:
        async with Limiter.open(valkey.url) as limiter:
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


def test_a_server_that_cannot_be_reached_is_a_store_error() -> None:
    """Without a server a check raises a store error that can be caught, and says what it could not reach."""

    async def scenario() -> None:
        async with Limiter.open("unix:///nowhere.sock") as limiter:
            await limiter.hit("k", "5/minute")

    with pytest.raises(StoreError, match=r"cannot connect to /nowhere\.sock"):
        asyncio.run(scenario())
