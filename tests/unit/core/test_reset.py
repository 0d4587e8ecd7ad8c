"""What `X-RateLimit-Reset` says: when there is more, or, if that is set, when there is all of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.headers import Reset, more_after
from headgate.core.request import Request
from headgate.core.units import SECOND
from headgate.sync import Limiter
from headgate.testing import FakeClock

ANN = Request(user="ann")
_START = 1_767_225_600
"""Where the fake clock begins: a whole minute."""


def reset(gate: Limiter, clock: FakeClock, cost: int = 1, which: Reset = Reset.NEXT) -> float:
    """How many seconds after the start of the clock's first minute `X-RateLimit-Reset` points to."""
    assert clock() >= _START * SECOND
    return int(gate.check(ANN, cost).headers(which)["X-RateLimit-Reset"]) - _START


def gate_at(seconds: float, **rule: Any) -> tuple[Limiter, FakeClock]:  # noqa: ANN401 (a rule's members)
    if rule["algorithm"] == "leaky_bucket":
        rule = {"action": "throttle", "max_delay": "1 minute", **rule}
    clock = FakeClock()
    clock.advance(seconds=seconds)
    return Limiter.open(rules=[{"name": "r", "per": "user", **rule}], clock=clock), clock


@pytest.mark.parametrize(
    ("algorithm", "cost", "more", "everything"),
    [
        ("fixed_window", 1, 60, 60),
        ("sliding_window_counter", 1, 60, 61),
        ("sliding_window_counter", 10, 60, 115),
        ("sliding_window_log", 1, 65, 65),
        ("token_bucket", 1, 11, 11),
        ("token_bucket", 7, 11, 47),
        ("leaky_bucket", 7, 11, 47),
    ],
)
def test_an_admission_says_when_there_is_more(algorithm: str, cost: int, more: int, everything: int) -> None:
    """The window's end, or the next token; with `full`, when all of the limit is available again."""
    for which, expected in ((Reset.NEXT, more), (Reset.FULL, everything)):
        gate, clock = gate_at(5, limits="10/minute", algorithm=algorithm)
        assert reset(gate, clock, cost, which) == expected


@pytest.mark.parametrize(
    ("algorithm", "again", "everything"),
    [("sliding_window_counter", 61, 115), ("token_bucket", 11, 65), ("sliding_window_log", 65, 65)],
)
def test_a_denial_says_when_to_come_again(algorithm: str, again: int, everything: int) -> None:
    """In a denial it is the moment that `Retry-After` counts to."""
    for which, expected in ((Reset.NEXT, again), (Reset.FULL, everything)):
        gate, _ = gate_at(5, limits="10/minute", algorithm=algorithm)
        gate.check(ANN, 10)
        denied = gate.check(ANN)
        assert not denied.allowed
        assert int(denied.headers(which)["X-RateLimit-Reset"]) - _START == expected
    assert int(denied.headers()["Retry-After"]) == again - 5


def test_a_rule_that_makes_callers_wait_longer_is_in_it() -> None:
    """A rule's own `retry_after` is when the caller may come again."""
    gate, clock = gate_at(5, limits="1/minute", algorithm="fixed_window", response={"retry_after": "5 minutes"})
    gate.check(ANN)
    assert reset(gate, clock) == 305


def test_what_never_passes_has_the_end_of_the_limit() -> None:
    """A cost above the limit can never pass: then it is when the whole limit is available."""
    gate, clock = gate_at(5, limits="10/minute", algorithm="fixed_window")
    gate.check(ANN)
    assert reset(gate, clock, 11) == 60


def test_a_queue_that_is_too_long_has_room_when_it_is_shorter() -> None:
    """A leaky bucket whose queue takes longer than `max_delay` has nothing left until it is as short as that."""
    gate, clock = gate_at(5, limits="10/minute", algorithm="leaky_bucket", max_delay="12 seconds")
    assert reset(gate, clock, 5) == 5 + 30 - 12


LIMITS = st.sampled_from(["10/minute", "3/second", "7/3s", "100/hour", "1/minute"])
ALGORITHMS = st.sampled_from(
    ["fixed_window", "sliding_window_counter", "sliding_window_log", "token_bucket", "leaky_bucket"]
)


@pytest.mark.untraced
@settings(max_examples=300, deadline=None)
@given(LIMITS, ALGORITHMS, st.lists(st.tuples(st.integers(0, 90_000_000), st.integers(0, 5)), min_size=1, max_size=12))
def test_there_is_more_at_that_moment(limit: str, algorithm: str, steps: list[tuple[int, int]]) -> None:
    """Who comes then finds more than was left."""
    gate, clock = gate_at(0, limits=limit, algorithm=algorithm)
    for wait, cost in steps:
        clock.advance(micros=wait)
        verdict = gate.check(ANN, cost)
        binding = verdict.binding
        assert binding is not None
        if not verdict.allowed:
            continue
        after = more_after(binding.hit.meter, binding.decision)
        assert 0 <= after <= binding.decision.reset_after
        if not binding.decision.reset_after:
            assert binding.decision.remaining == binding.hit.meter.capacity
            continue
        now = clock.now
        clock.now += after + (algorithm == "sliding_window_counter")  # from the end of its window on it fades
        more = gate.peek(ANN, cost=0).remaining
        clock.now = now
        assert more is not None
        assert more > binding.decision.remaining
