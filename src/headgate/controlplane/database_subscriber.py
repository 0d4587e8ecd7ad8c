"""Following the database directly, while the feed is unavailable.

One small query a second in each process finds what a feed would have announced: newer documents, which are
taken as those of the feed are, and users and keys that have changed.
"""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from headgate.controlplane.document_applier import DocumentOrigin
from headgate.ports import EVERYTHING, Position

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headgate.controlplane.changes import StoredChanges
    from headgate.controlplane.document_applier import DocumentApplier

log = logging.getLogger("headgate")
_chance: Final = random.SystemRandom()
"""Without a state that a fork copies, and apart from that of the program we are in."""


class DatabaseSubscriber:
    """Looks at the database once a second, for as long as it is told to."""

    def __init__(
        self,
        stored: StoredChanges,
        applier: DocumentApplier,
        forget: Callable[[Sequence[str]], None],
        empty: Mapping[str, object],
        every: float,
    ) -> None:
        """`empty` has the data that hold where the database says that nothing was published, by kind."""
        self._stored = stored
        self._applier = applier
        self._forget = forget
        self._empty = empty
        self._every = every
        self._wanted = asyncio.Event()
        self._lock = asyncio.Lock()
        self._position = Position()
        self.confirmed: float | None = None
        """When the database last answered since it is followed, on the clock of the event loop."""
        self.trouble: str | None = None
        """Why the database cannot be followed."""

    def begin(self, position: Position) -> None:
        """Follow the database from this position on, unless that is done already."""
        if not self._wanted.is_set():
            self._position = position
            self.confirmed = self.trouble = None
            self._wanted.set()

    def end(self) -> None:
        """Stop reading the database."""
        self._wanted.clear()

    async def run(self, after_look: Callable[[], None]) -> None:
        """Follow the database while that is wanted, until cancelled; call `after_look` after each look."""
        while True:
            await self._wanted.wait()
            # A fleet does not come at once; and a feed whose answer was only late has answered by then.
            await asyncio.sleep(self._every * _chance.uniform(0.1, 0.3))
            while self._wanted.is_set():
                with suppress(Exception):  # it is in `trouble`, and the next look may succeed
                    await self.look()
                after_look()
                await asyncio.sleep(self._every * _chance.uniform(0.8, 1.2))

    async def look(self) -> None:
        """Take what is newer in the database than here, and forget what has changed; raises what goes wrong."""
        async with self._lock:
            try:
                await self._look()
            except Exception as error:
                self.trouble = str(error) or repr(error)
                raise
            self.trouble = None
            self.confirmed = asyncio.get_running_loop().time()

    async def _look(self) -> None:
        reached, numbers, names = await self._stored.since(self._position)
        for kind in self._applier.state:
            offered = (kind, reached.lineage, numbers[kind])
            if self._applier.lacks(*offered) and not self._applier.has_refused(*offered):
                await self.take(kind)
        if EVERYTHING in names:
            self._forget([EVERYTHING])
        elif records := [name for name in names if name not in self._applier.state]:
            self._forget(records)
        self._position = reached

    async def take(self, kind: str, until: float | None = None) -> None:
        """Activate the document of a kind in the database, if it is newer; the database has to answer by `until`."""
        async with asyncio.timeout_at(until):
            document = await self._stored.document(kind)
        if document is None:
            await self._take_nothing(kind)
        elif (
            self._applier.lacks(kind, document.lineage, document.number)
            and await self._applier.take(kind, document, DocumentOrigin.DATABASE) is None
        ):
            log.info("%s %d active, from the database", kind, document.number)

    async def _take_nothing(self, kind: str) -> None:
        """Note that nothing was published: an empty rule set is one, where there can be no other."""
        if kind in self._empty and self._applier.state[kind].origin is DocumentOrigin.NOTHING:
            await self._applier.hold(kind, self._empty[kind], DocumentOrigin.DATABASE)
