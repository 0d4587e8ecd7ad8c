from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headgate import Limiter as AsyncLimiter
from headgate.adapters.memory import MemoryStore
from headgate.core.request import Request
from headgate.errors import InvalidRequest
from headgate.sync import Limiter
from headgate.testing import FakeClock


def limiter(*rules: dict[str, Any], clock: FakeClock | None = None) -> Limiter:
    return Limiter.open(rules=list(rules), clock=clock or FakeClock())


def counters(gate: Limiter) -> dict[str, Any]:
    store = gate._limiter.store
    assert isinstance(store, MemoryStore)
    found = {name: store.table.find(name) for name in store.table.names()}
    return {name: record[0] for name, record in found.items() if record is not None}


def left(gate: Limiter, rule: str, request: Request | None = None) -> int:
    (found,) = [each for each in gate.peek(request or Request(), cost=0).findings if each.policy == rule]
    return found.decision.remaining


def test_a_request_is_counted_in_all_its_layers() -> None:
    """An admitted request is counted by every rule that applies to it."""
    gate = limiter(
        {"name": "user", "per": "user", "limits": "5/minute"},
        {"name": "all", "limits": "9/minute"},
    )
    for user in ("a", "a", "b"):
        assert gate.check(Request(user=user)).allowed
    assert left(gate, "all") == 6
    assert left(gate, "user", Request(user="a")) == 3


def test_one_denial_and_nothing_is_counted() -> None:
    """If one rule refuses, no counter changes, in any algorithm."""
    algorithms = ("fixed_window", "sliding_window_counter", "sliding_window_log", "token_bucket")
    generous = [{"name": name, "layer": name, "limits": "9/minute", "algorithm": name} for name in algorithms]
    slots = {"name": "slots", "layer": "s", "limits": "9 concurrent", "algorithm": "concurrency"}
    gate = limiter(*generous, slots, {"name": "tight", "limits": "1/minute"})
    assert gate.check(Request()).allowed
    before = repr(counters(gate))
    for _ in range(3):
        assert not gate.check(Request()).allowed
    assert repr(counters(gate)) == before


def test_a_watched_rule_never_changes_the_verdict() -> None:
    """A `log` rule that would refuse lets everything pass, and shows in the decisions."""
    gate = limiter({"name": "trial", "action": "log", "limits": "2/minute"})
    verdicts = [gate.check(Request()) for _ in range(4)]
    assert [verdict.allowed for verdict in verdicts] == [True] * 4
    assert [verdict.findings[0].decision.allowed for verdict in verdicts] == [True, True, False, False]
    assert verdicts[3].retry_after == 0.0
    assert verdicts[3].headers() == {}


def test_a_watched_rule_counts_only_what_passes() -> None:
    """A `log` rule is not taken for a request that was refused."""
    gate = limiter({"name": "trial", "action": "log", "limits": "9/minute"}, {"name": "tight", "limits": "1/minute"})
    assert len(gate.check(Request()).findings) == 2
    denied = gate.check(Request())
    assert [finding.policy for finding in denied.findings] == ["tight"]
    gate.reset(Request())
    gate.check(Request())
    shadow = gate.peek(Request(), cost=0).findings[1]
    assert (shadow.policy, shadow.decision.remaining) == ("trial", 8)


def test_a_watched_rule_counts_as_it_would_if_enforced() -> None:
    """All limits of a `log` rule are taken together or not at all, as if it were enforced."""
    gate = limiter({"name": "trial", "action": "log", "limits": ["1/second", "9/hour"], "algorithm": "fixed_window"})
    for _ in range(5):
        verdict = gate.check(Request())
    assert [finding.decision.remaining for finding in verdict.findings] == [0, 8]


def test_two_watched_rules_are_two() -> None:
    """Of two `log` rules in different layers each counts by itself."""
    gate = limiter(
        {"name": "a", "layer": "a", "action": "log", "limits": "1/minute"},
        {"name": "b", "layer": "b", "action": "log", "limits": "9/minute"},
    )
    gate.check(Request())
    remaining = {finding.policy: finding.decision.remaining for finding in gate.check(Request()).findings}
    assert remaining == {"a": 0, "b": 7}


def test_a_concurrency_rule_limits_how_many_run_at_once() -> None:
    """Under a concurrency rule each admitted request holds a slot until it is given back or expires."""
    clock = FakeClock()
    rule = {"name": "s", "per": "user", "limits": "2 concurrent ttl 30s", "algorithm": "concurrency"}
    gate = limiter(rule, clock=clock)
    first, second = gate.check(Request(user="u")), gate.check(Request(user="u"))
    assert (first.allowed, second.allowed) == (True, True)
    denied = gate.check(Request(user="u"))
    assert (denied.allowed, denied.retry_after) == (False, 30.0)
    gate.refund(first)
    gate.refund(first)
    assert gate.check(Request(user="u")).allowed
    assert not gate.check(Request(user="u")).allowed
    clock.advance(seconds=30)
    assert gate.check(Request(user="u"), cost=2).allowed


def test_the_price_list_and_the_given_cost() -> None:
    """A request costs what the rule's price list says, or what the caller says for all rules."""
    gate = limiter({"name": "r", "limits": "100/minute", "cost": {"POST": 5}})
    assert gate.check(Request(method="POST")).remaining == 95
    assert gate.check(Request(method="GET")).remaining == 94
    assert gate.check(Request(method="POST"), cost=20).remaining == 74
    assert gate.check(Request(method="POST"), cost=0).remaining == 74


def test_many_are_decided_each_by_itself() -> None:
    """Of several requests in one call each is decided and counted by itself, in order."""
    gate = limiter({"name": "r", "per": "user", "limits": "2/minute"})
    verdicts = gate.check_many(Request(user=user) for user in "aabaa")
    assert [verdict.allowed for verdict in verdicts] == [True, True, True, False, False]
    assert [verdict.allowed for verdict in gate.check_many([Request(user="b")] * 2, cost=2)] == [False, False]
    assert gate.check_many([]) == []


def test_throttled_requests_are_told_their_delay() -> None:
    """A throttling rule admits into the future up to `max_delay`, and tells each request how long to wait."""
    rule = {"name": "r", "limits": "1/second burst 2", "algorithm": "token_bucket"}
    gate = limiter({**rule, "action": "throttle", "max_delay": "1500ms"})
    verdicts = [gate.check(Request()) for _ in range(4)]
    assert [verdict.delay for verdict in verdicts] == [0.0, 0.0, 1.0, 0.0]
    assert [verdict.allowed for verdict in verdicts] == [True, True, True, False]
    assert verdicts[3].retry_after == 0.5
    assert (verdicts[2].action.value, verdicts[2].remaining) == ("throttle", 0)


def test_unlimited_rules_count_nothing() -> None:
    """Where all limits that apply are `unlimited` nothing is counted and nothing is told."""
    gate = limiter({"name": "r", "per": "user", "limits": "unlimited"})
    verdict = gate.check(Request(user="u"), cost=10**12)
    assert (verdict.allowed, verdict.remaining, verdict.source.value) == (True, None, "exempt")
    assert counters(gate) == {}


def test_two_users_do_not_share() -> None:
    """Every user has a counter of its own, and so has every unknown caller, by address."""
    gate = limiter({"name": "r", "per": "user", "limits": "1/minute"})
    requests = [Request(user="a"), Request(user="b"), Request(ip="192.0.2.1"), Request(ip="192.0.2.2"), Request()]
    assert [verdict.allowed for verdict in gate.check_many(requests)] == [True] * 5
    assert [verdict.allowed for verdict in gate.check_many(requests)] == [False] * 5


@pytest.mark.parametrize("changed", ["20/minute", "3/minute"])
def test_a_changed_amount_goes_on_counting(changed: str) -> None:
    """When rules are published with another amount, what was counted stays counted."""
    gate = limiter({"name": "r", "limits": "10/minute", "algorithm": "fixed_window"})
    gate.check(Request(), cost=4)
    snapshots = gate._limiter.snapshots
    (rule,) = snapshots.current.rule_set.rules
    other = limiter({"name": "r", "limits": changed, "algorithm": "fixed_window"})
    snapshots.publish(other._limiter.snapshots.current.rule_set)
    verdict = gate.peek(Request(), cost=0)
    assert verdict.remaining == max(0, int(changed.partition("/")[0]) - 4)
    assert (verdict.snapshot, rule.name) == (2, "r")


def test_checks_can_be_awaited() -> None:
    """The asynchronous limiter admits as many as the limit says, however many tasks ask."""

    async def admitted() -> int:
        async with AsyncLimiter.open(rules=[{"name": "r", "limits": "40/hour"}]) as gate:
            verdicts = await asyncio.gather(*(gate.check(Request()) for _ in range(100)))
            return sum(map(bool, verdicts))

    assert asyncio.run(admitted()) == 40


def test_a_request_can_say_what_it_costs() -> None:
    """The request's own cost replaces the rule's price list, and the call's cost replaces both."""
    gate = limiter({"name": "a", "limits": "100/minute", "cost": 2})
    assert gate.check(Request()).cost == 2
    assert gate.check(Request(cost=7)).cost == 7
    assert gate.check(Request(cost=7), cost=11).cost == 11
    with pytest.raises(InvalidRequest, match="a cost is between 0"):
        gate.check(Request(cost=-1))


def test_where_no_tiers_are_defined_any_name_is_one() -> None:
    """A rule can concern a tier that only callers know."""
    gate = limiter({"name": "a", "match": {"tiers": ["gold"]}, "limits": "1/minute"})
    assert gate.check(Request(tier="gold")).policy == "a"
    assert gate.check(Request(tier="iron")).policy is None
