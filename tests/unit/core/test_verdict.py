from __future__ import annotations

import re
from typing import Any

import pytest
from tests.unit.core.test_matching_reference import no_zones

from headgate.core import degraded
from headgate.core.decision import Decision, Source
from headgate.core.degraded import UnderReplicated
from headgate.core.matching import Snapshot
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.core.request import Request
from headgate.core.rule import Action, RuleSet
from headgate.core.verdict import verdict as verdict_of
from headgate.errors import Refused
from headgate.sync import Limiter
from headgate.testing import FakeClock


def limiter(*rules: dict[str, Any]) -> Limiter:
    return Limiter.open(rules=parse_rule_set(list(rules)), clock=FakeClock())


def test_of_the_admitting_limits_the_smallest_share_binds() -> None:
    """An admitted request is told about the limit of which the smallest share is left, not the smallest number."""
    clock = FakeClock()
    rule = {"name": "r", "limits": ["10/second", "1000/hour"], "algorithm": "fixed_window"}
    gate = Limiter.open(rules=[rule], clock=clock)
    verdict = gate.check(Request())
    assert (verdict.policy, verdict.remaining) == ("r:1s", 9)
    for _ in range(98):
        clock.advance(seconds=1)
        gate.check(Request(), cost=10)
    clock.advance(seconds=1)
    verdict = gate.check(Request())
    assert (verdict.policy, verdict.remaining, verdict.limit) == ("r:1h", 18, 1000)


def test_a_share_is_of_what_the_bucket_holds() -> None:
    """What is left of a burst is compared with the burst, which is what a full bucket has."""
    gate = limiter(
        {"name": "bucket", "limits": "1/second burst 100", "algorithm": "token_bucket", "cost": 50},
        {"name": "window", "limits": "10/hour", "layer": "w", "cost": 2},
    )
    verdict = gate.check(Request())
    assert (verdict.policy, verdict.remaining, verdict.limit) == ("bucket", 50, 1)


def test_equal_shares_go_to_the_longer_reset() -> None:
    """Where two limits have the same share left, the one that takes longer to come back binds."""
    gate = limiter({"name": "r", "limits": ["10/minute", "10/hour"], "algorithm": "fixed_window"})
    assert gate.check(Request()).policy == "r:1h"


def test_of_the_denials_the_longest_wait_binds() -> None:
    """A refused request is told about the limit that keeps it waiting longest."""
    gate = limiter({"name": "r", "limits": ["2/minute", "2/hour", "50/day"], "algorithm": "fixed_window"})
    gate.check(Request(), cost=2)
    verdict = gate.check(Request())
    assert (verdict.policy, verdict.retry_after, verdict.reset_after) == ("r:1h", 3600.0, 3600.0)
    assert (verdict.allowed, verdict.remaining, verdict.cost, verdict.status) == (False, 0, 1, 429)


def test_never_is_the_longest_wait() -> None:
    """A cost that one limit can never admit is never admitted, whatever the others say."""
    gate = limiter({"name": "r", "limits": ["3/minute", "50/day"], "algorithm": "fixed_window"})
    gate.check(Request(), cost=3)
    verdict = gate.check(Request(), cost=4)
    assert (verdict.policy, verdict.retry_after) == ("r:1m", None)


def test_a_rules_own_minimum_counts_for_the_longest_wait() -> None:
    """Of two denials, the wait that is told includes what each rule says its callers have to wait at least."""
    gate = limiter(
        {"name": "short", "limits": "1/second", "response": {"retry_after": "90s"}, "algorithm": "fixed_window"},
        {"name": "long", "layer": "l", "limits": "1/minute", "algorithm": "fixed_window"},
    )
    gate.check(Request())
    verdict = gate.check(Request())
    assert (verdict.policy, verdict.retry_after) == ("short", 90.0)
    assert sorted(each["retry_after"] for each in verdict.as_dict()["decisions"]) == [1.0, 60.0]


def test_a_verdict_is_true_if_the_request_may_pass() -> None:
    """A verdict can be asked like a truth value, and says its gist when printed."""
    gate = limiter({"name": "r", "limits": "1/minute"})
    first, second = gate.check(Request()), gate.check(Request())
    assert first
    assert not second
    assert repr(first) == "<Verdict allowed policy='r' remaining=0 retry_after=0.0>"
    assert re.fullmatch(r"<Verdict denied policy='r' remaining=0 retry_after=[0-9.]+>", repr(second))


def test_a_verdict_of_nothing_is_exempt() -> None:
    """Where no rule applies a request passes, and there is nothing to tell."""
    verdict = limiter().check(Request())
    assert verdict.allowed
    assert (verdict.source, verdict.action, verdict.policy) == (Source.EXEMPT, Action.ALLOW, None)
    assert (verdict.limit, verdict.remaining, verdict.cost) == (None, None, None)
    assert (verdict.reset_after, verdict.retry_after, verdict.delay, verdict.status) == (0.0, 0.0, 0.0, 200)
    assert (verdict.receipts, verdict.headers(), verdict.rule) == ((), {}, None)


def test_an_allow_rule_exempts_and_is_named() -> None:
    """A verdict by an `allow` rule says which one, and counts nothing."""
    verdict = limiter({"name": "office", "action": "allow"}, {"name": "r", "limits": "1/hour"}).check(Request())
    assert (verdict.allowed, verdict.source, verdict.action) == (True, Source.EXEMPT, Action.ALLOW)
    assert (verdict.policy, verdict.status, verdict.headers()) == ("office", 200, {})


def test_a_block_rule_refuses_for_good() -> None:
    """A verdict by a `block` rule is a refusal with status 403 that never ends."""
    verdict = limiter({"name": "banned", "action": "block"}).check(Request())
    assert (verdict.allowed, verdict.source, verdict.action) == (False, Source.BLOCK, Action.BLOCK)
    assert (verdict.policy, verdict.status, verdict.retry_after, verdict.delay) == ("banned", 403, None, 0.0)
    assert verdict.receipts == ()


def test_a_block_rule_may_say_when_to_come_back() -> None:
    """A `block` rule with a `retry_after` of its own (maintenance, say) tells it."""
    response = {"status": 503, "retry_after": "2 minutes"}
    verdict = limiter({"name": "maintenance", "action": "block", "response": response}).check(Request())
    assert (verdict.status, verdict.retry_after) == (503, 120.0)
    assert verdict.headers() == {"Retry-After": "120"}


def test_throttling_tells_the_longest_delay() -> None:
    """Of several throttling rules a request has to keep the longest delay; a refused one has none."""
    bucket = {"action": "throttle", "algorithm": "token_bucket", "max_delay": "3s"}
    gate = limiter(
        {"name": "a", "limits": "1/second", **bucket},
        {"name": "b", "limits": "1/2s", "layer": "b", **bucket},
    )
    assert [gate.check(Request()).delay for _ in range(2)] == [0.0, 2.0]
    denied = gate.check(Request())
    assert (denied.allowed, denied.delay, denied.policy) == (False, 0.0, "b")


def test_a_verdict_has_one_name_and_one_set_of_receipts() -> None:
    """Asked twice, a verdict gives the same id and the same receipts; two verdicts have different ones."""
    gate = limiter({"name": "r", "limits": "9/minute"})
    one, other = gate.check(Request()), gate.check(Request())
    assert one.id == one.id != other.id
    assert one.receipts == one.receipts != other.receipts
    assert [receipt.amount for receipt in gate.check(Request(), cost=3).receipts] == [3]
    assert gate.check(Request(), cost=0).receipts == ()


def test_refused_carries_the_verdict() -> None:
    """The exception that keeps a block from running says who refused and when to come back."""
    gate = Limiter.open(clock=FakeClock())
    with (
        pytest.raises(Refused, match="refused by default: it can never be admitted") as raised,
        gate.reserve("k", "5/hour", 6),
    ):
        pytest.fail("the block ran")
    assert raised.value.verdict.retry_after is None
    gate.hit("k", "5/hour", 5, algorithm="fixed_window")
    with (
        pytest.raises(Refused, match=r"refused by default: try again in 3600.000 s"),
        gate.reserve("k", "5/hour", 1, algorithm="fixed_window"),
    ):
        pytest.fail("the block ran")


def test_an_empty_rule_set_is_a_rule_set() -> None:
    """A limiter can be opened with a rule set that has no rules."""
    assert Limiter.open(rules=RuleSet()).check(Request()).snapshot == 1


def test_a_count_is_replicated_if_the_store_counted_it_and_enough_replicas_have_it() -> None:
    """An answer without the store is on no replica; a rule that waits for none is not asked."""
    rules = [
        {"name": "safe", "limits": "9/minute", "wait_replicas": 1},
        {"name": "plain", "limits": "9/minute", "layer": "plain"},
    ]
    plan = Snapshot(parse_rule_set(rules), 1, no_zones, FakeClock()).plan(Request())
    assert [bound.rule.name for bound in plan.enforced] == ["plain", "safe"]
    plain, safe = (bound.hit for bound in plan.enforced)
    counted = Decision(allowed=True, remaining=8, reset_after=0, retry_after=0, delay=0, stamp=0, at=0)
    seldom = UnderReplicated(*counted)
    for decisions, replicated in (
        ([counted, counted], True),
        ([seldom, counted], True),
        ([counted, seldom], False),
        ([counted, degraded.allowed(safe, 0)], False),
        ([degraded.allowed(plain, 0), counted], True),
    ):
        assert verdict_of(plan, decisions).replicated is replicated
