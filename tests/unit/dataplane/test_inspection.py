from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headgate import Limiter, Request
from headgate.core.blocklist import BlockList
from headgate.dataplane.inspection import explain
from headgate.errors import InvalidRequest
from headgate.testing import FakeClock

RULES: list[dict[str, Any]] = [
    {"name": "search", "layer": "s", "per": "user", "limits": "2/minute", "algorithm": "fixed_window"},
    {"name": "trial", "layer": "s", "per": "user", "limits": "1/minute", "action": "log"},
    {"name": "open", "action": "allow", "match": {"endpoints": "/open"}},
]


def said(checks: int, request: Request, blocks: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """What an explanation says after so many checks."""

    async def run() -> dict[str, Any]:
        async with Limiter.open(rules=RULES, clock=FakeClock()) as limiter:
            limiter.snapshots.publish_blocks(BlockList(blocks or []))
            for _ in range(checks):
                await limiter.check(request)
            first = await explain(limiter, request)
            again = await explain(limiter, request)
            seen = await limiter.peek(request)
            # Looking counts nothing, and the verdict is the one that peek gives.
            assert again["layers"] == first["layers"]
            assert again["verdict"] | {"id": ""} == seen.as_dict() | {"id": ""}
            return again

    return asyncio.run(run())


def test_an_explanation_shows_the_counters_and_the_verdict() -> None:
    """Beside each limit stands how its counter is now, and above all of it what the answer would be."""
    answer = said(1, Request(user="u1"))
    (layer,) = answer["layers"]
    (limit,) = layer["winner"]["limits"]
    assert answer["verdict"]["allowed"]
    assert limit["counter"] == "rl:{u=u1}:search:fw1m"
    assert (limit["allowed"], limit["used"], limit["remaining"], limit["retry_after"]) == (True, 2, 0, 0)
    assert layer["watched"]["limits"][0]["allowed"] is False


def test_a_denial_is_explained_with_what_is_watched() -> None:
    """A denied request's watched counters are shown too, though they have no part in the verdict."""
    answer = said(2, Request(user="u1"))
    (layer,) = answer["layers"]
    assert not answer["verdict"]["allowed"]
    assert [each["rule"] for each in answer["verdict"]["decisions"]] == ["search"]
    assert layer["winner"]["limits"][0]["allowed"] is False
    assert layer["watched"]["limits"][0]["remaining"] == 0


def test_an_exempt_request_is_explained_by_its_gate() -> None:
    """Where a gate decides there is nothing to count."""
    answer = said(1, Request(user="u1", path="/open"))
    assert answer["verdict"]["source"] == "exempt"
    assert answer["gates"][0]["decides"]
    assert answer["layers"] == []


@pytest.mark.parametrize("until", [None, 9_999_999_999])
def test_a_block_comes_before_all_rules(until: int | None) -> None:
    """Who is blocked is told by which block, for how long, and still sees what the rules would say."""
    blocks = [{"id": "b1", "user": "u1", "reason": "scraping", "until": until}]
    answer = said(0, Request(user="u1"), blocks)
    assert answer["verdict"]["source"] == "block"
    assert answer["block"] == {"id": "b1", "reason": "scraping", "until": until}
    assert answer["layers"][0]["winner"]["rule"] == "search"
    assert said(0, Request(user="u2"), blocks)["block"] is None


def test_a_malformed_request_is_refused() -> None:
    """A request that means nothing is not explained either."""

    async def run() -> None:
        await explain(Limiter.open(rules=RULES), Request(user=5))  # type: ignore[arg-type] # the mistake meant

    with pytest.raises(InvalidRequest, match="user is text"):
        asyncio.run(run())
