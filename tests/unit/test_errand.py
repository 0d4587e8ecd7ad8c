"""Errands: coroutines that run for one request."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, Any

import pytest

from headgate.edge.errand import Errand

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


def ran(
    errand: Callable[[], Coroutine[Any, Any, object]], then: Callable[[Errand[object]], None] | None = None
) -> tuple[list[object], list[dict[str, Any]]]:
    """What came of an errand, and what the event loop was told of it."""
    results: list[object] = []
    told: list[dict[str, Any]] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: told.append(context))
        begun = asyncio.Event()

        def failed() -> None:
            results.append("failed")

        def begin() -> None:
            made: Errand[object] = Errand(
                errand(), results.append, lambda: results.append("failed"), loop, copy_context()
            )
            made.begin()
            if then is not None:
                then(made)
            begun.set()

        loop.call_soon(begin)
        await begun.wait()
        for _ in range(20):
            await asyncio.sleep(0.002)

    asyncio.run(run())
    return results, told


def test_what_waits_for_nothing_is_done_at_once() -> None:
    """No turn of the event loop passes."""

    async def errand() -> int:
        return 7

    def is_done(made: Errand[object]) -> None:
        assert made._waits_for is None

    assert ran(errand, is_done) == ([7], [])


def test_it_waits_like_a_task() -> None:
    """For futures, for tasks, for a turn of the event loop, for time to pass and for time to be up."""

    async def errand() -> list[object]:
        await asyncio.sleep(0)
        await asyncio.sleep(0.001)
        both = await asyncio.gather(asyncio.sleep(0, 1), asyncio.create_task(asyncio.sleep(0.001, 2)))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await asyncio.Event().wait()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        with pytest.raises(ZeroDivisionError):
            await _failing()
        me = asyncio.current_task()
        assert me is not None
        return [*both, me.cancelling()]

    assert ran(errand) == ([[1, 2, 0]], [])


async def _failing() -> None:
    await asyncio.sleep(0)
    raise ZeroDivisionError


@pytest.mark.parametrize("waits", [0.0, 9.0])
def test_it_can_be_cancelled(waits: float) -> None:
    """Wherever it stands, it hears of it; and whoever waits for it is told that nothing comes of it."""
    heard: list[str] = []

    async def errand() -> None:
        try:
            await asyncio.sleep(waits)
        except asyncio.CancelledError:
            heard.append("cancelled")
            raise

    def cancel(made: Errand[object]) -> None:
        made.cancel()
        assert not made.done()

    results, told = ran(errand, cancel)
    assert results == ["failed"]
    assert isinstance(told[0]["exception"], asyncio.CancelledError)
    assert heard == ["cancelled"]


def test_a_cancellation_in_the_midst_of_a_step_is_heard_at_the_next() -> None:
    """Whoever cancels the current task, which is this one, ends it where it waits next."""
    heard: list[str] = []

    async def errand() -> None:
        me = asyncio.current_task()
        assert me is not None
        me.cancel()
        heard.append("going on")
        await asyncio.sleep(9)
        heard.append("too far")

    assert ran(errand)[0] == ["failed"]
    assert heard == ["going on"]


def test_a_group_of_tasks_can_end_it() -> None:
    """Where one task of a group fails, the others are cancelled and the errand hears of it."""

    async def errand() -> str:
        with pytest.raises(ExceptionGroup):  # noqa: PT012 (the group raises, at its end)
            async with asyncio.TaskGroup() as group:
                group.create_task(_failing())
                await asyncio.sleep(9)
        return "heard"

    assert ran(errand) == (["heard"], [])


def test_each_has_a_context_of_its_own() -> None:
    """What one sets another does not see, nor whoever began it, and it finds it again after it has waited."""
    variable: ContextVar[int] = ContextVar("variable", default=0)

    async def errand() -> list[int]:
        before = variable.get()
        variable.set(before + 1)
        await asyncio.sleep(0)
        await asyncio.sleep(0.001)
        return [before, variable.get()]

    assert ran(errand, lambda _: None)[0] == [[0, 1]]

    async def both() -> list[object]:
        found: list[object] = []
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()

        def begin() -> None:
            Errand(errand(), found.append, ended.set, loop, copy_context()).begin()
            Errand(errand(), found.append, ended.set, loop, copy_context()).begin()
            found.append(variable.get())
            loop.call_later(0.05, ended.set)

        loop.call_soon(begin)
        await ended.wait()
        return found

    assert asyncio.run(both()) == [0, [0, 1], [0, 1]]


def test_what_fails_is_told_to_the_event_loop() -> None:
    """Nobody else could take it; and whoever waits is told that there is nothing to wait for."""

    async def errand() -> None:
        await asyncio.sleep(0)
        raise ZeroDivisionError

    results, (context,) = ran(errand)
    assert results == ["failed"]
    assert isinstance(context["exception"], ZeroDivisionError)
