"""A coroutine that runs for one request, and costs less than a task.

A task waits for a turn of the event loop before it begins, and enters itself in the list of all tasks. An errand
begins at once, and one that has to wait for nothing is done at once.
"""

from __future__ import annotations

import asyncio
from asyncio import _enter_task, _leave_task  # documented, for those who write tasks of their own
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextvars import Context

T = TypeVar("T")


class Errand(Generic[T]):
    """Runs a coroutine and hands on what it returns. To what it calls, it is the current task."""

    __slots__ = (
        "__weakref__",
        "_cancellations",
        "_context",
        "_coroutine",
        "_done",
        "_failed",
        "_is_done",
        "_is_to_cancel",
        "_loop",
        "_waits_for",
    )

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, T],
        done: Callable[[T], None],
        failed: Callable[[], None],
        loop: asyncio.AbstractEventLoop,
        context: Context,
    ) -> None:
        """Nothing happens before `begin`. If the coroutine raises anything, `failed` is called in place of `done`.

        All of it runs in the `context`, which should be its own.
        """
        self._coroutine = coroutine
        self._done = done
        self._failed = failed
        self._loop = loop
        self._context = context
        self._waits_for: asyncio.Future[Any] | None = None
        self._cancellations = 0
        self._is_to_cancel = self._is_done = False

    def begin(self) -> None:
        """Go on until there is something to wait for. May not be called from within a task."""
        self._context.run(self._step)

    def _step(self, _future: object = None) -> None:
        coroutine, loop = self._coroutine, self._loop
        self._waits_for = None
        _enter_task(loop, self)  # type: ignore[arg-type] # as far as it is asked, it is a task
        try:
            if self._is_to_cancel:
                self._is_to_cancel = False
                waits_for = coroutine.throw(asyncio.CancelledError())
            else:
                waits_for = coroutine.send(None)
        except StopIteration as end:
            self._is_done, result = True, end.value
        except (asyncio.CancelledError, Exception) as error:  # noqa: BLE001 (nobody is there to take it)
            self._is_done = True
            loop.call_exception_handler({"message": "a request was not answered", "exception": error})
            self._failed()
            return
        else:
            self._wait(waits_for)
            return
        finally:
            _leave_task(loop, self)  # type: ignore[arg-type] # as above
        self._done(result)

    def _wait(self, future: asyncio.Future[Any] | None) -> None:
        if future is None:  # it only lets others have a turn
            self._loop.call_soon(self._step, context=self._context)
            return
        future._asyncio_future_blocking = False  # noqa: SLF001 (how a task tells a future that it waits)
        future.add_done_callback(self._step, context=self._context)
        self._waits_for = future
        if self._is_to_cancel and future.cancel():
            self._is_to_cancel = False

    # What the current task is asked by asyncio.timeout and asyncio.TaskGroup

    def done(self) -> bool:
        """Whether it is at its end."""
        return self._is_done

    def cancel(self, msg: object = None) -> bool:  # noqa: ARG002 (tasks take one)
        """End what is under way."""
        self._cancellations += 1
        if self._waits_for is None or not self._waits_for.cancel():
            self._is_to_cancel = True
        return True

    def cancelling(self) -> int:
        """How often it was cancelled, less how often that was taken back."""
        return self._cancellations

    def uncancel(self) -> int:
        """Take one cancellation back."""
        self._cancellations = max(0, self._cancellations - 1)
        return self._cancellations
