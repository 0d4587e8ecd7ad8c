"""The client library with a running service."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from headgate import Request
from headgate.client import AsyncDecisionClient, DecisionClient

if TYPE_CHECKING:
    from tests.support.service import Service

SEARCH = Request(user="sdk", tier="free", method="GET", path="/api/search")


def test_the_client_asks_the_service(service: Service) -> None:
    """The example's free tier gets ten searches; the verdict has its decisions and headers."""
    with DecisionClient(service.url, deadline=10, on_failure="raise") as client:
        assert client.peek(SEARCH).remaining == 9
        verdicts = [client.check(SEARCH) for _ in range(11)]
    assert [verdict.allowed for verdict in verdicts] == [True] * 10 + [False]
    assert {decision.rule for decision in verdicts[0].decisions} >= {"search", "api"}
    assert verdicts[0].headers["x-ratelimit-remaining"] == "9"
    assert (verdicts[-1].policy, verdicts[-1].status) == ("search", 429)


def test_batches_and_reservations(service: Service) -> None:
    """Batches are decided in one call; reservations are settled once."""

    async def run() -> None:
        async with AsyncDecisionClient(service.url, deadline=10, on_failure="raise") as client:
            verdicts = await client.check_many([SEARCH._replace(user=name) for name in ("sdk-1", "sdk-2")])
            assert [verdict.allowed for verdict in verdicts] == [True, True]
            taken = await client.reserve("sdk:tokens", "1000/hour", 400)
            assert taken.reservation is not None
            assert await client.settle(taken.reservation, 100)
            assert not await client.settle(taken.reservation, 200)
            again = await client.reserve("sdk:tokens", "1000/hour", 900)
            assert again.reservation is not None
            assert await client.release(again.reservation)
            assert await client.reserve("sdk:tokens", "1000/hour", 900)

    asyncio.run(run())
