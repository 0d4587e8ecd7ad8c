"""Reservations on shared servers, settled by many at once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from headgate import Limiter, Request
from headgate.dataplane import reservations
from headgate.edge.http.reservations import ReservationTokens

if TYPE_CHECKING:
    from tests.support.cluster import ClusterSetup
    from tests.support.valkey import Server

PATIENT = "?deadline_ms=5000"
"""A busy machine is no outage."""
RULES: list[dict[str, Any]] = [
    {"name": "hour", "per": ["user"], "limits": "1000/hour", "algorithm": "fixed_window"},
    {"name": "all", "per": "global", "limits": "5000/hour", "algorithm": "token_bucket"},
    {"name": "slots", "per": ["user"], "layer": "s", "limits": "900 concurrent", "algorithm": "concurrency"},
]
ALICE = Request(user="alice")


async def _settled_by_many(url: str, actual: int | None, ttl: int = 60_000_000) -> tuple[int, dict[str, int]]:
    """Reserve 400, settle ten times at once by two limiters; how many were told so, and what is left of each limit."""
    seal = ReservationTokens("shared")
    async with Limiter.open(url, rules=RULES) as one, Limiter.open(url, rules=RULES) as other:
        verdict = await one.check(ALICE, 400)
        text = seal.write(reservations.reserved(verdict, ttl))
        outcomes = await asyncio.gather(
            *(reservations.settle(limiter.store, seal.read(text), actual) for limiter in (one, other) for _ in range(5))
        )
        left = await other.peek(ALICE, cost=0)
        return sum(outcomes), {finding.policy: finding.decision.remaining for finding in left.findings}


@pytest.mark.parametrize(("actual", "left"), [(0, 1000), (100, 900), (400, 600), (700, 300), (None, 600)])
def test_many_settle_and_one_counts(valkey: Server, actual: int | None, left: int) -> None:
    """However many settle a reservation at the same time, it is booked once, and slots are free."""
    told, remaining = asyncio.run(_settled_by_many(valkey.url + PATIENT, actual))
    assert told >= 1
    assert remaining == {"hour": left, "all": left + 4000, "slots": 900}
    if actual is not None and actual > 400:
        assert told == 1


def test_many_settle_above_after_the_ttl_and_one_counts(valkey: Server) -> None:
    """What was used beyond a reservation that has expired is charged once, however many say so."""
    told, remaining = asyncio.run(_settled_by_many(valkey.url + PATIENT, 700, ttl=1))
    assert (told, remaining) == (1, {"hour": 300, "all": 4300, "slots": 900})


@pytest.mark.parametrize(("actual", "left"), [(100, 900), (700, 300)])
def test_reservations_over_several_places(cluster_setup: ClusterSetup, actual: int, left: int) -> None:
    """On a cluster, where the counters of one reservation are on several servers, it is booked once, too."""
    told, remaining = asyncio.run(_settled_by_many(cluster_setup.url + PATIENT, actual))
    assert told >= 1
    assert remaining == {"hour": left, "all": left + 4000, "slots": 900}
