"""Asking a database in the middle of a decision: not for long, not too much at once, and not while it is away."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from headgate.core.breaker import Breaker, State
from headgate.errors import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from typing import TypeAlias

    from headgate.core.units import Micros

    Answer: TypeAlias = Mapping[str, Any] | None
    Question: TypeAlias = Callable[[], Coroutine[Any, Any, Answer]]

log = logging.getLogger("headgate")

MOST_AT_ONCE: Final = 32
SECONDS: Final = 0.05
_PATIENCE: Final = 20
"""So many deadlines a question waits for its turn: whoever asked has gone on by then, but will ask again."""
_SECONDS_BETWEEN_PROBES: Final = 0.5


class Asking:
    """Answers of a database, or a `DatabaseError` once the deadline has passed."""

    def __init__(
        self, clock: Callable[[], Micros], seconds: float = SECONDS, between_probes: float = _SECONDS_BETWEEN_PROBES
    ) -> None:
        """`clock` never steps back; `seconds` is the deadline."""
        self.seconds = seconds
        self._clock = clock
        self._between_probes = between_probes
        self._breaker = Breaker(self._changed)
        self._turns = asyncio.Semaphore(MOST_AT_ONCE)
        self._answers = 0
        self._running: set[asyncio.Task[Any]] = set()
        self._probing: asyncio.Task[None] | None = None
        self._question: Question | None = None
        """What was asked last, to be asked again as a probe."""

    @property
    def state(self) -> State:
        """The state of the breaker."""
        return self._breaker.state

    async def ask(self, question: Question) -> Answer:
        """The answer."""
        if not self._breaker.admits():
            msg = "the database is away"
            raise DatabaseError(msg, transient=True)
        self._question = question
        answer = await self._in_turn(question)
        self._breaker.succeeded(self._clock())
        return answer

    async def _in_turn(self, question: Question) -> Answer:
        """Ask when it is our turn, and tell the breaker of a failure.

        A question that is late is not broken off: it may be making a connection, which others will
        need, and as long as it hangs it is work for the database, so it keeps its turn. The
        database's own deadline ends it. If others were answered meanwhile, the database is not
        away, and it is we who ask more than it can answer.
        """
        try:
            async with asyncio.timeout(_PATIENCE * self.seconds):
                await self._turns.acquire()
        except TimeoutError:
            msg = f"{MOST_AT_ONCE} questions to the database are under way already"
            raise DatabaseError(msg, transient=True) from None
        answers = self._answers
        task = asyncio.create_task(question())
        self._running.add(task)
        task.add_done_callback(self._over)
        await asyncio.wait({task}, timeout=self.seconds)
        if task.done():
            try:
                return task.result()
            except DatabaseError:
                self._breaker.failed(self._clock())
                raise
        if answers == self._answers:
            self._breaker.failed(self._clock())
        msg = f"the database did not answer within {self.seconds:g} s"
        raise DatabaseError(msg, transient=True)

    def _over(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        self._turns.release()
        if not task.cancelled() and task.exception() is None:
            self._answers += 1

    def _changed(self, state: State) -> None:
        log.warning("the database of users and keys: the circuit breaker is %s", state)
        if state is State.OPEN and (self._probing is None or self._probing.done()):
            self._probing = asyncio.create_task(self._probe())

    async def _probe(self) -> None:
        """Ask the last question again from time to time, until the database is back."""
        while self._breaker.state is not State.CLOSED and self._question is not None:
            await asyncio.sleep(self._between_probes)
            with suppress(DatabaseError):
                await self._in_turn(self._question)
                self._breaker.answered_probe(self._clock())

    async def close(self) -> None:
        """Give up what is under way."""
        tasks = [*self._running, *([self._probing] if self._probing else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
