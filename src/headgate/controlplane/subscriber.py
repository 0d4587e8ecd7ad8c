"""Following changes: documents are fetched and activated, and records that have changed are dropped from caches.

Announcements say at once what has changed. Some may be lost, so the feed's position is
looked at every second: if it is ahead of what was heard, everything is looked at again.
While the feed is unavailable the database is followed directly, where there is one.
"""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import aclosing, suppress
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from headgate.controlplane.database_subscriber import DatabaseSubscriber
from headgate.controlplane.document_applier import DAMAGED, ActiveDocument, DocumentApplier, DocumentOrigin, Refusal
from headgate.errors import DatabaseError, HeadgateError, InvalidFields, StoreError
from headgate.ports import EVERYTHING, Position

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from headgate.controlplane.changes import StoredChanges
    from headgate.ports import Announcement, Document, DocumentId, Feed, FeedState, SavedDocuments

__all__ = ["ActiveDocument", "DocumentOrigin", "Followed", "Refusal", "Subscriber"]

log = logging.getLogger("headgate")
_chance: Final = random.SystemRandom()
"""Without a state that a fork copies, and apart from that of the program we are in."""

_SHARE_OF_FEED: Final = 0.4
_SHARE_OF_DATABASE: Final = 0.4
_BETWEEN_TRIES: Final = 0.05
_DATABASE_SECONDS: Final = 5.0
_UNPUBLISHED: Final = frozenset({DocumentOrigin.NOTHING, DocumentOrigin.FILE})
_NOTHING: Final[Mapping[str, object]] = MappingProxyType({})


class Followed(StrEnum):
    """Where changes are heard of now."""

    FEED = "feed"
    DATABASE = "database"
    NOTHING = "none"


class Subscriber:
    """Keeps one process up to date."""

    def __init__(
        self,
        feed: Feed,
        takers: Mapping[str, Callable[[object, int], None]],
        forget: Callable[[Sequence[str]], None],
        saved: SavedDocuments | None = None,
        database: StoredChanges | None = None,
        *,
        empty: Mapping[str, object] = _NOTHING,
        every: float = 1.0,
        grace: float = 0.2,
        patience: float = 0.5,
    ) -> None:
        """`takers` activate data of a kind, in a thread, or raise; `forget` drops cached records by name.

        `empty` is activated where the database says that nothing of a kind was published. Every so many
        seconds the feed is looked at; an announcement that is `grace` seconds later than what it announces is
        lost, and a feed that does not answer within `patience` may be.
        """
        self._feed = feed
        self.applier = DocumentApplier(takers, saved)
        """Which documents are active."""
        self._forget = forget
        self._saved = saved
        self._direct = None
        if database is not None:
            self._direct = DatabaseSubscriber(database, self.applier, forget, empty, every)
        self._every = every
        self._grace = grace
        self._patience = patience
        self._heard = Position()
        self._woken = asyncio.Event()
        self._subscription: asyncio.Timeout | None = None
        self._confirmed: float | None = None
        self.followed = Followed.FEED
        """Where changes are heard of now; said in the log when it changes."""
        self.trouble: str | None = None
        """Why the feed cannot be followed just now."""
        self.missed = 0
        """How often announcements were lost."""

    @property
    def state(self) -> Mapping[str, ActiveDocument]:
        """The active documents, by kind."""
        return self.applier.state

    @property
    def refused(self) -> Counter[Refusal]:
        """How many documents were refused, by reason."""
        return self.applier.refused

    @property
    def confirmed(self) -> float | None:
        """When feed or database last answered, on the loop's clock: all that was there then is active, or refused."""
        times = [self._confirmed, None if self._direct is None else self._direct.confirmed]
        return max((time for time in times if time is not None), default=None)

    # Starting

    async def start(self, seconds: float = 1.5) -> Mapping[str, ActiveDocument]:
        """Activate the newest documents available in so many seconds, and say where they came from."""
        saved = [(kind, await asyncio.to_thread(self._read_saved, kind)) for kind in self.state]
        reasons = [
            await self._within(_SHARE_OF_FEED * seconds, self._first_look, "the feed"),
            await self._within(_SHARE_OF_DATABASE * seconds, self._ask_database, "the database"),
        ]
        for kind, document in saved:
            # Also if the feed has lost what this machine has seen already.
            if document is not None and self.applier.is_behind(kind, document.id):
                await self.applier.take(kind, document, DocumentOrigin.SAVED)
        documents = ", ".join(
            f"{kind} {number} from {origin}" if origin is not DocumentOrigin.NOTHING else f"no {kind}"
            for kind, (origin, number) in self.state.items()
        )
        why = "; ".join(reason for reason in reasons if reason)
        log.log(logging.WARNING if why else logging.INFO, "started with %s%s", documents, f" ({why})" if why else "")
        return self.state

    async def _within(self, seconds: float, step: Callable[[float], Awaitable[None]], name: str) -> str:
        """Take a step, again if it fails, until the time is over; returns why it failed in the end."""
        until = asyncio.get_running_loop().time() + seconds
        while True:
            try:
                await step(until)
            except (StoreError, DatabaseError, TimeoutError) as error:
                if asyncio.get_running_loop().time() + _BETWEEN_TRIES >= until:
                    return f"{name}: {str(error) or 'no answer in time'}"
                await asyncio.sleep(_BETWEEN_TRIES)
            else:
                return ""

    async def _first_look(self, until: float) -> None:
        async with asyncio.timeout_at(until):
            self._heard = (await self._feed.state()).position
        for kind in self.state:
            async with asyncio.timeout_at(until):
                document = await self._feed.document(kind)
            if document is not None and self.applier.wants(kind, document.id):
                await self.applier.take(kind, document, DocumentOrigin.FEED)

    async def _ask_database(self, until: float | None = None) -> None:
        """Take from the database what was never published to this process; `DatabaseError` if it does not answer."""
        if self._direct is not None:
            for kind, active in self.state.items():
                if active.origin in _UNPUBLISHED:
                    await self._direct.take(kind, until)

    def _read_saved(self, kind: str) -> Document | None:
        try:
            return None if self._saved is None else self._saved.read(kind)
        except InvalidFields as error:
            self.refused[Refusal.DIGEST] += 1
            log.error("%s", error)  # noqa: TRY400 (a sentence for the operator, not a traceback)
            return None

    # Following

    async def run(self) -> None:
        """Follow, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._listen())
            group.create_task(self._watch())
            if self._direct is not None:
                group.create_task(self._direct.run(self._judge))
                group.create_task(self._ask_for_what_is_missing())

    async def _ask_for_what_is_missing(self) -> None:
        """Ask the database for what was not found at the start, soon and then once a second; it may be nothing."""
        pause = 0.1 * self._every
        while any(active.origin in _UNPUBLISHED for active in self.state.values()):
            with suppress(HeadgateError):
                await self._ask_database()
            pause = min(2 * pause, self._every)
            await asyncio.sleep(pause * _chance.uniform(0.8, 1.2))  # so that a fleet does not come at once

    async def _listen(self) -> None:
        """Hear announcements; when the connection is lost, or something was not heard, subscribe again."""
        while True:
            is_listening = False
            try:
                async with (
                    asyncio.timeout(None) as self._subscription,
                    aclosing(self._feed.announcements()) as arriving,
                ):
                    async for announcement in arriving:
                        if announcement is None:
                            is_listening = True
                            self._woken.set()  # whatever was announced before we listened
                        else:
                            self._hear(announcement)
            except (StoreError, TimeoutError):
                if is_listening:
                    self._woken.set()  # `_watch` finds out whether the feed is unavailable
            except Exception:
                log.exception("feed: the subscription failed, retry within seconds")
            self._subscription = None
            await asyncio.sleep(self._every * _chance.uniform(0.1, 0.5))  # so that a fleet does not come at once

    def _hear(self, announcement: Announcement) -> None:
        since, position, names = announcement
        if position.lineage:
            is_next = position.lineage == self._heard.lineage and since <= self._heard.number
            if not is_next:
                names = [EVERYTHING]
            if not is_next or position.number > self._heard.number:
                self._heard = position
        self._act_on(names)

    def _act_on(self, names: Sequence[str]) -> None:
        if EVERYTHING in names:
            names = [EVERYTHING, *self.state]
        kinds = [name for name in names if name in self.state]
        for kind in kinds:
            self.applier.try_again(kind)
        if kinds:
            self._woken.set()
        if len(kinds) < len(names):
            self._forget([name for name in names if name not in kinds])

    async def _watch(self) -> None:
        """Look at the feed every second, and when an announcement says so."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._every):
                    await self._woken.wait()
            self._woken.clear()
            try:
                await self._look()
                self._confirmed = asyncio.get_running_loop().time()
            except Exception as error:  # noqa: BLE001 (whatever it is, the loop must go on)
                self._lose(str(error) or repr(error))
            else:
                self.trouble = None
                if self._direct is not None:
                    self._direct.end()
            self._judge()

    def _lose(self, trouble: str) -> None:
        """Note why the feed is unavailable, and have the database followed."""
        self.trouble = trouble
        if self._direct is not None:
            self._direct.begin(self._heard)

    def _judge(self) -> None:
        """Say where changes are heard of now, if that has changed."""
        now, direct = Followed.FEED, self._direct
        if self.trouble is not None:
            if direct is not None and direct.confirmed is None and direct.trouble is None:
                return  # it is being asked
            now = Followed.NOTHING if direct is None or direct.trouble is not None else Followed.DATABASE
        if now is self.followed:
            return
        self.followed = now
        self.applier.has_changed.set()
        if now is Followed.FEED:
            log.warning("rules: redis recovered, changes come from it again")
        elif now is Followed.DATABASE:
            log.warning("rules: redis unavailable, changes come from PostgreSQL: %s", self.trouble)
        else:
            also = "" if direct is None else f"; PostgreSQL unavailable: {direct.trouble}"
            log.warning(
                "rules: redis unavailable, no changes received, active rules and blocks stay: %s%s", self.trouble, also
            )

    async def _look(self) -> None:
        position, documents = await self._state()
        if self.followed is Followed.DATABASE:
            await self._refuse_to_go_back(documents)
        for kind, offered in documents.items():
            if kind in self.state and self.applier.wants(kind, offered):
                await self._fetch(kind)
        await self._compare(position)

    async def _state(self) -> FeedState:
        """How far the feed is; if it is slow to say so, the database is followed meanwhile."""
        loop = asyncio.get_running_loop()
        late = loop.call_later(self._patience, self._lose, f"no answer within {self._patience:g} s")
        try:
            return await self._feed.state()
        finally:
            late.cancel()

    async def _refuse_to_go_back(self, documents: Mapping[str, DocumentId]) -> None:
        """Raise `StoreError` if a feed that has recovered has older documents than the database."""
        if self._direct is not None:
            with suppress(DatabaseError):
                await self._direct.look()
        for kind, offered in documents.items():
            if kind in self.state and self.applier.is_ahead(kind, offered):
                msg = f"it has {kind} {offered.number}, older than the active {self.state[kind].number}"
                raise StoreError(msg, transient=True)

    async def _fetch(self, kind: str) -> None:
        document = await self._feed.document(kind)
        if document is None:
            return
        why = await self.applier.take(kind, document, DocumentOrigin.FEED)
        if why is None:
            log.info("%s %d active, from the feed", kind, document.number)
        elif why in DAMAGED and self._direct is not None:
            with suppress(DatabaseError, TimeoutError):
                await self._direct.take(kind, asyncio.get_running_loop().time() + _DATABASE_SECONDS)

    async def _compare(self, position: Position) -> None:
        """Find out whether something was announced that we did not hear."""
        if not position.lineage or self._has_heard(position):  # without a lineage: all was lost, and is written anew
            return
        if position.lineage == self._heard.lineage:
            await asyncio.sleep(self._grace)  # it may be on its way
            if self._has_heard(position):
                return
            self._subscribe_again()
        self._heard = position
        self._act_on([EVERYTHING])

    def _subscribe_again(self) -> None:
        """Give up a connection on which nothing is heard: it may be dead without having said so."""
        self.missed += 1
        if self._subscription is not None:
            self._subscription.reschedule(asyncio.get_running_loop().time())
            self._subscription = None

    def _has_heard(self, position: Position) -> bool:
        return position.lineage == self._heard.lineage and position.number <= self._heard.number
