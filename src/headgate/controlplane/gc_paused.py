"""Work that makes millions of objects, none of them garbage: nobody looks through them meanwhile."""

from __future__ import annotations

import asyncio
import gc
from functools import partial
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")


def gc_paused(work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Do it without the garbage collector, which would take twice as long and make all threads stand still."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return work(*arguments, **named)
    finally:
        if was_enabled:
            gc.enable()


async def in_thread(work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Do it in a thread, so that decisions go on meanwhile."""
    return await asyncio.to_thread(gc_paused, partial(work, *arguments, **named))
