from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from headgate import Limiter as AsyncLimiter
from headgate.adapters.memory import MemoryStore
from headgate.core.meter import Algorithm
from headgate.dataplane.without_waiting import run
from headgate.errors import InvalidRequest, Refused
from headgate.sync import Limiter
from headgate.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.core.decision import Decision, Hit

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
@pytest.mark.parametrize(("actual", "remaining"), [(0, 90), (17, 73), (40, 50), (60, 30)])
def test_settling_books_what_was_used(gate: Limiter, algorithm: str, actual: int, remaining: int) -> None:
    """A reservation charges at once, and settling it leaves exactly what was really used."""
    gate.hit("k", "100/hour", 10, algorithm=algorithm)
    with gate.reserve("k", "100/hour", 40, algorithm=algorithm) as reservation:
        assert reservation.reserved == 40
        assert left(gate, algorithm=algorithm) == 50
        reservation.settle(actual)
        assert left(gate, algorithm=algorithm) == 50
    assert left(gate, algorithm=algorithm) == remaining
    assert reservation.uncovered == 0


def test_not_settling_leaves_the_charge(gate: Limiter, clock: FakeClock) -> None:
    """A block that ends without settling has used all it reserved, for good."""
    with gate.reserve("k", "100/hour", 40, ttl=5, algorithm="fixed_window"):
        pass
    clock.advance(seconds=6)
    assert left(gate) == 60


def test_a_block_that_fails_gives_everything_back(gate: Limiter) -> None:
    """If the work fails before it could settle, nothing stays counted."""
    with pytest.raises(ZeroDivisionError), gate.reserve("k", "100/hour", 40, algorithm="fixed_window"):
        _ = 1 / 0
    assert left(gate) == 100


def test_a_block_that_fails_after_settling_has_used_that(gate: Limiter) -> None:
    """If the work fails after it settled, what it settled stays counted."""

    def work() -> None:
        with gate.reserve("k", "100/hour", 40, algorithm="fixed_window") as reservation:
            reservation.settle(7)
            _ = 1 / 0

    with pytest.raises(ZeroDivisionError):
        work()
    assert left(gate) == 93


def test_the_last_settle_before_the_end_counts(gate: Limiter) -> None:
    """Settling is a note until the block ends; afterwards it changes nothing."""
    with gate.reserve("k", "100/hour", 40, algorithm="fixed_window") as reservation:
        reservation.settle(1)
        reservation.settle(20)
    reservation.settle(0)
    reservation.close(3)
    assert left(gate) == 80


def test_a_reservation_can_be_kept_without_a_block(gate: Limiter) -> None:
    """A reservation can be taken and closed by hand; a denial is a value then."""
    reservation = gate.reserve("k", "100/hour", 90, algorithm="fixed_window").take()
    assert (reservation.verdict.allowed, reservation.verdict.remaining) == (True, 10)
    denied = gate.reserve("k", "100/hour", 11, algorithm="fixed_window").take()
    assert (denied.verdict.allowed, denied.verdict.retry_after) == (False, 3600.0)
    denied.close(5)
    assert left(gate) == 10
    reservation.close(50)
    for again in (0, 95, None):
        reservation.close(again)
    assert left(gate) == 50


def test_a_denied_reservation_does_not_run(gate: Limiter) -> None:
    """A block whose reservation was refused does not run, and nothing is counted."""
    gate.hit("k", "100/hour", 61, algorithm="fixed_window")
    with pytest.raises(Refused) as raised, gate.reserve("k", "100/hour", 40, algorithm="fixed_window"):
        pytest.fail("the block ran")
    assert raised.value.verdict.remaining == 39
    assert left(gate) == 39


def test_what_nobody_settles_is_given_back(gate: Limiter, clock: FakeClock) -> None:
    """A reservation whose holder died is given back when its time is up, to the microsecond."""
    gate.reserve("k", "100/hour", 40, ttl=5, algorithm="fixed_window").take()
    clock.advance(seconds=5, micros=-1)
    assert left(gate) == 60
    clock.advance(micros=1)
    assert left(gate) == 100


def test_settling_late_counts_anew(gate: Limiter, clock: FakeClock) -> None:
    """After its time a reservation is gone, so settling it then counts what was used by itself."""
    reservation = gate.reserve("k", "100/hour", 40, ttl=5, algorithm="fixed_window").take()
    clock.advance(seconds=5)
    assert left(gate) == 100
    reservation.close(30)
    assert (left(gate), reservation.uncovered) == (70, 0)


def test_settling_late_without_an_amount_counts_all(gate: Limiter, clock: FakeClock) -> None:
    """A block that ran longer than its reservation and did not settle has used all it reserved."""
    with gate.reserve("k", "100/hour", 40, ttl=5, algorithm="fixed_window"):
        clock.advance(seconds=9)
    assert left(gate) == 60


@pytest.mark.parametrize("algorithm", RATES)
def test_what_finds_no_room_is_told(gate: Limiter, algorithm: str) -> None:
    """What was used beyond the reservation is counted as far as there is room; the rest is `uncovered`."""
    gate.hit("k", "100/hour", 50, algorithm=algorithm)
    with gate.reserve("k", "100/hour", 40, algorithm=algorithm) as reservation:
        reservation.settle(75)
    assert reservation.uncovered == 25
    assert left(gate, algorithm=algorithm) == 0


def test_what_finds_no_room_at_all(gate: Limiter) -> None:
    """Where the limit has nothing left, all that goes beyond the reservation is uncovered."""
    gate.hit("k", "100/hour", 60, algorithm="fixed_window")
    with gate.reserve("k", "100/hour", 40, algorithm="fixed_window") as reservation:
        reservation.settle(10**12)
    assert reservation.uncovered == 10**12 - 40


def test_others_may_come_between(clock: FakeClock) -> None:
    """While the rest is being counted others may take the room; then it is uncovered, after a few tries."""
    gate = AsyncLimiter.open(clock=clock)
    store = gate.store
    assert isinstance(store, MemoryStore)

    class Contended:
        """The store, with somebody who is always a little faster."""

        peek, give_back, reset, close = store.peek, store.give_back, store.reset, store.close
        calls = 0

        async def take(self, hits: Sequence[Hit]) -> Sequence[Decision]:
            self.calls += 1
            if self.calls > 1:
                await store.take([hits[0]._replace(cost=1, holder=None, ttl=None)])
            return await store.take(hits)

    contended = Contended()
    reservation = gate.reserve("k", "10/hour", 1, algorithm="fixed_window")
    reservation._store = contended
    run(reservation.take())
    run(reservation.close(20))
    assert contended.calls == 4
    assert reservation.uncovered == 19
    assert run(gate.peek("k", "10/hour", 0, algorithm="fixed_window")).remaining == 6


def test_unlimited_needs_no_reservation(gate: Limiter) -> None:
    """Under `unlimited` a reservation is always granted and books nothing."""
    with gate.reserve("k", "unlimited", 40) as reservation:
        reservation.settle(90)
    assert (reservation.reserved, reservation.uncovered, reservation.verdict.allowed) == (0, 0, True)


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


def test_a_settled_reservation_is_over(gate: Limiter) -> None:
    """A reservation is used once; a second block needs a second one."""
    for limit in ("100/hour", "unlimited"):
        with gate.reserve("k", limit, 40) as reservation:
            pass
        with pytest.raises(InvalidRequest, match="this reservation is settled; make a new one"), reservation:
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
            gate.reserve("k", limit, 1, ttl=ttl)  # type: ignore[arg-type]


@pytest.mark.parametrize("actual", [-1, 1.5, True, "1", 10**13], ids=repr)
def test_what_is_settled_is_a_whole_number(gate: Limiter, actual: object) -> None:
    """Settling something that is no cost is refused with a sentence, and the reservation stands."""
    reservation = gate.reserve("k", "100/hour", 40, algorithm="fixed_window").take()
    for settle in (reservation.settle, reservation.close):
        with pytest.raises(InvalidRequest, match="a cost is"):
            settle(actual)  # type: ignore[arg-type]
    assert left(gate) == 60


def test_reservations_can_be_awaited(clock: FakeClock) -> None:
    """The asynchronous forms, ``async with`` and ``await``, do the same."""

    async def main() -> list[int | None]:
        async with AsyncLimiter.open(clock=clock) as gate:
            async with gate.reserve("k", "100/hour", 40) as reservation:
                reservation.settle(10)
            held = await gate.reserve("k", "100/hour", 30)
            async with held:
                taken = (await gate.peek("k", "100/hour", 0)).remaining
            await held.close(0)
            denied = await gate.reserve("k", "100/hour", 99)
            assert not denied.verdict.allowed
            return [taken, (await gate.peek("k", "100/hour", 0)).remaining]

    assert asyncio.run(main()) == [60, 60]
