from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from headgate.cli.serve_processes import _meanwhile

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


def test_a_process_whose_other_server_fails_ends_with_its_error() -> None:
    """It does not wait for ever without that server: it ends, and the supervisor starts another."""

    @asynccontextmanager
    async def taken() -> AsyncIterator[None]:
        msg = "the port is taken"
        raise OSError(msg)
        yield

    async def main() -> None:
        async with _meanwhile(taken()):
            await asyncio.Event().wait()

    with pytest.raises(OSError, match="the port is taken"):
        asyncio.run(asyncio.wait_for(main(), 10))


def test_a_process_that_is_cancelled_leaves_its_other_server_first() -> None:
    """A cancellation from outside stays one."""
    left: list[bool] = []

    @asynccontextmanager
    async def other() -> AsyncIterator[None]:
        try:
            yield
        finally:
            left.append(True)

    async def main() -> None:
        async with _meanwhile(other()):
            await asyncio.Event().wait()

    async def cancelled() -> None:
        task = asyncio.create_task(main())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert left == [True]
