"""One sink and one stream: read a batch, have it stored, keep the place, until there is nothing left.

A sink that fails is tried again after a pause, which grows while it is away. The batch in hand is never given up.
"""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from headgate.core.account import NOTHING, Account
from headgate.core.units import SECOND
from headgate.errors import SinkError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from headgate.core.units import Micros
    from headgate.ports import CountSink, EventSink

    Aside = Callable[..., Awaitable[Any]]

log = logging.getLogger("headgate")
_chance: Final = random.SystemRandom()
"""Without a state that a fork copies, and apart from that of the program we are in."""

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 10.0
_SECONDS_BETWEEN_LOOKS: Final = 0.5
_BATCHES_BETWEEN_LOOKS: Final = 16


class Source(Protocol):
    """What is spooled of one stream. Its methods block and may raise `OSError`; one thread at a time calls them."""

    def look(self) -> None:
        """Find what is new, and delete what all sinks are done with."""

    def take(self, sink: str) -> Any:  # noqa: ANN401 (of the source's own; it has `batches`)
        """The next batches for a sink, or None; of events always one."""

    def keep(self, sink: str, taken: Any, refused: int) -> None:  # noqa: ANN401 (what `take` gave)
        """A sink is done with what it was given, of which it can never take so many."""

    def account(self, sink: str) -> Account:
        """What became of everything that a sink was to store."""


class _UnreadableSpool(OSError):
    """What waits cannot be read now."""


class SinkState(NamedTuple):
    """How a sink is doing."""

    account: Account
    error: str | None
    """Why it does not store at the moment."""
    lag: float
    """For how many seconds it has not had everything."""


class Courier:
    """Brings a stream to a sink."""

    def __init__(
        self,
        stream: str,
        source: Source,
        sink: EventSink | CountSink,
        clock: Callable[[], Micros],
        aside: Aside,
        every: float | None = None,
    ) -> None:
        """`aside` does what blocks in the one thread that may. `every` is how many seconds there are between looks."""
        self.stream = stream
        self.sink = sink
        self.account = NOTHING
        self._source = source
        self._clock = clock
        self._aside = aside
        self._every = every
        self.error: str | None = None
        """Why the sink gets nothing at the moment; what keeps all of them from it, `Shipping` says here."""
        self._had_everything = clock()

    def state(self) -> SinkState:
        """How the sink is doing, as of the last look."""
        lag = (self._clock() - self._had_everything) / SECOND if self.account.spooled else 0.0
        return SinkState(self.account, self.error, max(0.0, lag))

    async def run(self, stopping: asyncio.Event) -> None:
        """Ship until it is time to end, and then until there is nothing left."""
        pause = _FIRST_PAUSE
        while True:
            is_last = stopping.is_set()
            try:
                await self._ship_all()
            except _UnreadableSpool as error:
                self._gets_nothing(f"the spool cannot be read: {error}")
            except (SinkError, OSError) as error:
                self._gets_nothing(f"{self.sink.name} is away: {error}")
            except Exception as error:  # a fault of ours must not end it either
                log.exception("the sink %s has failed", self.sink.name)
                self._gets_nothing(f"{self.sink.name} is away: {type(error).__name__}: {error}")
            else:
                self._is_back()
                if is_last:
                    return
                pause = _FIRST_PAUSE
                await waited(stopping, self._every or _SECONDS_BETWEEN_LOOKS)
                continue
            if stopping.is_set():  # there is little time
                await asyncio.sleep(_FIRST_PAUSE)
            else:
                await waited(stopping, _chance.uniform(pause / 2, pause))
            pause = min(_LONGEST_PAUSE, 2 * pause)

    async def _ship_all(self) -> None:
        """All there is by now."""
        number = 0
        while True:
            if number % _BATCHES_BETWEEN_LOOKS == 0:
                await self.look()
            taken = await self._spool(self._source.take, self.sink.name)
            if taken is None:
                break
            done = await self.sink.store(*taken.batches)
            await self._spool(self._source.keep, self.sink.name, taken, done.refused)
            self._is_back()
            number += 1
        await self.look()

    async def look(self) -> None:
        """See what there is, and what became of it."""
        await self._spool(self._source.look)
        self.account = await self._spool(self._source.account, self.sink.name)
        if not self.account.spooled:
            self._had_everything = self._clock()

    async def _spool(self, work: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401 (what the work gives)
        try:
            return await self._aside(work, *arguments)
        except OSError as error:
            raise _UnreadableSpool(reason(error)) from error

    def _gets_nothing(self, error: str) -> None:
        if self.error is None:
            log.warning("%s wait in the spool, %s", self.stream, error)
        self.error = error

    def _is_back(self) -> None:
        if self.error is not None:
            log.info("%s are stored again, %s is back", self.stream, self.sink.name)
        self.error = None


def reason(error: OSError) -> str:
    """What the system says, and of which file."""
    return str(error) if error.strerror is None else f"{error.filename or 'it'}: {error.strerror}"


async def waited(event: asyncio.Event, seconds: float) -> None:
    """Wait for an event, but not longer than so many seconds."""
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
