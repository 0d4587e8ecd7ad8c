"""Counting requests by user, for the totals that operators see."""

from __future__ import annotations

from headgate.core.counts import Count
from headgate.core.event import EventKind
from headgate.core.tally import Seen, Tally
from headgate.testing import FakeClock

START = 1_000_000
NOTHING = Seen({}, {}, {}, {})


def _count(user: str | None, requests: int = 1, kind: EventKind = EventKind.ALLOWED) -> Count:
    return _group({user: requests}, kind)


def _group(users: dict[str | None, int], kind: EventKind = EventKind.ALLOWED) -> Count:
    return Count(0, users, None, None, is_degraded=False, charged=("two", 1), kind=kind.value, rule=None)


def test_requests_and_refusals_are_counted_by_user() -> None:
    """Both count as requests; when the last came is known of users and of keys."""
    clock = FakeClock(START)
    tally = Tally(clock, 10)
    tally.count([_count("u1", 2), _count("u1", 1, EventKind.SHADOW)], {"k1": START - 1})
    clock.advance(micros=3)
    tally.count([_count("u1", 1, EventKind.DENIED), _count("u1", 1, EventKind.BLOCKED), _count("u2")], {"k1": START})
    last = dict.fromkeys(("u1", "u2"), START + 3)
    assert tally.take() == Seen({"u1": 5, "u2": 1}, {"u1": 2}, last, {"k1": START})
    assert tally.take() == NOTHING


def test_requests_without_a_user_are_not_counted() -> None:
    """There is no user to show the total of."""
    tally = Tally(FakeClock(START), 10)
    tally.count([_group({None: 1, "": 2, "u1": 3})], {})
    assert tally.take().requests == {"u1": 3}


def test_what_could_not_be_kept_is_counted_again() -> None:
    """What came meanwhile is added to it."""
    clock = FakeClock(START)
    tally = Tally(clock, 10)
    tally.count([_count("u1"), _count("u2", 3, EventKind.DENIED)], {"k1": START})
    taken = tally.take()
    clock.advance(micros=5)
    tally.count([_count("u1")], {"k1": START + 5})
    tally.put_back(taken)
    assert tally.take() == Seen({"u1": 2, "u2": 3}, {"u2": 3}, {"u1": START + 5, "u2": START}, {"k1": START + 5})
    tally.put_back(taken.only(["u2"], []))
    assert tally.take() == Seen({"u2": 3}, {"u2": 3}, {"u2": START}, {})


def test_names_without_end_do_not_fill_memory() -> None:
    """Beyond a bound newcomers are left out, and counted as such."""
    tally = Tally(FakeClock(START), 2)
    group = _group({f"u{number}": number for number in range(5)}, EventKind.DENIED)
    tally.count([_count("u1"), group, group], {f"k{number}": START for number in range(5)})
    assert tally.left_out == 2 * (2 + 3 + 4)
    seen = tally.take()
    assert (seen.requests, seen.denied) == ({"u1": 3, "u0": 0}, {"u1": 2, "u0": 0})
    assert (list(seen.last), list(seen.keys)) == (["u1", "u0"], ["k0", "k1"])
