"""Of many refusals some become events: how many is bounded, and what each stands for adds up."""

from __future__ import annotations

from collections import Counter
from math import log10
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.spool import event

from headgate.core.thinning import EventBudget, Thinning

if TYPE_CHECKING:
    from headgate.core.event import Event


def _made(happened: tuple[str]) -> Event:
    return event(user=happened[0])


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(1, 300)), max_size=12),
    st.integers(1, 20),
    st.integers(1, 10_000),
    st.integers(0, 10),
)
def test_what_events_stand_for_adds_up(runs: list[tuple[str, int]], first: int, overall: int, most: int) -> None:
    """For each subject no event stands for more than there was; with what is left out, all refusals are there."""
    thinning = Thinning(_made, EventBudget(first, overall), most)
    refused: Counter[str] = Counter()
    stood_for: Counter[str] = Counter()
    events = 0
    for subject, many in runs:
        refused[subject] += many
        for _ in range(many):
            stands_for = thinning.refuse(subject, (subject,))
            stood_for[subject] += stands_for
            events += stands_for > 0
    for kept, stands_for in thinning.end_minute():
        stood_for[str(kept.user)] += stands_for
        events += 1
    assert stood_for.total() + thinning.left_out == refused.total()
    assert all(stood_for[subject] <= refused[subject] for subject in refused)
    if overall >= refused.total() and most >= len(refused):
        assert stood_for == refused
        assert thinning.left_out == 0
    assert events <= _bound(refused.total(), overall)
    assert not thinning.end_minute()


@given(st.integers(1, 50), st.integers(1, 20_000))
def test_one_subject_has_the_first_few_and_then_fewer(first: int, many: int) -> None:
    """The first are events of their own, and however many follow, the number of events grows by their digits."""
    thinning = Thinning(_made, EventBudget(first, 1_000_000))
    kept = [number for number in range(1, many + 1) if thinning.refuse("a", ("a",))]
    assert kept[:first] == [*range(1, min(first, many) + 1)]
    assert len(kept) <= _bound(many, first)


def _bound(many: int, first: int) -> float:
    """The most that may be kept; a round number more for each digit, where `first` is none itself."""
    if many <= first:
        return many
    digits = log10(many / first)
    return first * (1 + 0.9 * digits) + digits + 2
