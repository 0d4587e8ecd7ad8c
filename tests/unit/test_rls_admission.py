"""Admissions that are written by hand say what the slow path says."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate import Limiter, Request, Verdict
from headgate.core import degraded
from headgate.core.headers import Reset
from headgate.core.lease import FromLease
from headgate.core.verdict import verdict
from headgate.edge.rls.admission import Admissions
from headgate.edge.rls.decisions import response_of
from headgate.edge.rls.protobuf import write_response

ALGORITHMS = ("fixed_window", "sliding_window_counter", "sliding_window_log", "token_bucket", "concurrency")


def checked(request: Request | None = None, cost: int | None = None, **rule: Any) -> Verdict:  # noqa: ANN401 (a rule's members)
    limiter = Limiter.open("memory://", rules=[{"name": "some", **rule}])
    assert limiter.check_now is not None
    return limiter.check_now(request or Request(), cost)


def written(made: Verdict, reset: Reset = Reset.NEXT) -> bytes:
    return write_response(response_of(made, (made,), reset))


@given(
    st.sampled_from(ALGORITHMS),
    st.integers(1, 60_000),
    st.sampled_from(["second", "minute", "7 minutes", "day", "30 days", "366 days"]),
    st.integers(0, 3),
    st.from_regex(r"[a-z][a-z0-9-]{0,60}", fullmatch=True),
)
def test_what_is_written_by_hand_is_the_same(algorithm: str, amount: int, period: str, cost: int, name: str) -> None:
    """Byte by byte, whatever the limit, its algorithm, its name and the cost."""
    limits = f"{min(amount, 10_000)} concurrent" if algorithm == "concurrency" else f"{amount}/{period}"
    made = checked(name=name, limits=limits, algorithm=algorithm, cost=cost)
    if made.allowed:
        leased = verdict(made.plan, [FromLease(*decision) for decision in made.decisions])
        for reset in Reset:
            for each in (made, leased):
                assert Admissions(reset).message(each) == written(each, reset)


def test_phrases_are_remembered_for_their_limit_and_cost_only() -> None:
    """One limit under two costs, and under two names as when a rule is renamed, is told of in its own words."""
    admissions = Admissions()
    limiter = Limiter.open("memory://", rules=[{"name": "some", "limits": "100/hour"}])
    assert limiter.check_now is not None
    for cost in (1, 5, 1):
        made = limiter.check_now(Request(), cost)
        assert admissions.message(made) == written(made)
    plan = made.plan
    bound = plan.enforced[0]._replace(policy="another")
    renamed = verdict(plan._replace(enforced=(bound,)), made.decisions)
    message = admissions.message(renamed)
    assert message == written(renamed)
    assert message is not None
    assert b"another" in message


@pytest.mark.parametrize(
    "made",
    [
        checked(limits="1/hour", cost=2),
        checked(limits=["9/hour", "5/minute"]),
        checked(limits="9/hour", action="log"),
        checked(action="allow"),
        checked(action="block"),
    ],
    ids=["a denial", "several limits", "only watched", "exempt", "blocked"],
)
def test_everything_else_takes_the_slow_path(made: Verdict) -> None:
    """What is rare is not written by hand."""
    assert Admissions().message(made) is None


def test_an_admission_without_counters_takes_the_slow_path() -> None:
    """Nothing was decided, so Envoy is not told that something was."""
    made = checked(limits="1/hour")
    passed = verdict(made.plan, [degraded.without_counting(made.plan.enforced[0].hit, 0)])
    assert Admissions().message(passed) is None
