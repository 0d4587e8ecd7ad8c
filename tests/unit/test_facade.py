from __future__ import annotations

import asyncio
import inspect

import pytest

import headgate
from headgate import Limiter, Request
from headgate import sync as synchronous
from headgate.adapters.clock import wall_clock
from headgate.dataplane import reservations
from headgate.testing import FakeClock


def test_the_first_example_of_the_design() -> None:
    """Opening a limiter, checking a request and hitting a key takes three lines."""

    async def main() -> None:
        async with Limiter.open("memory://", rules=[{"name": "search", "per": "user", "limits": "2/hour"}]) as limiter:
            verdict = await limiter.check(Request(user="u_42", method="GET", path="/api/search"))
            assert (verdict.allowed, verdict.remaining, verdict.delay) == (True, 1, 0.0)
            hits = [
                await limiter.hit("login:203.0.113.9", "1/minute", algorithm="sliding_window_log") for _ in range(2)
            ]
            assert [hit.allowed for hit in hits] == [True, False]

    asyncio.run(main())


def test_a_limiter_goes_by_the_clock_it_is_given() -> None:
    """Time is an argument: a limiter with a clock of its own decides by that, and by the wall clock otherwise."""
    clock = FakeClock()

    async def at(limiter: Limiter) -> int:
        return (await limiter.hit("k", "1/hour")).decisions[0].at

    assert asyncio.run(at(Limiter.open(clock=clock))) == clock()
    before = wall_clock()
    assert before <= asyncio.run(at(Limiter.open())) <= wall_clock()


def test_both_limiters_have_the_same_methods() -> None:
    """`headgate.sync.Limiter` has every method of `headgate.Limiter`, with the same parameters."""
    pairs = [
        (Limiter, synchronous.Limiter),
        (reservations.Reservation, synchronous.Reservation),
        (reservations.Slot, synchronous.Slot),
    ]
    for waiting, plain in pairs:
        for name, method in inspect.getmembers(waiting, inspect.isfunction):
            if not name.startswith("_"):
                parameters = inspect.signature(method).parameters
                assert inspect.signature(getattr(plain, name)).parameters == parameters, name
        public = {name for name in vars(plain) if not name.startswith("_")}
        assert public <= {*dir(waiting), "plan", "verdict"}
    bound = inspect.signature(Limiter.open().plan).parameters  # its constructor takes it from the planner
    assert [*bound] == [*inspect.signature(synchronous.Limiter.open().plan).parameters]


@pytest.mark.parametrize("name", headgate.__all__)
def test_every_public_name_is_there(name: str) -> None:
    """What the package says it offers can be imported from it."""
    assert getattr(headgate, name) is not None


def test_many_checks_with_await_are_decided_in_their_order() -> None:
    """Of several requests that are checked together the first ones pass."""

    async def scenario() -> list[bool]:
        async with Limiter.open("memory://", [{"name": "r", "limits": "3/hour"}]) as limiter:
            return [verdict.allowed for verdict in await limiter.check_many([Request()] * 5)]

    assert asyncio.run(scenario()) == [True, True, True, False, False]
