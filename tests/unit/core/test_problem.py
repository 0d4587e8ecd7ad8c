from __future__ import annotations

from typing import Any

from headgate.core.problem import CONTENT_TYPE, QUOTA_EXCEEDED
from headgate.core.request import Request
from headgate.sync import Limiter
from headgate.testing import FakeClock


def refused(*rules: dict[str, Any], cost: int = 1, before: int = 1) -> dict[str, Any]:
    gate = Limiter.open(rules=list(rules), clock=FakeClock())
    for _ in range(before):
        gate.check(Request())
    verdict = gate.check(Request(), cost)
    assert not verdict.allowed
    return verdict.problem()


def test_a_denial_is_a_problem_document() -> None:
    """The body of a denial is a quota problem of the IETF draft that also carries `error` and `message`."""
    rule = {"name": "r", "limits": "1/minute", "algorithm": "fixed_window"}
    assert refused(rule) == {
        "type": QUOTA_EXCEEDED,
        "title": "Rate limit exceeded",
        "status": 429,
        "detail": "r allows 1/minute. Try again in 60 s.",
        "violated-policies": ["r"],
        "error": "rate_limit_exceeded",
        "message": "r allows 1/minute. Try again in 60 s.",
    }
    assert CONTENT_TYPE == "application/problem+json"


def test_all_violated_policies_are_named() -> None:
    """Every limit that refused is named, and none that would have admitted or is only watched."""
    problem = refused(
        {"name": "r", "limits": ["1/second", "1/minute", "9/hour"], "algorithm": "fixed_window"},
        {"name": "trial", "action": "log", "limits": "1/minute"},
    )
    assert problem["violated-policies"] == ["r:1s", "r:1m"]
    assert problem["detail"] == "r:1m allows 1/minute. Try again in 60 s."


def test_a_rule_may_word_its_own_message() -> None:
    """The message is the rule's own where it has one, and its status stands in the body as well."""
    response = {"status": 402, "message": "Upgrade to Premium."}
    problem = refused({"name": "r", "limits": "1/minute", "response": response})
    assert (problem["status"], problem["message"]) == (402, "Upgrade to Premium.")
    assert problem["detail"].startswith("r allows 1/minute.")


def test_a_wait_is_never_told_short() -> None:
    """The seconds in a problem's text are those of `Retry-After`: whole, and never early."""
    rule = {"name": "r", "limits": "1/1500ms", "algorithm": "token_bucket"}
    assert refused(rule)["detail"].endswith("Try again in 2 s.")


def test_an_impossible_cost_is_told_as_such() -> None:
    """A cost above the limit is told that it can never be admitted."""
    problem = refused({"name": "r", "limits": "5/minute"}, cost=6, before=0)
    assert problem["detail"] == "A cost of 6 can never be admitted by r (5/minute)."


def test_a_block_is_a_plain_problem() -> None:
    """A blocked request violated no quota: its problem says who blocked it, with status 403."""
    assert refused({"name": "banned", "action": "block"}) == {
        "type": "about:blank",
        "title": "Blocked",
        "status": 403,
        "detail": "Blocked by policy banned.",
        "violated-policies": [],
        "error": "blocked",
        "message": "Blocked by policy banned.",
    }


def test_a_block_says_what_its_rule_says() -> None:
    """The rule's own message is why, and so it is the detail as well."""
    problem = refused({"name": "banned", "action": "block", "response": {"message": "Gone for good."}})
    assert (problem["detail"], problem["message"]) == ("Gone for good.", "Gone for good.")


def test_a_bare_keys_denial_is_a_problem_too() -> None:
    """A refused `hit` has a problem document under the policy `default`."""
    gate = Limiter.open(clock=FakeClock())
    gate.hit("k", "1/minute")
    problem = gate.hit("k", "1/minute").problem()
    assert (problem["status"], problem["violated-policies"]) == (429, ["default"])
