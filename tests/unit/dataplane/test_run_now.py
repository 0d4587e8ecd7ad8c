from __future__ import annotations

import asyncio

import pytest

from headgate.dataplane.limiter import run_now


def test_a_coroutine_that_never_waits_is_run_to_its_end() -> None:
    """A coroutine that has nothing to wait for gives its result without an event loop."""

    async def answer(number: int) -> int:
        return number + 1

    async def steps() -> int:
        return await answer(1) + await answer(2)

    assert run_now(steps()) == 5


def test_errors_come_through() -> None:
    """What a coroutine raises is raised."""

    async def fail() -> None:
        msg = "as it is"
        raise KeyError(msg)

    with pytest.raises(KeyError, match="as it is"):
        run_now(fail())


def test_waiting_is_an_error() -> None:
    """A coroutine that does wait is stopped, with its cleaning up done, and the mistake is named."""
    cleaned = []

    async def wait() -> None:
        try:
            await asyncio.sleep(0)
        finally:
            cleaned.append(True)

    with pytest.raises(RuntimeError, match="made its caller wait"):
        run_now(wait())
    assert cleaned == [True]
