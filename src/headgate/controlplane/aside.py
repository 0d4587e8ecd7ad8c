"""Work on very many rules, in a thread, so that decisions go on meanwhile."""

from __future__ import annotations

import asyncio
import gc
from functools import partial
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")


async def aside(work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """What `work` returns. The event loop does not wait for it, and its garbage is not collected meanwhile."""
    return await asyncio.to_thread(_uncollected, partial(work, *arguments, **named))


def _uncollected(work: Callable[[], T]) -> T:
    """A hundred thousand rules are millions of new objects, none of them garbage.

    To look through them again and again would double the time, and all threads stand still meanwhile.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return work()
    finally:
        if was_enabled:
            gc.enable()
