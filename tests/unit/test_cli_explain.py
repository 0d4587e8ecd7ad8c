"""Explanations and quotas as people see them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from headgate import Limiter, Request
from headgate.cli.explain import print_explanation
from headgate.cli.quota import _bar, _remark, _where
from headgate.core.blocklist import BlockList
from headgate.core.explanation import MAX_LOST
from headgate.dataplane.inspection import explain
from headgate.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Sequence

TIERS = {"free": {"limits": {"search": "2/minute"}}}
RULES: list[dict[str, Any]] = [
    {"name": "search", "per": "user", "limits": "tier:search", "algorithm": "fixed_window"},
    {"name": "api", "layer": "api", "limits": ["9/hour", "99/day"], "cost": {"default": 3}},
    {"name": "free", "layer": "free", "limits": "unlimited"},
    {"name": "trial", "layer": "free", "limits": "5/minute", "action": "log"},
]


def printed(
    capsys: pytest.CaptureFixture[str],
    request: Request,
    *,
    checks: int = 0,
    blocks: list[Any] | None = None,
    more: Sequence[dict[str, Any]] = (),
) -> str:
    async def run() -> None:
        rules = {"tiers": TIERS, "rules": [*RULES, *more]}
        async with Limiter.open(rules=rules, clock=FakeClock()) as limiter:
            limiter.snapshots.publish_blocks(BlockList(blocks or []))
            for _ in range(checks):
                await limiter.check(request)
            print_explanation(await explain(limiter, request))

    asyncio.run(run())
    return capsys.readouterr().out


def test_what_applies_is_told_with_what_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    """Each rule that applies says its limits, what is left, what it costs, and where the limit comes from."""
    out = printed(capsys, Request(user="u1", attributes={"a": "b"}))
    assert "for / on tier free a=b, by snapshot 1" in out
    assert "2/minute, 1 left (from 'search' of the tier 'free')" in out
    assert "9/hour, 6 left, costs 3; 99/day, 96 left, costs 3" in out
    assert "unlimited" in out
    assert "watched only; 5/minute, 4 left" in out


def test_what_other_servers_take_the_path_for_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """A path that can be read in two ways is shown with the other one, if other rules match that."""
    path = Request(path="/files/..%2Fx")
    assert "other servers" not in printed(capsys, path)
    files = {"name": "files", "layer": "files", "match": {"endpoints": ["/files/*"]}, "limits": "5/minute"}
    out = printed(capsys, path, more=[files])
    assert "for /x on tier free" in out
    assert "other servers read the path as " in out
    assert "/files/../x" in out


def test_a_denial_says_when_there_is_enough(capsys: pytest.CaptureFixture[str]) -> None:
    """What stands in the way is told with the wait; what can never pass is told as such."""
    out = printed(capsys, Request(user="u1"), checks=2)
    assert out.startswith("DENIED  by search; try again in ")
    assert "2/minute, 0 left, enough in " in out
    assert "never enough" in printed(capsys, Request(user="u1", cost=50))


@pytest.mark.parametrize(("until", "when"), [(None, ""), (1_900_000_000, " until 2030-03-17 17:46:40")])
def test_a_block_is_told_before_all_rules(until: int | None, when: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Who is blocked sees by which block, until when and why."""
    blocks = [{"id": "b1", "user": "u1", "reason": "scraping", "until": until}]
    assert f"block  b1{when}: scraping\n" in printed(capsys, Request(user="u1"), blocks=blocks)


def test_what_is_left_out_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """Where there are too many rules to tell of, their number is told."""

    async def run() -> None:
        rules = [{"name": f"r{n}", "limits": "1/day", "match": {"endpoints": f"/{n}"}} for n in range(MAX_LOST + 2)]
        print_explanation(await explain(Limiter.open(rules=rules), Request(path="/x")))

    asyncio.run(run())
    assert "and 2 rules that are further off" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("entry", "bar", "said"),
    [
        ({"limit": None, "action": "allow"}, "", "not limited here"),
        ({"limit": None, "action": "block"}, "", "blocked here"),
        ({"depends_on": ["ip", "tenant"]}, "", "for each ip and tenant"),
        ({"remaining": None}, "", ""),
        ({"used": 3, "remaining": 7}, "███░░░░░░░", ""),
        ({"used": 9, "remaining": 1}, "█████████░", ""),
        ({"used": 10, "remaining": 0, "shared": True, "action": "log"}, "██████████", "shared, watched"),
    ],
)
def test_a_limit_is_drawn_as_it_stands(entry: dict[str, Any], bar: str, said: str) -> None:
    """A bar shows how much is used; where there is no counter to show, the reason stands in its place."""
    usual = {"limit": "10/minute", "action": "reject", "depends_on": [], "shared": False, "used": 0, "remaining": 10}
    assert _bar(usual | entry).plain == bar
    assert _remark(usual | entry).plain == said


def test_where_a_limit_holds_is_told_in_a_few_words() -> None:
    """Methods, paths, networks and attributes, or that it holds everywhere."""
    none: dict[str, Any] = {"methods": [], "endpoints": [], "ip_ranges": [], "attributes": {}}
    assert _where(none) == "everywhere"
    full = {"methods": ["GET"], "endpoints": ["/a"], "ip_ranges": ["10.0.0.0/8"], "attributes": {"region": "eu"}}
    assert _where(full) == "GET /a 10.0.0.0/8 region=eu"
