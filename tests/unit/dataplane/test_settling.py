from __future__ import annotations

import asyncio

import pytest
from tests.unit.dataplane.test_guarded import Scene, hit

from headgate.core.decision import Hit, Receipt
from headgate.core.failure_policy import OnStoreError
from headgate.core.meter import Algorithm
from headgate.core.verdict import bare_verdict
from headgate.dataplane import reservations
from headgate.errors import StoreError

MINUTE = 60_000_000


def test_nothing_is_settled_while_the_store_is_unavailable() -> None:
    """A settling that cannot be known to have happened is an error; repeated later, it is booked once."""

    async def run() -> None:
        scene = Scene()
        taken = hit("a", None, "100/hour", 40)
        held = reservations.reserved(bare_verdict(taken, await scene.guarded.take((taken,))), MINUTE)
        scene.fails()
        for actual in (10, 90):
            with pytest.raises(StoreError, match="nothing was settled"):
                await reservations.settle(scene.guarded, held, actual)
        scene.answers()
        assert await reservations.settle(scene.guarded, held, 10)
        (left,) = await scene.guarded.peek((taken._replace(cost=0),))
        assert left.remaining == 90
        await scene.guarded.close()

    asyncio.run(run())


def test_a_store_that_goes_away_in_between_books_nothing() -> None:
    """A charge beyond the reservation is made together with the right to make it, or not at all."""

    async def run() -> None:
        scene = Scene()
        taken = hit("a", None, "100/hour", 40)
        held = reservations.reserved(bare_verdict(taken, await scene.guarded.take((taken,))), MINUTE)
        answered = scene.guarded.peek

        async def then_away(hits: tuple[Hit, ...]) -> object:
            decisions = await answered(hits)
            scene.fails()
            return decisions

        scene.guarded.peek = then_away  # type: ignore[method-assign, assignment] # the moment between two questions
        with pytest.raises(StoreError, match="nothing was settled"):
            await reservations.settle(scene.guarded, held, 90)
        scene.answers()
        (left,) = await answered((taken._replace(cost=0),))
        assert left.remaining == 60
        await scene.guarded.close()

    asyncio.run(run())


@pytest.mark.parametrize("on_error", [OnStoreError.ALLOW, OnStoreError.LOCAL])
def test_what_the_store_did_not_count_is_not_given_back_to_it(on_error: OnStoreError) -> None:
    """A reservation made during an outage of the store has nothing to give back; what was used beyond it is charged."""

    async def run() -> None:
        scene = Scene()
        taken = hit("a", on_error, "100/hour", 20)
        scene.fails()
        held = reservations.reserved(bare_verdict(taken, await scene.guarded.take((taken,))), MINUTE)
        assert held.charges[0].receipt is None
        scene.answers()
        assert await reservations.settle(scene.guarded, held, 5)
        assert scene.shared.given_back == []
        await scene.guarded.close()

    asyncio.run(run())


def test_a_settling_that_broke_off_can_be_repeated() -> None:
    """A caller without an answer asks again with the same amount, and what was unused comes back once."""

    async def run() -> None:
        scene = Scene()
        taken = hit("a", None, "100/hour", 40)
        held = reservations.reserved(bare_verdict(taken, await scene.guarded.take((taken,))), MINUTE)
        for _ in range(3):
            assert await reservations.settle(scene.guarded, held, 10)
        assert not await reservations.settle(scene.guarded, held, 0)
        (left,) = await scene.guarded.peek((taken._replace(cost=0),))
        assert left.remaining == 90
        await scene.guarded.close()

    asyncio.run(run())


def test_slots_come_back_and_are_never_charged() -> None:
    """Settling frees slots whatever was used, and takes no more of them."""
    slot = hit("a", None, "5 concurrent", 2, Algorithm.CONCURRENCY)
    charge = reservations.Charge(slot, Receipt(slot.key, slot.meter, "a", 2, "a"))
    assert reservations.over([charge], 9) == []
    assert reservations.back([charge], 9) == [charge.receipt]
