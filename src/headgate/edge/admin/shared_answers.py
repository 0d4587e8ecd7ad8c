"""Answers that many viewers ask for at once: worked out once, and given to all who ask within a moment."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response

from headgate.adapters.clock import monotonic

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Hashable

    from pydantic import BaseModel

MAX_ANSWERS: Final = 64


class SharedAnswers:
    """The last answers by question. A bounded number; the oldest is forgotten first."""

    def __init__(self, clock: Callable[[], float] = monotonic, most: int = MAX_ANSWERS) -> None:
        """`clock` counts seconds."""
        self._clock = clock
        self._most = most
        self._answers: dict[Hashable, tuple[float, asyncio.Task[bytes]]] = {}

    def __len__(self) -> int:
        """How many are remembered."""
        return len(self._answers)

    async def answer(
        self, question: Hashable, seconds: float, model: type[BaseModel], find: Callable[[], Awaitable[Any]]
    ) -> Response:
        """The response with what `find` finds, checked and written as JSON once for all who ask for the same."""

        async def make() -> bytes:
            return model.model_validate(await find(), from_attributes=True).model_dump_json(by_alias=True).encode()

        return Response(await self.get(question, seconds, make), media_type="application/json")

    async def get(self, question: Hashable, seconds: float, make: Callable[[], Coroutine[None, None, bytes]]) -> bytes:
        """The answer that `make` gives, or gave within the last seconds; callers that come meanwhile wait for the same.

        A caller that leaves does not cancel it for the others. An answer that fails is told to all who wait for it,
        and is not remembered.
        """
        began, task = self._answers.get(question, (0.0, None))
        if task is None or (task.done() and self._clock() - began >= seconds):
            self._answers.pop(question, None)
            while len(self._answers) >= self._most:
                del self._answers[next(iter(self._answers))]
            task = asyncio.create_task(make())
            task.add_done_callback(lambda done: self._forget_failed(question, done))
            self._answers[question] = self._clock(), task
        return await asyncio.shield(task)

    def _forget_failed(self, question: Hashable, done: asyncio.Task[bytes]) -> None:
        # Asking for the exception says that it was seen, also if every caller has left.
        if done.cancelled() or done.exception() is not None:
            _, there = self._answers.get(question, (0.0, None))
            if there is done:
                del self._answers[question]
