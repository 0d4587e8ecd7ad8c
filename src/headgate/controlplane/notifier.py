"""Announces changes to all processes: reads the table of changes, and brings the feed up to it.

Any number of processes may do it at once: documents and positions only go forward, and to announce a change twice does
no harm. A change that was committed and not announced is announced by the next process that looks.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from headgate.controlplane.changes import MAX_CHANGES, look, names_of
from headgate.controlplane.documents import stored
from headgate.errors import DatabaseError, StoreError
from headgate.ports import BLOCKS, EVERYTHING, RULES, Announcement, Position

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headgate.ports import Cache, Database, Feed, FeedState

    Row = Mapping[str, Any]

log = logging.getLogger("headgate")

_PATIENCE_IN_TROUBLE: Final = 0.2


class Notifier:
    """Brings the feed up to the database."""

    def __init__(
        self, database: Database, feed: Feed, cache: Cache, *, every: float = 1.0, patience: float = 2.0
    ) -> None:
        """Every so many seconds `run` looks whether something is missing in the feed.

        A call that makes a change waits no longer than `patience` seconds for the announcement.
        """
        self._database = database
        self._feed = feed
        self._cache = cache
        self._every = every
        self._patience = patience
        self._lock = asyncio.Lock()
        self._other = ""
        """The lineage of another database whose place in the feed we took last."""
        self.trouble: str | None = None
        """Why changes cannot be announced just now."""
        self.is_database_up = False
        """Whether the database answered when it was last asked."""

    async def announce(self) -> None:
        """Tell all processes what they have not heard of. Never raises: what fails now, `run` repeats."""
        # A feed that is known to be unavailable is not waited for: processes follow the database meanwhile.
        patience = self._patience if self.trouble is None else min(self._patience, _PATIENCE_IN_TROUBLE)
        try:
            async with asyncio.timeout(patience):
                await self._catch_up()
        except (StoreError, DatabaseError, TimeoutError) as error:
            self._note(str(error) or "no answer in time")

    async def run(self) -> None:
        """Look again and again, until cancelled, and announce whatever is missing."""
        while True:
            try:
                await self._catch_up()
            except Exception as error:  # noqa: BLE001 (whatever it is, the loop must go on)
                self._note(str(error) or repr(error))
            else:
                self._note(None)
            await asyncio.sleep(self._every)

    def _note(self, trouble: str | None) -> None:
        if trouble is not None and self.trouble is None:
            log.warning("changes: the feed is unavailable, announcements wait: %s", trouble)
        if trouble is None and self.trouble is not None:
            log.warning("changes: announcements recovered")
        self.trouble = trouble

    async def _catch_up(self) -> None:
        async with self._lock:
            try:
                state = await self._feed.state()
            except StoreError:
                await self._look(0)  # nothing can be announced, but whether the database is up is asked all the same
                raise
            # The database is looked at after the feed, so it can only be ahead of it.
            here = await self._look(state.position.number)
            if _has_diverged(state, here):
                log.warning("changes: the database was restored or replaced, all records are announced again")
                async with self._database.change() as writing:
                    await writing.run("feed.renew", here["lineage"])
                here = await self._look(state.position.number)
            elif state.position.lineage not in {"", here["lineage"], self._other}:
                self._other = state.position.lineage
                log.warning(
                    "changes: this Redis served another headgate database before, all records are announced again; "
                    "if both are in use, give each a Redis database of its own"
                )
            renewed = [kind for kind in (RULES, BLOCKS) if await self._renew(kind, state, here)]
            await self._tell(state.position, here, renewed)

    async def _look(self, position: int) -> Row:
        has_answered = False
        try:
            row = await look(self._database, position)
            has_answered = True
        finally:
            self.is_database_up = has_answered
        return row

    async def _renew(self, kind: str, state: FeedState, here: Row) -> bool:
        """Put a document in the feed, unless it is there."""
        there = state.documents.get(kind)
        is_there = there is not None and (there.lineage, there.number) == (here["lineage"], here[kind])
        if is_there and (kind == BLOCKS or there is None or there.digest == here["digest"]):
            return False
        document = await stored(self._database, kind)
        if document is None:  # nothing was published here yet: what the feed has stays
            return False
        await self._feed.put(document)
        return True

    async def _tell(self, position: Position, here: Row, renewed: Sequence[str]) -> None:
        if position.lineage != here["lineage"]:
            since, reached = 0, Position(here["lineage"], here["newest"], here["newest_mark"])
            names: list[str] = [EVERYTHING]
        else:
            since = position.number
            rows = await self._database.rows("feed.since", since, MAX_CHANGES)
            reached = Position(here["lineage"], rows[-1]["id"], rows[-1]["mark"]) if rows else position
            names = list(dict.fromkeys([*renewed, *names_of(rows)]))
        if reached == position and not names:
            return
        # First of all, or a process would read again what it is told to forget.
        records = (
            [EVERYTHING] if EVERYTHING in names else [f"hg:{name}" for name in names if name not in (RULES, BLOCKS)]
        )
        dropped = not records or await self._cache.drop(records)
        await self._feed.announce(Announcement(since, reached if dropped else position, names))
        if not dropped:
            msg = "records of users and API keys that redis has cached could not be dropped"
            raise StoreError(msg, transient=True)


def _has_diverged(state: FeedState, here: Row) -> bool:
    """Whether the feed knows of changes that this database has not made, as after it was restored from a backup."""
    position = state.position
    if position.lineage == here["lineage"] and position.mark != here["mark"]:
        return True
    documents = state.documents.items()
    return any(id_.lineage == here["lineage"] and id_.number > here[kind] for kind, id_ in documents if kind in here)
