"""Counting requests by user, for the totals that operators see."""

from __future__ import annotations

import asyncio

from headgate import Request
from headgate import facade as asynchronous
from headgate.core.tally import Seen, Tally
from headgate.sync import Limiter
from headgate.testing import FakeClock

START = 1_000_000


def _tally(most: int = 10) -> tuple[Tally, Limiter, FakeClock]:
    clock = FakeClock(START)
    limiter = Limiter.open(
        "memory://", {"rules": [{"name": "two", "per": ["user"], "limits": "2/minute"}]}, clock=clock
    )
    return Tally(clock, most), limiter, clock


def test_requests_and_refusals_are_counted_by_user() -> None:
    """Both count as requests; when the last came is known of users and of keys."""
    tally, limiter, clock = _tally()
    request = Request(user="u1", api_key="k1")
    for _ in range(3):
        clock.advance(micros=1)
        tally.offer(request, limiter.check(request))
    assert tally.take() == ({"u1": Seen(3, 1, START + 3)}, {"k1": START + 3})
    assert tally.take() == ({}, {})


def test_whoever_has_no_name_is_not_counted() -> None:
    """There is nobody to show the total of."""
    tally, limiter, _ = _tally()
    request = Request(ip="192.0.2.1")
    tally.offer(request, limiter.check(request))
    assert tally.take() == ({}, {})


def test_what_could_not_be_kept_is_counted_again() -> None:
    """What came meanwhile is added to it."""
    tally, limiter, clock = _tally()
    request = Request(user="u1", api_key="k1")
    tally.offer(request, limiter.check(request))
    taken = tally.take()
    clock.advance(micros=5)
    tally.offer(request, limiter.check(request))
    tally.put_back(*taken)
    assert tally.take() == ({"u1": Seen(2, 0, START + 5)}, {"k1": START + 5})


def test_names_without_end_do_not_fill_memory() -> None:
    """Beyond a bound newcomers are left out, and counted as such."""
    tally, limiter, _ = _tally(most=2)
    for number in range(5):
        request = Request(user=f"u{number}", api_key=f"k{number}")
        tally.offer(request, limiter.check(request))
    assert tally.left_out == 3
    users, keys = tally.take()
    assert (list(users), list(keys)) == (["u0", "u1"], ["k0", "k1"])


def test_names_that_nobody_can_have_are_not_remembered() -> None:
    """What is longer than any id on record would only take memory."""
    tally, limiter, _ = _tally()
    for request in (Request(user="u" * 256), Request(api_key="k" * 256)):
        tally.offer(request, limiter.check(request))
    assert tally.take() == ({}, {})
    request = Request(user="u" * 255)
    tally.offer(request, limiter.check(request))
    assert list(tally.users) == ["u" * 255]


def test_a_limiter_offers_what_it_decides() -> None:
    """With and without waiting, and with rules that are only watched."""
    shadow = {"name": "watched", "per": ["user"], "limits": "1/minute", "action": "log"}
    for rules in ([{"name": "two", "per": ["user"], "limits": "2/minute"}], [shadow]):
        limiter = asynchronous.Limiter.open("memory://", {"rules": rules}, clock=FakeClock(START))
        limiter.tally = Tally(limiter.snapshots.clock)
        assert limiter.check_now is not None
        limiter.check_now(Request(user="u1"))
        asyncio.run(limiter.check(Request(user="u1")))
        assert limiter.tally.take()[0] == {"u1": Seen(2, 0, START)}
