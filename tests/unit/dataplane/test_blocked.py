"""The verdict for a blocked caller."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from headgate import Limiter, Request
from headgate.core.blocklist import BlockList
from headgate.core.units import SECOND
from headgate.errors import InvalidRequest
from headgate.testing import FakeClock

if TYPE_CHECKING:
    from headgate import Verdict

RULES: list[dict[str, Any]] = [
    {"name": "one", "per": "user", "limits": "5/minute"},
    {"name": "staff", "action": "allow", "priority": 1},
]


def limiter(*blocks: dict[str, object], clock: FakeClock | None = None) -> Limiter:
    opened = Limiter.open(rules=RULES[:1], clock=clock or FakeClock())
    opened.snapshots.publish_blocks(BlockList(list(blocks)))
    return opened


def check(opened: Limiter, request: Request) -> Verdict:
    return asyncio.run(opened.check(request))


def test_a_block_is_a_verdict_of_its_own() -> None:
    """403 with the reason, the time until it ends, and no rule; nothing is counted."""
    clock = FakeClock()
    opened = limiter({"id": "1", "user": "u", "reason": "Unpaid.", "until": clock() // SECOND + 90}, clock=clock)
    verdict = check(opened, Request(user="u"))
    assert not verdict.allowed
    assert (verdict.source, verdict.action, verdict.status, verdict.policy) == ("block", "block", 403, "block")
    assert (verdict.retry_after, verdict.headers()) == (90.0, {"Retry-After": "90"})
    assert (verdict.problem()["message"], verdict.problem()["error"]) == ("Unpaid.", "blocked")
    assert (verdict.snapshot, verdict.as_dict()["decisions"]) == (1, [])
    assert check(opened, Request(user="v")).remaining == 4


def test_a_block_without_an_end_never_ends() -> None:
    """Then there is no time after which trying again would help."""
    verdict = check(limiter({"id": "1", "network": "2001:db8::/32"}), Request(ip="2001:db8::9"))
    assert (verdict.allowed, verdict.retry_after, verdict.headers()) == (False, None, {})
    assert verdict.problem()["message"] == "Blocked by policy block."


def test_a_block_ends_by_itself() -> None:
    """At its time, without being lifted."""
    clock = FakeClock()
    opened = limiter({"id": "1", "api_key": "k", "until": clock() // SECOND + 1}, clock=clock)
    assert not check(opened, Request(api_key="k")).allowed
    clock.advance(seconds=1)
    assert check(opened, Request(api_key="k")).allowed


def test_blocks_come_before_exemptions() -> None:
    """Who is blocked is blocked, even where a rule exempts from all limits."""
    opened = Limiter.open(rules=RULES, clock=FakeClock())
    assert check(opened, Request(user="u")).source == "exempt"
    opened.snapshots.publish_blocks(BlockList([{"id": "1", "user": "u"}]))
    assert check(opened, Request(user="u")).source == "block"
    opened.snapshots.publish_blocks(BlockList([]))
    assert check(opened, Request(user="u")).source == "exempt"


def test_every_way_of_asking_about_a_request_heeds_blocks() -> None:
    """`check_now`, `peek` and `reserve` too; a bare key knows no blocks."""
    opened = limiter({"id": "1", "user": "u"})
    request = Request(user="u")

    async def run() -> None:
        assert opened.check_now is not None
        assert not opened.check_now(request).allowed
        assert not (await opened.peek(request)).allowed
        assert not (await opened.reserve(request)).verdict.allowed
        assert (await opened.hit("u", "5/minute")).allowed
        assert (await opened.peek("u", "5/minute")).allowed

    asyncio.run(run())


def test_counters_of_a_blocked_user_can_be_reset() -> None:
    """Forgiving what was used has nothing to do with being let in again."""
    opened = limiter()
    request = Request(user="u")

    async def run() -> None:
        await opened.check(request)
        opened.snapshots.publish_blocks(BlockList([{"id": "1", "user": "u"}]))
        await opened.reset(request)
        opened.snapshots.publish_blocks(BlockList([]))
        assert (await opened.peek(request, cost=0)).remaining == 5

    asyncio.run(run())


@pytest.mark.parametrize("request_", [Request(ip="nowhere"), Request(user=7), "u"])  # type: ignore[arg-type] # that is the point
def test_a_malformed_request_is_still_malformed(request_: Request) -> None:
    """With a list of blocks or without one."""
    opened = limiter()
    with pytest.raises(InvalidRequest):
        check(opened, request_)
