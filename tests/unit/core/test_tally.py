"""Counting requests by user, for the totals that operators see."""

from __future__ import annotations

from headgate.core.counts import Count
from headgate.core.event import EventKind
from headgate.core.tally import Seen, Tally
from headgate.testing import FakeClock

START = 1_000_000


def _count(user: str | None, requests: int = 1, kind: EventKind = EventKind.ALLOWED) -> Count:
    return Count(0, user, None, None, ("two", 1), kind.value, None, is_degraded=False, requests=requests)


def test_requests_and_refusals_are_counted_by_user() -> None:
    """Both count as requests; when the last came is known of users and of keys."""
    clock = FakeClock(START)
    tally = Tally(clock, 10)
    tally.count([_count("u1", 2), _count("u1", 1, EventKind.SHADOW)], {"k1": START - 1})
    clock.advance(micros=3)
    tally.count([_count("u1", 1, EventKind.DENIED), _count("u1", 1, EventKind.BLOCKED), _count("u2")], {"k1": START})
    assert tally.take() == ({"u1": Seen(5, 2, START + 3), "u2": Seen(1, 0, START + 3)}, {"k1": START})
    assert tally.take() == ({}, {})


def test_whoever_has_no_name_is_not_counted() -> None:
    """There is nobody to show the total of."""
    tally = Tally(FakeClock(START), 10)
    tally.count([_count(None)], {})
    assert tally.take() == ({}, {})


def test_what_could_not_be_kept_is_counted_again() -> None:
    """What came meanwhile is added to it."""
    clock = FakeClock(START)
    tally = Tally(clock, 10)
    tally.count([_count("u1")], {"k1": START})
    taken = tally.take()
    clock.advance(micros=5)
    tally.count([_count("u1")], {"k1": START + 5})
    tally.put_back(*taken)
    assert tally.take() == ({"u1": Seen(2, 0, START + 5)}, {"k1": START + 5})


def test_names_without_end_do_not_fill_memory() -> None:
    """Beyond a bound newcomers are left out, and counted as such."""
    tally = Tally(FakeClock(START), 2)
    tally.count([_count(f"u{number}") for number in range(5)], {f"k{number}": START for number in range(5)})
    assert tally.left_out == 3
    users, keys = tally.take()
    assert (list(users), list(keys)) == (["u0", "u1"], ["k0", "k1"])
