from __future__ import annotations

import random
from itertools import pairwise

import pytest

from headgate.core.breaker import BUCKET, MIN_CALLS, ONE_IN, TRANSITIONS, TRIALS, Breaker, Event, State

MILLISECOND = 1_000


class Watched:
    """A breaker, and what it told of itself."""

    def __init__(self) -> None:
        self.changes: list[State] = []
        self.breaker = Breaker(self.changes.append)

    def failures(self, count: int, *, every: int, start: int = 0) -> None:
        for number in range(count):
            self.breaker.failed(start + number * every)

    def open(self) -> None:
        self.failures(MIN_CALLS, every=1)
        assert self.breaker.state is State.OPEN


def test_it_begins_closed_and_lets_everything_through() -> None:
    """A server that nothing is known of is asked."""
    watched = Watched()
    assert watched.breaker.state is State.CLOSED
    assert all(watched.breaker.admits() for _ in range(20))


def test_the_table_is_what_the_picture_says() -> None:
    """There are four ways from one state to another, and no more."""
    assert TRANSITIONS == {
        (State.CLOSED, Event.TRIPPED): State.OPEN,
        (State.OPEN, Event.ANSWERED): State.HALF_OPEN,
        (State.HALF_OPEN, Event.FAILED): State.OPEN,
        (State.HALF_OPEN, Event.PROVEN): State.CLOSED,
    }


def test_it_trips_when_half_of_the_calls_fail() -> None:
    """Half of the last calls failing is too often; less than half is not."""
    watched = Watched()
    for number in range(40):
        watched.breaker.succeeded(number)
        watched.breaker.succeeded(number)
        watched.breaker.failed(number)
    assert watched.breaker.state is State.CLOSED
    watched.failures(60, every=1, start=40)
    assert watched.changes == [State.OPEN]


def test_a_few_failures_say_nothing() -> None:
    """Fewer than five calls have no rate, as long as they do not fail over a time."""
    watched = Watched()
    watched.failures(MIN_CALLS - 1, every=1)
    assert watched.breaker.state is State.CLOSED


def test_old_calls_are_forgotten() -> None:
    """Only the last tenths of a second count: what went well a second ago excuses nothing now."""
    watched = Watched()
    for _ in range(1_000):
        watched.breaker.succeeded(0)
    watched.failures(MIN_CALLS, every=1, start=10 * BUCKET)
    assert watched.breaker.state is State.OPEN


def test_the_bucket_before_still_counts() -> None:
    """Calls of the tenth of a second before are not forgotten at its end."""
    watched = Watched()
    for _ in range(100):
        watched.breaker.succeeded(BUCKET - 1)
    watched.failures(MIN_CALLS, every=1, start=BUCKET)
    assert watched.breaker.state is State.CLOSED


def test_where_calls_are_few_three_failures_in_a_row_are_enough() -> None:
    """A server that fails the only calls it gets for a tenth of a second is given up."""
    watched = Watched()
    watched.failures(3, every=BUCKET // 2)
    assert watched.breaker.state is State.OPEN


def test_a_success_ends_a_row() -> None:
    """Failures that successes lie between are no row."""
    watched = Watched()
    for number in range(10):
        watched.breaker.failed(number * 3 * BUCKET)
        watched.breaker.succeeded(number * 3 * BUCKET + BUCKET)
    assert watched.breaker.state is State.CLOSED


def test_open_it_lets_nothing_through() -> None:
    """A server behind an open circuit is not called, whatever late answers or failures still come."""
    watched = Watched()
    watched.open()
    watched.breaker.succeeded(1)
    watched.breaker.failed(2)
    assert not any(watched.breaker.admits() for _ in range(100))
    assert watched.changes == [State.OPEN]


def test_half_open_a_small_share_tries() -> None:
    """After one answered probe one call in ten goes through."""
    watched = Watched()
    watched.open()
    watched.breaker.answered_probe(10)
    assert sum(watched.breaker.admits() for _ in range(10 * ONE_IN)) == 10


@pytest.mark.parametrize("by_probes", [False, True])
def test_it_closes_when_enough_tries_have_succeeded(by_probes: bool) -> None:  # noqa: FBT001 (a parameter)
    """Calls that were let through, or further probes, prove that a server has recovered."""
    watched = Watched()
    watched.open()
    watched.breaker.answered_probe(10)
    for number in range(TRIALS):
        assert watched.breaker.state is State.HALF_OPEN
        (watched.breaker.answered_probe if by_probes else watched.breaker.succeeded)(20 + number)
    assert watched.changes == [State.OPEN, State.HALF_OPEN, State.CLOSED]


def test_half_open_one_failure_opens_it_again() -> None:
    """A server that fails a try is unavailable as before, and has to prove itself from the beginning."""
    watched = Watched()
    watched.open()
    watched.breaker.answered_probe(10)
    watched.breaker.succeeded(11)
    watched.breaker.failed(12)
    watched.breaker.answered_probe(13)
    watched.breaker.succeeded(14)
    assert watched.changes == [State.OPEN, State.HALF_OPEN, State.OPEN, State.HALF_OPEN]


def test_a_probe_of_a_closed_breaker_means_nothing() -> None:
    """What is not in the table cannot happen."""
    watched = Watched()
    watched.breaker.answered_probe(0)
    assert watched.changes == []


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_it_only_moves_as_the_table_says(seed: int) -> None:
    """Of all random histories none leads from one state to another that the table does not name."""
    chance, watched, now = random.Random(seed), Watched(), 0
    for _ in range(2_000):
        now += chance.choice((0, MILLISECOND, 30 * MILLISECOND, BUCKET))
        breaker = watched.breaker
        chance.choice((breaker.succeeded, breaker.failed, breaker.failed, breaker.answered_probe))(now)
        breaker.admits()
    path = [State.CLOSED, *watched.changes]
    allowed = {(before, after) for (before, _), after in TRANSITIONS.items()}
    assert set(pairwise(path)) <= allowed
    assert len(path) > 10
