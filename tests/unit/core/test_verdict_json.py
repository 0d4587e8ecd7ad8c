from __future__ import annotations

import json
from typing import Any

from headgate.core.parsing.rule_set import parse_rule_set
from headgate.core.request import Request
from headgate.sync import Limiter
from headgate.testing import FakeClock

MEMBERS = [
    *("allowed", "id", "snapshot", "source", "action", "delay", "policy", "limit"),
    *("remaining", "reset_after", "retry_after", "cost", "decisions"),
]
DECISION_MEMBERS = [
    *("rule", "layer", "shadow", "allowed", "limit", "window"),
    *("remaining", "reset_after", "retry_after", "cost"),
]


def limiter(*rules: dict[str, Any]) -> Limiter:
    return Limiter.open(rules=parse_rule_set(list(rules)), clock=FakeClock())


def as_json(verdict: Any) -> dict[str, Any]:  # noqa: ANN401 (a verdict)
    data: dict[str, Any] = json.loads(json.dumps(verdict.as_dict(), allow_nan=False))
    assert list(data) == MEMBERS
    for decision in data["decisions"]:
        assert list(decision) == DECISION_MEMBERS
    data.pop("id")
    return data


def test_an_admission_as_json() -> None:
    """An admitted request's verdict has exactly the members of the design, with seconds as numbers."""
    gate = limiter({"name": "r", "per": "user", "limits": "10/minute", "algorithm": "fixed_window"})
    assert as_json(gate.check(Request(user="u"), cost=4)) == {
        "allowed": True,
        "snapshot": 1,
        "source": "store",
        "action": "reject",
        "delay": 0.0,
        "policy": "r",
        "limit": 10,
        "remaining": 6,
        "reset_after": 60.0,
        "retry_after": 0.0,
        "cost": 4,
        "decisions": [
            {
                "rule": "r",
                "layer": "user",
                "shadow": False,
                "allowed": True,
                "limit": 10,
                "window": 60.0,
                "remaining": 6,
                "reset_after": 60.0,
                "retry_after": 0.0,
                "cost": 4,
            }
        ],
    }


def test_never_is_null() -> None:
    """In JSON a wait that never ends is null, of the verdict and of the decision."""
    data = as_json(limiter({"name": "r", "limits": "10/minute"}).check(Request(), cost=11))
    assert (data["allowed"], data["retry_after"]) == (False, None)
    assert (data["remaining"], data["cost"], data["reset_after"]) == (10, 11, 0.0)
    assert data["decisions"][0]["retry_after"] is None


def test_a_denial_shows_what_stands() -> None:
    """In a refused request every limit is shown as it stands: nothing was counted for it."""
    gate = limiter({"name": "r", "limits": ["1/minute", "10/hour"], "algorithm": "fixed_window"})
    gate.check(Request())
    data = as_json(gate.check(Request()))
    shown = [(each["window"], each["allowed"], each["remaining"], each["retry_after"]) for each in data["decisions"]]
    assert shown == [(60.0, False, 0, 60.0), (3600.0, True, 9, 0.0)]


def test_a_watched_rule_is_marked() -> None:
    """A `log` rule's decision stands among the others, marked as shadow, and decides nothing."""
    gate = limiter({"name": "r", "limits": "9/minute"}, {"name": "trial", "action": "log", "limits": "1/minute"})
    gate.check(Request())
    data = as_json(gate.check(Request()))
    assert (data["allowed"], data["policy"], data["remaining"]) == (True, "r", 7)
    shown = [(each["rule"], each["shadow"], each["allowed"]) for each in data["decisions"]]
    assert shown == [("r", False, True), ("trial", True, False)]


def test_a_block_as_json() -> None:
    """A blocked request's verdict names the rule and has no decisions."""
    data = as_json(limiter({"name": "banned", "action": "block"}).check(Request()))
    assert (data["source"], data["action"], data["policy"]) == ("block", "block", "banned")
    assert (data["allowed"], data["retry_after"], data["decisions"]) == (False, None, [])
    assert (data["limit"], data["remaining"], data["reset_after"], data["cost"]) == (None, None, 0.0, None)


def test_a_bare_key_as_json() -> None:
    """The verdict on a bare key has the same members, under the policy `default` and snapshot 0."""
    gate = limiter()
    for _ in range(2):  # the second takes the fast path
        data = as_json(gate.hit("k", "10/minute", algorithm="token_bucket"))
    assert (data["policy"], data["snapshot"], data["limit"], data["remaining"]) == ("default", 0, 10, 8)
    assert data["decisions"][0]["rule"] == "default"


def test_slots_and_months_have_windows_too() -> None:
    """The window of slots is how long they are held; that of a calendar limit is how long the present one lasts."""
    gate = limiter(
        {"name": "s", "limits": "3 concurrent ttl 30s", "algorithm": "concurrency"},
        {"name": "m", "layer": "m", "limits": "9/calendar month", "algorithm": "fixed_window"},
    )
    windows = {each["rule"]: each["window"] for each in as_json(gate.check(Request()))["decisions"]}
    assert windows == {"s": 30.0, "m": 31 * 86_400.0}
