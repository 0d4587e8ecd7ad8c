"""What a client may send besides calls."""

from __future__ import annotations

import pytest

from headgate.protocols.http2.budget import CONTROL, RESETS, Budget
from headgate.protocols.http2.frames import CloseReason, ErrorCode, Http2Error


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_control_frames_are_bounded_and_come_back_with_time_and_calls() -> None:
    """A burst, then so many a second and for each call that is answered or refused, and never more than the burst."""
    clock = Clock()
    budget = Budget(clock)
    for _ in range(int(CONTROL.burst)):
        budget.control()
    with pytest.raises(Http2Error) as raised:
        budget.control()
    assert raised.value.code is ErrorCode.ENHANCE_YOUR_CALM
    assert raised.value.reason is CloseReason.CONTROL_FRAMES
    assert raised.value.figures == "2001 control frames and 0 answered calls in 0.0 s"
    clock.now += 1
    budget.control(int(CONTROL.per_second) - 1)
    budget.answered += 1
    budget.refused += 1
    budget.control(int(CONTROL.per_answer + CONTROL.per_refusal))
    with pytest.raises(Http2Error):
        budget.control()
    clock.now += 10_000
    budget.control(int(CONTROL.burst))
    with pytest.raises(Http2Error):
        budget.control(2)


def test_resets_are_bounded_for_half_a_minute_even_if_every_call_was_answered_first() -> None:
    """A thousand, and one more for every ten calls that were answered."""
    clock = Clock()
    budget = Budget(clock)

    def reset_all() -> None:
        while True:
            budget.answered += 1
            budget.reset()

    with pytest.raises(Http2Error) as raised:
        reset_all()
    assert raised.value.reason is CloseReason.RESETS
    assert RESETS.burst < budget.answered < 1.2 * RESETS.burst
    clock.now += 30
    for _ in range(int(RESETS.burst) - 1):
        budget.reset()


def test_a_client_whose_calls_are_answered_may_reset_some() -> None:
    """One in twenty, for as long as it likes."""
    budget = Budget(Clock())
    for _ in range(5_000):
        budget.answered += 20
        budget.reset()
        budget.control(3)
