from __future__ import annotations

import asyncio

import pytest

from headgate.edge.http.patience import Late, Patience


def test_what_comes_in_time_is_returned() -> None:
    """A wait that ends in time returns its result, or raises its own error."""

    async def scenario() -> None:
        patience = Patience(60)
        assert await patience.wait(asyncio.sleep(0, "done")) == "done"
        with pytest.raises(ZeroDivisionError):
            await patience.wait(_fail())

    asyncio.run(scenario())


def test_what_takes_too_long_is_ended() -> None:
    """Waits without end are ended with an error of their own, and their task goes on as if nobody had cancelled it."""

    async def scenario() -> None:
        patience = Patience(0.01)
        task = asyncio.current_task()
        assert task is not None
        with pytest.raises(Late):
            await patience.wait(asyncio.Event().wait())
        assert task.cancelling() == 0
        together = [patience.wait(asyncio.Event().wait()) for _ in range(3)]
        results = await asyncio.gather(*together, return_exceptions=True)
        assert [type(result) for result in results] == [Late] * 3

    asyncio.run(scenario())


def test_a_cancellation_from_elsewhere_stays_one() -> None:
    """A task that somebody else cancels while it waits is cancelled, not late."""

    async def scenario() -> None:
        patience = Patience(60)
        task = asyncio.create_task(patience.wait(asyncio.Event().wait()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())


async def _fail() -> None:
    raise ZeroDivisionError
