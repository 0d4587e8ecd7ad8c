"""Reading records from the database, many with one query, for as long as the database answers.

    names ──> queue ──> query of up to 256 names ──> database
                         (up to 2 in flight)

What is asked for while both queries are in flight goes with the next one, so a burst becomes a few
queries and waits its turn. The database is unavailable when it is silent (`Silence`), refuses a
connection or a query, and not because many wait: a queue of our own says nothing about it. While it
is unavailable nothing waits, and probes find out when it has recovered; so does a late reply.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from headgate.core.silence import Silence
from headgate.core.units import SECOND
from headgate.errors import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headgate.core.units import Micros
    from headgate.dataplane.record_cache import Wanted
    from headgate.ports import RecordSource

log = logging.getLogger("headgate")

MAX_NAMES: Final = 256
"""Of one query."""
MAX_QUERIES: Final = 2
"""In flight at once, each on a connection of its own."""
MAX_WAITING: Final = 100_000
"""Names in the queue. Beyond that records are assumed, so that memory is bounded."""
_LOOKS: Final = 10
"""In the time of a deadline."""
_MIN_SHARE: Final = 0.1
"""Of the time between two looks that always counts as silence."""
_SECONDS_TO_START: Final = 0.05
"""How long a start waits: enough for a database nearby, and short if it is silent."""
_PROBE: Final = bytes(32)
"""The hash of no key."""


class Deadlines(NamedTuple):
    """How long the database may be silent, in seconds.

    Only callers who come in the first moments of an outage wait for as long, because then the circuit is open; and
    on a machine that is short of processor time the server is, too. So these are longer than a query ever takes.
    """

    reply: float = 0.25
    """With a query owed."""
    connect: float = 1.0
    """With a connection in the making: its socket cannot be looked at, and the server has more to do."""
    abandon: float = 2.0
    """After this span a connection is dropped. Its host may have vanished, and then no reply will ever come."""
    probe: float = 0.5
    """Between two probes."""


AS_SHIPPED: Final = Deadlines()


class Reader(Protocol):
    """What wants records, and is told of the outcome."""

    def answered(self, batch: Sequence[Wanted], found: Mapping[Any, Mapping[str, Any]]) -> None:
        """The database has said what is on record; what is not in `found` is not."""

    def unavailable(self, batch: Sequence[Wanted]) -> None:
        """These cannot be read now."""

    def recovered(self) -> None:
        """The database answers again."""


class Lookups:
    """Queries for one reader."""

    def __init__(
        self,
        source: RecordSource,
        reader: Reader,
        clock: Callable[[], Micros],
        deadlines: Deadlines = AS_SHIPPED,
        kept_waiting: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`clock` never steps back.

        `kept_waiting` says how many seconds the machine has kept this process waiting for a processor so far.
        """
        self.is_available = True
        self._source = source
        self._reader = reader
        self._clock = clock
        self._kept_waiting = kept_waiting
        self._deadlines = deadlines
        self._interval = deadlines.reply / _LOOKS
        self._silence = Silence(_MIN_SHARE)
        self._queue: deque[Wanted] = deque()
        self._in_flight: dict[asyncio.Task[None], Sequence[Wanted]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._probing: asyncio.TimerHandle | None = None
        self._was_connecting = False
        self._since: Micros = 0

    async def start(self) -> None:
        """Open all connections, so that no caller waits for them; this waits for a moment, then continues without."""
        for _ in range(MAX_QUERIES):
            self._send((), self._probe())
        await asyncio.wait([*self._in_flight], timeout=_SECONDS_TO_START)

    def ask(self, wanted: Sequence[Wanted]) -> None:
        """Read these; the reader is told, at once if the database is unavailable."""
        room = MAX_WAITING - len(self._queue) if self.is_available else 0
        self._queue.extend(wanted[:room])
        if len(wanted) > room:
            self._reader.unavailable(wanted[room:])
        self._pump()

    def _pump(self) -> None:
        while self._queue and len(self._in_flight) < MAX_QUERIES:
            batch = [self._queue.popleft()]
            kind = batch[0].is_key
            while self._queue and len(batch) < MAX_NAMES and self._queue[0].is_key is kind:
                batch.append(self._queue.popleft())
            self._send(batch, self._query(batch))

    def _send(self, batch: Sequence[Wanted], query: Any) -> None:  # noqa: ANN401 (a coroutine)
        if not self._in_flight:
            self._begin_silence()
        task = asyncio.get_running_loop().create_task(query)
        self._in_flight[task] = batch
        task.add_done_callback(self._over)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._interval, self._look)

    async def _query(self, batch: Sequence[Wanted]) -> None:
        names = [wanted.subject for wanted in batch]
        ask: Callable[[Any], Any] = self._source.keys if batch[0].is_key else self._source.users
        found = await self._replied(ask(names))
        if found is not None:
            self._reader.answered(batch, found)

    async def _probe(self) -> None:
        await self._replied(self._source.keys([_PROBE]))

    async def _replied(self, query: Any) -> Any:  # noqa: ANN401 (a coroutine, and what it returns)
        """The reply to a query, or None if the database cannot answer it."""
        try:
            reply = await query
        except DatabaseError as error:
            self._give_up(str(error))
            return None
        self._begin_silence()
        if not self.is_available:
            self.is_available = True
            seconds = (self._clock() - self._since) / SECOND
            log.warning("circuit closed: the database of users and API keys recovered after %.1f s", seconds)
            self._reader.recovered()
        return reply

    def _over(self, task: asyncio.Task[None]) -> None:
        batch = self._in_flight.pop(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            log.error("a look-up of users or API keys failed with an unexpected error", exc_info=error)
            self._reader.unavailable(batch)
        self._pump()

    def _look(self) -> None:
        """Look whether the server is silent, while it owes something."""
        self._timer = None
        if not self._in_flight:
            return
        silence, deadlines = self._silence, self._deadlines
        was_connecting, self._was_connecting = self._was_connecting, self._source.is_connecting()
        is_connected = was_connecting and not self._was_connecting  # which the server has said, too
        if is_connected or self._source.has_unread():
            self._begin_silence()
        else:
            silence.advance(self._clock() / SECOND, self._kept_waiting(), self._interval)
        seconds = silence.lasts
        if seconds >= (deadlines.connect if self._was_connecting else deadlines.reply):
            self._give_up(f"no reply for {seconds * 1000:.0f} ms, nothing to read, {len(self._in_flight)} in flight")
        if seconds >= deadlines.abandon:
            self._begin_silence()
            self._source.abandon()
        self._timer = asyncio.get_running_loop().call_later(self._interval, self._look)

    def _begin_silence(self) -> None:
        """The server has replied, or owes a reply only from now on."""
        self._silence.begin(self._clock() / SECOND, self._kept_waiting())

    def _give_up(self, why: str) -> None:
        """Answer all who wait that nothing can be read now, and probe until that changes."""
        if self.is_available:
            self.is_available = False
            self._since = self._clock()
            log.warning(
                "circuit open: the database of users and API keys is unavailable: %s; %d look-ups waiting, "
                "identities are assumed until it recovers",
                why,
                len(self._queue) + sum(map(len, self._in_flight.values())),
            )
        waiting, self._queue = [*self._queue], deque()
        for batch in self._in_flight.values():
            waiting += batch
        if waiting:
            self._reader.unavailable(waiting)
        if self._probing is None:
            self._probing = asyncio.get_running_loop().call_later(self._deadlines.probe, self._probe_again)

    def _probe_again(self) -> None:
        self._probing = None
        if self.is_available:
            return
        if len(self._in_flight) < MAX_QUERIES:
            self._send((), self._probe())
        self._probing = asyncio.get_running_loop().call_later(self._deadlines.probe, self._probe_again)

    async def close(self) -> None:
        """Give up what is in flight, and close the connections."""
        for timer in (self._timer, self._probing):
            if timer is not None:
                timer.cancel()
        self._timer = self._probing = None
        self._queue.clear()
        tasks = [*self._in_flight]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._source.close()
