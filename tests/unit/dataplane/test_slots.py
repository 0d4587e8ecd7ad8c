from __future__ import annotations

import asyncio

import pytest

from headgate import Limiter as AsyncLimiter
from headgate.errors import InvalidLimit, InvalidRequest, Refused
from headgate.sync import Limiter
from headgate.testing import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def gate(clock: FakeClock) -> Limiter:
    return Limiter.open(clock=clock)


def free(gate: Limiter, limit: str = "2 concurrent") -> int | None:
    return gate.peek("k", limit, 0).remaining


def test_a_slot_is_held_while_the_block_runs(gate: Limiter) -> None:
    """As many blocks run at the same time as there are slots, and each gives its slot back."""
    with gate.slot("k", "2 concurrent"), gate.slot("k", "2 concurrent") as second:
        assert (free(gate), second.verdict.remaining) == (0, 0)
        with pytest.raises(Refused, match=r"try again in 60\.000 s"), gate.slot("k", "2 concurrent"):
            pytest.fail("the block ran")
    assert free(gate) == 2


def test_a_block_that_fails_gives_its_slot_back(gate: Limiter) -> None:
    """However a block ends, its slot is free afterwards."""
    with pytest.raises(ZeroDivisionError), gate.slot("k", "2 concurrent"):
        _ = 1 / 0
    assert free(gate) == 2


def test_a_slot_may_have_a_time_of_its_own(gate: Limiter, clock: FakeClock) -> None:
    """A holder that dies loses its slot after the limit's time, or after the one it asked for."""
    gate.slot("k", "2 concurrent ttl 30s").take()
    gate.slot("k", "2 concurrent ttl 30s", ttl=0.5).take()
    for seconds, expected in ((0.4, 0), (0.1, 1), (29.4, 1), (0.1, 2)):
        clock.advance(seconds=seconds)
        assert free(gate) == expected


def test_renewing_starts_the_time_anew(gate: Limiter, clock: FakeClock) -> None:
    """A holder that renews keeps its slot for another whole time."""
    slot = gate.slot("k", "1 concurrent ttl 30s").take()
    for _ in range(5):
        clock.advance(seconds=29)
        assert slot.renew()
    clock.advance(seconds=29)
    assert free(gate, "1 concurrent") == 0
    clock.advance(seconds=1)
    assert free(gate, "1 concurrent") == 1


def test_an_expired_slot_that_is_still_free_can_be_renewed(gate: Limiter, clock: FakeClock) -> None:
    """Renewing too late still works while the slot is free."""
    slot = gate.slot("k", "1 concurrent ttl 30s").take()
    clock.advance(seconds=31)
    assert slot.renew()
    assert free(gate, "1 concurrent") == 0


def test_a_lost_slot_is_told_and_stays_lost(gate: Limiter, clock: FakeClock) -> None:
    """A holder that renews after another took the slot gets an error, and frees no other slot when closing."""
    slot = gate.slot("k", "1 concurrent ttl 30s").take()
    clock.advance(seconds=30)
    gate.slot("k", "1 concurrent ttl 30s").take()
    assert not slot.renew()
    assert not slot.verdict.allowed
    slot.close()
    assert free(gate, "1 concurrent") == 0
    clock.advance(seconds=30)
    assert not slot.renew()
    assert free(gate, "1 concurrent") == 1


def test_a_slot_that_was_given_up_is_not_renewed(gate: Limiter) -> None:
    """A renewal that comes after the slot was freed, or before it was taken, takes nothing."""
    slot = gate.slot("k", "1 concurrent")
    assert not slot.renew()
    with slot:
        assert slot.renew()
    assert not slot.renew()
    assert free(gate, "1 concurrent") == 1


def test_a_slot_can_be_used_again(gate: Limiter) -> None:
    """After it was freed the same slot can be taken anew, and taking it twice takes it once."""
    slot = gate.slot("k", "2 concurrent")
    for _ in range(3):
        with slot.take().take():
            assert free(gate) == 1
        slot.close()
        assert free(gate) == 2


def test_closing_frees_only_ones_own(gate: Limiter, clock: FakeClock) -> None:
    """A holder that closes after its time was up frees no other holder's slot."""
    late = gate.slot("k", "1 concurrent ttl 30s").take()
    clock.advance(seconds=30)
    gate.slot("k", "1 concurrent ttl 30s").take()
    late.close()
    assert free(gate, "1 concurrent") == 0


@pytest.mark.parametrize("limit", ["5/minute", "unlimited"])
def test_only_slots_are_held(gate: Limiter, limit: str) -> None:
    """A limit that counts no holders is refused with an example of one that does."""
    with pytest.raises(InvalidLimit, match="slot needs a limit like '3 concurrent', not"):
        gate.slot("k", limit)


@pytest.mark.parametrize("ttl", [0, -1, True, "5", float("nan"), float("inf")], ids=repr)
def test_a_ttl_is_a_number_of_seconds(gate: Limiter, ttl: object) -> None:
    """A time that is not above zero, or endless, is refused with a sentence."""
    with pytest.raises(InvalidRequest, match="a ttl is a number of seconds above 0"):
        gate.slot("k", "1 concurrent", ttl=ttl)  # type: ignore[arg-type] # wrong on purpose


def test_a_time_below_a_microsecond_is_one(gate: Limiter, clock: FakeClock) -> None:
    """A slot is held for at least a microsecond."""
    gate.slot("k", "1 concurrent", ttl=1e-9).take()
    assert free(gate, "1 concurrent") == 0
    clock.advance(micros=1)
    assert free(gate, "1 concurrent") == 1


def test_slots_can_be_awaited(clock: FakeClock) -> None:
    """The asynchronous forms, ``async with`` and ``await``, do the same."""

    async def main() -> None:
        async with AsyncLimiter.open(clock=clock) as gate:
            async with gate.slot("k", "2 concurrent") as slot:
                other = await gate.slot("k", "2 concurrent")
                assert await slot.renew()
                assert other.verdict.remaining == 0
                with pytest.raises(Refused):
                    async with gate.slot("k", "2 concurrent"):
                        pytest.fail("the block ran")
            assert (await gate.peek("k", "2 concurrent", 0)).remaining == 1

    asyncio.run(main())
