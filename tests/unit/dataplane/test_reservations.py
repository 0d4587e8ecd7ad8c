from __future__ import annotations

import asyncio
from typing import Any, NoReturn

import pytest

from headgate import Limiter as AsyncLimiter
from headgate.core.meter import Algorithm
from headgate.core.request import Request
from headgate.errors import InvalidRequest, Overloaded, Refused
from headgate.sync import Limiter
from headgate.testing import FakeClock

RATES = [algorithm.value for algorithm in Algorithm if algorithm is not Algorithm.CONCURRENCY]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def gate(clock: FakeClock) -> Limiter:
    return Limiter.open(clock=clock)


def left(gate: Limiter, limit: str = "100/hour", algorithm: str = "fixed_window") -> int | None:
    return gate.peek("k", limit, 0, algorithm=algorithm).remaining


@pytest.mark.parametrize("algorithm", RATES)
@pytest.mark.parametrize(("actual", "remaining"), [(0, 90), (17, 73), (40, 50), (60, 30), (90, 0)])
def test_settling_books_what_was_used(gate: Limiter, algorithm: str, actual: int, remaining: int) -> None:
    """A reservation charges at once, and settling it leaves exactly what was really used."""
    gate.hit("k", "100/hour", 10, algorithm=algorithm)
    with gate.reserve("k", "100/hour", 40, algorithm=algorithm) as reservation:
        assert reservation.reserved == 40
        assert left(gate, algorithm=algorithm) == 50
        reservation.settle(actual)
        assert left(gate, algorithm=algorithm) == 50
    assert left(gate, algorithm=algorithm) == remaining


@pytest.mark.parametrize("algorithm", RATES)
def test_what_was_used_is_charged_even_past_the_limit(gate: Limiter, clock: FakeClock, algorithm: str) -> None:
    """Settling above always charges, also what the limit has no room for, and others wait for it."""
    with gate.reserve("k", "100/hour", 40, algorithm=algorithm) as reservation:
        reservation.settle(150)
    denied = gate.hit("k", "100/hour", algorithm=algorithm)
    assert (denied.allowed, denied.remaining) == (False, 0)
    assert denied.retry_after is not None
    clock.advance(seconds=denied.retry_after)
    assert gate.hit("k", "100/hour", algorithm=algorithm).allowed


def test_what_could_not_be_charged_for_want_of_room_is_charged_later(clock: FakeClock) -> None:
    """A reservation that is closed while too much is in flight says so, and can be closed again."""

    async def scenario() -> None:
        async with AsyncLimiter.open(clock=clock) as limiter:
            reservation = await limiter.reserve("k", "100/hour", 40, algorithm="fixed_window")
            take = limiter.store.take

            async def shed(_hits: object) -> NoReturn:
                raise Overloaded

            limiter.store.take = shed  # type: ignore[method-assign, assignment] # for a moment
            with pytest.raises(Overloaded):
                await reservation.close(60)
            limiter.store.take = take  # type: ignore[method-assign] # there is room again
            await reservation.close(60)
            await reservation.close(60)
            assert (await limiter.peek("k", "100/hour", 0, algorithm="fixed_window")).remaining == 40

    asyncio.run(scenario())


def test_not_settling_leaves_the_charge(gate: Limiter, clock: FakeClock) -> None:
    """A block that ends without settling has used all it reserved, for good, and so has one that fails."""
    with gate.reserve("k", "100/hour", 40, ttl=5, algorithm="fixed_window"):
        pass
    with pytest.raises(ZeroDivisionError), gate.reserve("k", "100/hour", 10, ttl=5, algorithm="fixed_window"):
        _ = 1 / 0
    clock.advance(seconds=6)
    assert left(gate) == 50


def test_a_block_that_fails_after_settling_has_used_that(gate: Limiter) -> None:
    """If the work fails after it settled, what it settled stays counted."""

    def work() -> None:
        with gate.reserve("k", "100/hour", 40, algorithm="fixed_window") as reservation:
            reservation.settle(7)
            _ = 1 / 0

    with pytest.raises(ZeroDivisionError):
        work()
    assert left(gate) == 93


def test_only_the_first_settle_counts(gate: Limiter) -> None:
    """A second settle does nothing, before the block ends or after."""
    with gate.reserve("k", "100/hour", 40, algorithm="fixed_window") as reservation:
        reservation.settle(20)
        reservation.settle(1)
    reservation.settle(90)
    for again in (3, 95, None):
        reservation.close(again)
    assert left(gate) == 80


def test_a_reservation_can_be_kept_without_a_block(gate: Limiter) -> None:
    """A reservation can be taken and closed by hand; a denial is a value then."""
    reservation = gate.reserve("k", "100/hour", 90, algorithm="fixed_window").take()
    assert (reservation.verdict.allowed, reservation.verdict.remaining) == (True, 10)
    denied = gate.reserve("k", "100/hour", 11, algorithm="fixed_window").take()
    assert (denied.verdict.allowed, denied.verdict.retry_after, denied.reserved) == (False, 3600.0, 0)
    denied.close(5)
    assert left(gate) == 10
    reservation.close()
    assert left(gate) == 10
    reservation.close(50)
    assert left(gate) == 50


def test_a_denied_reservation_does_not_run(gate: Limiter) -> None:
    """A block whose reservation was refused does not run, and nothing is counted."""
    gate.hit("k", "100/hour", 61, algorithm="fixed_window")
    with pytest.raises(Refused) as raised, gate.reserve("k", "100/hour", 40, algorithm="fixed_window"):
        pytest.fail("the block ran")
    assert raised.value.verdict.remaining == 39
    assert left(gate) == 39


def test_settling_late_gives_nothing_back(gate: Limiter, clock: FakeClock) -> None:
    """What was not needed can be given back until the reservation's time is up, to the microsecond."""
    in_time, late = (gate.reserve("k", "100/hour", 40, ttl=5, algorithm="fixed_window").take() for _ in range(2))
    clock.advance(seconds=5, micros=-1)
    in_time.close(30)
    assert left(gate) == 30
    clock.advance(micros=1)
    late.close(30)
    assert left(gate) == 30


def test_settling_late_above_charges(gate: Limiter, clock: FakeClock) -> None:
    """What was used beyond the reservation is charged however late it is settled."""
    reservation = gate.reserve("k", "100/hour", 40, ttl=5, algorithm="fixed_window").take()
    clock.advance(seconds=60)
    reservation.close(50)
    assert left(gate) == 50


def test_unlimited_needs_no_reservation(gate: Limiter) -> None:
    """Under `unlimited` a reservation is always granted and books nothing."""
    with gate.reserve("k", "unlimited", 40) as reservation:
        reservation.settle(90)
    assert (reservation.reserved, reservation.verdict.allowed) == (0, True)


def test_a_reservation_of_nothing(gate: Limiter) -> None:
    """Reserving nothing and settling later is the same as hitting later."""
    with gate.reserve("k", "100/hour", 0, algorithm="fixed_window") as reservation:
        reservation.settle(30)
    assert left(gate) == 70


def test_taking_twice_takes_once(gate: Limiter) -> None:
    """A reservation that is held is not taken again by entering its block."""
    reservation = gate.reserve("k", "100/hour", 40, algorithm="fixed_window").take().take()
    with reservation:
        assert left(gate) == 60
        reservation.settle(10)
    assert left(gate) == 90


@pytest.mark.parametrize("limit", ["100/hour", "unlimited"])
def test_a_reservation_is_for_one_block(gate: Limiter, limit: str) -> None:
    """A second block would run uncounted, so it needs a second reservation, as does one after settling by hand."""
    used, settled = (gate.reserve("k", limit, 40).take() for _ in range(2))
    with used:
        pass
    settled.close(5)
    for reservation in (used, settled):
        with pytest.raises(InvalidRequest, match="was used already; make a new one"), reservation:
            pytest.fail("the block ran")


def test_a_refused_reservation_may_be_tried_again(gate: Limiter, clock: FakeClock) -> None:
    """Asking again for what was refused is a new attempt."""
    gate.hit("k", "100/hour", 100, algorithm="fixed_window")
    reservation = gate.reserve("k", "100/hour", 40, algorithm="fixed_window").take()
    assert not reservation.verdict.allowed
    clock.advance(seconds=3600)
    with reservation:
        assert left(gate) == 60


@pytest.mark.parametrize("ttl", [0, -1, True, "5", None, float("nan"), float("inf"), 1e12], ids=repr)
def test_a_ttl_is_a_number_of_seconds(gate: Limiter, ttl: object) -> None:
    """A time that is not above zero, or endless, is refused with a sentence, also for `unlimited`."""
    for limit in ("100/hour", "unlimited"):
        with pytest.raises(InvalidRequest, match="a ttl is a number of seconds above 0"):
            gate.reserve("k", limit, 1, ttl=ttl)  # type: ignore[arg-type] # wrong on purpose


@pytest.mark.parametrize("actual", [-1, 1.5, True, "1", 10**13], ids=repr)
def test_what_is_settled_is_a_whole_number(gate: Limiter, actual: object) -> None:
    """Settling something that is no cost is refused with a sentence, and the reservation stands."""
    reservation = gate.reserve("k", "100/hour", 40, algorithm="fixed_window").take()
    for settle in (reservation.settle, reservation.close):
        with pytest.raises(InvalidRequest, match="a cost is"):
            settle(actual)  # type: ignore[arg-type] # wrong on purpose
    assert left(gate) == 60


RULES: list[dict[str, Any]] = [
    {"name": "all", "limits": ["100/hour", "500/day"], "algorithm": "fixed_window"},
    {"name": "user", "per": "user", "limits": "80/hour", "algorithm": "fixed_window"},
    {"name": "trial", "action": "log", "limits": "90/hour", "algorithm": "fixed_window"},
    {"name": "slots", "layer": "slots", "limits": "50 concurrent ttl 10m", "algorithm": "concurrency"},
]


def standing(gate: Limiter) -> dict[str, int]:
    findings = gate.peek(Request(user="u"), cost=0).findings
    return {finding.policy: finding.decision.remaining for finding in findings}


@pytest.mark.parametrize("actual", [None, 0, 10, 30, 60, 70])
def test_a_request_can_be_reserved_by_the_rules(clock: FakeClock, actual: int | None) -> None:
    """A reservation for a request is charged and settled in every limit that applies; slots are freed at the end."""
    gate = Limiter.open(rules=RULES, clock=clock)
    with gate.reserve(Request(user="u"), cost=30) as reservation:
        assert standing(gate) == {"all:1h": 70, "all:1d": 470, "user": 50, "trial": 60, "slots": 20}
        if actual is not None:
            reservation.settle(actual)
    used = 30 if actual is None else actual
    assert reservation.reserved == 30
    expected = {"all:1h": 100 - used, "all:1d": 500 - used, "user": 80 - used, "trial": 90 - used, "slots": 50}
    assert standing(gate) == expected


def test_a_request_that_is_refused_reserves_nothing(clock: FakeClock) -> None:
    """If one rule refuses, no limit is charged and the block does not run; gates decide as ever."""
    gate = Limiter.open(rules=[*RULES, {"name": "b", "action": "block", "match": {"methods": "POST"}}], clock=clock)
    before = standing(gate)
    for request, cost in ((Request(user="u"), 81), (Request(method="POST"), 1)):
        with pytest.raises(Refused), gate.reserve(request, cost=cost):
            pytest.fail("the block ran")
    assert standing(gate) == before


def test_a_request_is_reserved_at_its_price(clock: FakeClock) -> None:
    """Without a cost given, the rules' price lists say what a request reserves; for a key it is one."""
    rules = [{"name": "r", "limits": "100/hour", "cost": {"POST": 7}, "algorithm": "fixed_window"}]
    gate = Limiter.open(rules=rules, clock=clock)
    with gate.reserve(Request(method="POST")) as reservation:
        assert reservation.reserved == 7
    assert gate.reserve("k", "5/hour").take().reserved == 1


def test_what_is_wrong_is_said_at_once(gate: Limiter) -> None:
    """A reservation that can never be asked for is refused where it is made, not where it is taken."""
    for subject, limit in (("k", None), (Request(), "5/hour"), (5, None), ("", "5/hour"), (Request(user=5), None)):  # type: ignore[arg-type] # wrong on purpose
        with pytest.raises(InvalidRequest):
            gate.reserve(subject, limit, 1)  # type: ignore[arg-type] # wrong on purpose


def test_reservations_can_be_awaited(clock: FakeClock) -> None:
    """The asynchronous forms, ``async with`` and ``await``, do the same."""

    async def main() -> list[int | None]:
        async with AsyncLimiter.open(clock=clock) as gate:
            async with gate.reserve("k", "100/hour", 40) as reservation:
                reservation.settle(10)
            held = await gate.reserve("k", "100/hour", 30)
            async with held:
                taken = (await gate.peek("k", "100/hour", 0)).remaining
            denied = await gate.reserve("k", "100/hour", 99)
            assert not denied.verdict.allowed
            await held.close(0)
            return [taken, (await gate.peek("k", "100/hour", 0)).remaining]

    assert asyncio.run(main()) == [60, 90]
