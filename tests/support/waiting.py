"""Wait for a condition that no callback reports: poll it until it holds or time runs out."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

import hiredis
import pytest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

SECONDS: Final = 30.0


def wait_until(
    condition: Callable[[], object], what: str = "the condition", seconds: float = SECONDS, *, interval: float = 0.01
) -> None:
    """Wait in a thread. An error from a server that is not ready counts as "not yet"."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if condition():
                return
        except (OSError, hiredis.ReplyError):
            pass
        time.sleep(interval)
    pytest.fail(f"{what} did not come true in {seconds} s")


async def wait_until_async(
    condition: Callable[[], bool | Awaitable[bool]], seconds: float = SECONDS, interval: float = 0.001
) -> None:
    """Wait in an event loop. The condition may be a coroutine function."""
    async with asyncio.timeout(seconds):
        while True:
            holds = condition()
            if holds if isinstance(holds, bool) else await holds:
                return
            await asyncio.sleep(interval)
