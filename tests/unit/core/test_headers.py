from __future__ import annotations

from typing import TYPE_CHECKING, Any

import http_sf
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.headers import Reset
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.core.request import Request
from headgate.core.units import SECOND
from headgate.sync import Limiter
from headgate.testing import FakeClock

if TYPE_CHECKING:
    from headgate.core.verdict import Verdict


def limiter(*rules: dict[str, Any], clock: FakeClock | None = None) -> Limiter:
    return Limiter.open(rules=parse_rule_set(list(rules)), clock=clock or FakeClock())


def members(text: str) -> dict[str, dict[str, Any]]:
    """A structured field's members with their parameters, by a parser that is not ours."""
    parsed: Any = http_sf.parse(text.encode("ascii"), tltype="list")
    return {name: dict(parameters) for name, parameters in parsed}


def test_an_admission() -> None:
    """An admitted request is told limit, remaining, reset and cost, in the old headers and in the new ones."""
    clock = FakeClock()
    clock.advance(seconds=10.5)
    gate = limiter({"name": "r", "limits": "10/minute", "algorithm": "fixed_window"}, clock=clock)
    assert gate.check(Request(), cost=3).headers() == {
        "X-RateLimit-Limit": "10",
        "X-RateLimit-Remaining": "7",
        "X-RateLimit-Reset": "1767225660",
        "X-RateLimit-Cost": "3",
        "RateLimit-Policy": '"r";q=10;w=60',
        "RateLimit": '"r";r=7;t=50',
    }


def test_a_denial() -> None:
    """A refused request is also told when to come back, in whole seconds, never early."""
    clock = FakeClock()
    clock.advance(seconds=10.5)
    gate = limiter({"name": "r", "limits": "1/minute", "algorithm": "fixed_window"}, clock=clock)
    gate.check(Request())
    headers = gate.check(Request()).headers()
    assert headers["Retry-After"] == "50"
    assert headers["RateLimit"] == '"r";r=0;t=50'
    clock.advance(seconds=49.4)
    assert gate.check(Request()).headers()["Retry-After"] == "1"


def test_several_policies() -> None:
    """Every limit that applies is a policy of its own, and the old headers speak of the binding one."""
    gate = limiter(
        {"name": "r", "limits": ["10/second", "100/hour"], "algorithm": "fixed_window"},
        {"name": "other", "layer": "o", "limits": "50/day", "algorithm": "fixed_window"},
        {"name": "trial", "action": "log", "limits": "1/day"},
    )
    headers = gate.check(Request(), cost=6).headers()
    assert members(headers["RateLimit-Policy"]) == {
        "r:1s": {"q": 10, "w": 1},
        "r:1h": {"q": 100, "w": 3600},
        "other": {"q": 50, "w": 86_400},
    }
    assert members(headers["RateLimit"]) == {
        "r:1s": {"r": 4, "t": 1},
        "r:1h": {"r": 94, "t": 3600},
        "other": {"r": 44, "t": 86_400},
    }
    assert (headers["X-RateLimit-Limit"], headers["X-RateLimit-Remaining"]) == ("10", "4")


def test_policies_that_did_not_refuse_have_no_time_in_a_refusal() -> None:
    """`Retry-After` is never earlier than any `t`, since those who would have admitted come without one."""
    gate = limiter({"name": "r", "limits": ["1/second", "100/hour"], "algorithm": "fixed_window"})
    gate.check(Request())
    headers = gate.check(Request()).headers()
    assert members(headers["RateLimit"]) == {"r:1s": {"r": 0, "t": 1}, "r:1h": {"r": 99}}
    assert headers["Retry-After"] == "1"


def test_windows_below_a_second() -> None:
    """A window that is no whole number of seconds is told as the next longer one, which promises less."""
    gate = limiter({"name": "r", "limits": ["5/100ms", "7/1500ms"]})
    policies = members(gate.check(Request()).headers()["RateLimit-Policy"])
    assert policies == {"r:100ms": {"q": 5, "w": 1}, "r:1500ms": {"q": 7, "w": 2}}


def test_slots_are_concurrent_requests() -> None:
    """A concurrency limit is told with the unit that the draft has for it, and without a window."""
    gate = limiter({"name": "s", "limits": "2 concurrent ttl 30s", "algorithm": "concurrency"})
    headers = gate.check(Request()).headers()
    assert members(headers["RateLimit-Policy"]) == {"s": {"q": 2, "qu": "concurrent-requests"}}
    assert members(headers["RateLimit"]) == {"s": {"r": 1, "t": 30}}


def test_calendar_windows() -> None:
    """A calendar limit is told with the length of the present window, and its name is a plain string."""
    limits = ["9/calendar month anchor 15 tz Europe/Berlin", "5/calendar day"]
    headers = limiter({"name": "r", "limits": limits, "algorithm": "fixed_window"}).check(Request()).headers()
    policies = members(headers["RateLimit-Policy"])
    assert policies["r:calendar-day"] == {"q": 5, "w": 86_400}
    assert policies["r:calendar-month-anchor-15-tz-Europe/Berlin"]["w"] == 31 * 86_400


def test_never_has_no_retry_after() -> None:
    """A cost that can never be admitted is not told to come back."""
    headers = limiter({"name": "r", "limits": "5/minute"}).check(Request(), cost=6).headers()
    assert "Retry-After" not in headers
    assert members(headers["RateLimit"]) == {"r": {"r": 5, "t": 0}}


def test_blocked_and_exempt_have_no_limits_to_tell() -> None:
    """Neither a blocked nor an exempt request gets rate limit headers."""
    assert limiter({"name": "b", "action": "block"}).check(Request()).headers() == {}
    assert limiter({"name": "a", "action": "allow"}).check(Request()).headers() == {}


def test_the_rules_own_minimum_is_told() -> None:
    """`Retry-After` is at least what the rule says."""
    gate = limiter({"name": "r", "limits": "1/second", "response": {"retry_after": "90s"}})
    gate.check(Request())
    assert gate.check(Request()).headers()["Retry-After"] == "90"


def test_numbers_fit_into_structured_fields() -> None:
    """Even the longest reset there can be is a whole number that a structured field can hold."""
    gate = limiter({"name": "r", "limits": "1/day burst 18300", "algorithm": "token_bucket"})
    headers = gate.check(Request(), cost=18_300).headers()
    assert members(headers["RateLimit"])["r"] == {"r": 0, "t": 18_300 * 86_400}


LIMITS = st.builds("{}/{}{}".format, st.integers(1, 30), st.integers(1, 5_000), st.sampled_from(("ms", "s", "us", "m")))


@pytest.mark.untraced
@settings(max_examples=200, deadline=None)
@given(
    st.lists(LIMITS, min_size=1, max_size=3, unique_by=lambda text: text.partition("/")[2]),
    st.sampled_from(("fixed_window", "sliding_window_counter", "sliding_window_log", "token_bucket")),
    st.lists(st.tuples(st.integers(0, 3_000_000), st.integers(0, 40)), max_size=12),
)
def test_headers_never_promise_more_than_is_true(
    limits: list[str], algorithm: str, steps: list[tuple[int, int]]
) -> None:
    """A client that follows the headers comes neither too early nor with more than is left."""
    clock = FakeClock()
    try:
        gate = limiter({"name": "r", "limits": limits, "algorithm": algorithm}, clock=clock)
    except ValueError:
        return  # two of the periods were one
    for wait, cost in steps:
        clock.advance(micros=wait)
        verdict = gate.check(Request(), cost)
        told, policies = (members(verdict.headers()[name]) for name in ("RateLimit", "RateLimit-Policy"))
        assert list(told) == list(policies)
        for finding in verdict.findings:
            decision, meter = finding.decision, finding.hit.meter
            assert told[finding.policy]["r"] <= decision.remaining
            assert policies[finding.policy]["q"] == meter.amount
            assert policies[finding.policy]["w"] * SECOND >= meter.period
        assert_patient(verdict, told)
        assert int(verdict.headers(Reset.FULL)["X-RateLimit-Reset"]) * SECOND >= clock() + verdict.reset_after * SECOND


def assert_patient(verdict: Verdict, told: dict[str, dict[str, Any]]) -> None:
    retry_after = verdict.headers().get("Retry-After")
    if verdict.allowed or verdict.retry_after is None:
        assert retry_after is None
        return
    assert retry_after is not None
    assert int(retry_after) >= max(1, verdict.retry_after)
    assert int(retry_after) >= max(policy.get("t", 0) for policy in told.values())


@pytest.mark.parametrize("name", ["a.b-c_d", "A" * 64, "0"])
def test_names_are_plain_strings(name: str) -> None:
    """Every name that a rule may have can stand in a structured field."""
    headers = limiter({"name": name, "limits": "5/minute"}).check(Request()).headers()
    assert list(members(headers["RateLimit"])) == [name]
