"""Running coroutines that never wait, without an event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


def run(step: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, which it must reach without waiting for anything."""
    try:
        step.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    step.close()
    msg = "a store in this process made its caller wait"
    raise RuntimeError(msg)
