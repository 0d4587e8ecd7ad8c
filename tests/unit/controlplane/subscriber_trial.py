"""A process that follows, with a feed and a database that can be put to the test."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from headgate.adapters.memory import MemoryFeed
from headgate.controlplane import changes
from headgate.controlplane.changes import StoredChanges
from headgate.controlplane.documents import make
from headgate.controlplane.subscriber import Subscriber
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.errors import DatabaseError, StoreError
from headgate.ports import Announcement, Document, FeedState, Position, digest_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from headgate.adapters.saved_documents import SavedDocuments

SOON = 0.01


def rules(number: int, amount: int = 5, lineage: str = "l1") -> Document:
    return make("rules", number, {"rules": [{"name": "r", "limits": f"{amount}/hour"}]}, lineage)


def sealed(number: int, body: bytes) -> Document:
    return Document("rules", number, body, digest_of("rules", number, body), "l1")


class Feed(MemoryFeed):
    """A feed that can be put to the test."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched = 0
        self.looked = asyncio.Event()
        self.is_down = self.is_silent = self.is_frozen = False

    async def state(self) -> FeedState:
        await self._suffer()
        self.looked.set()
        return await super().state()

    async def document(self, kind: str) -> Document | None:
        await self._suffer()
        self.fetched += kind == "rules"
        return await super().document(kind)

    async def announce(self, announcement: Announcement) -> None:
        listening = self._listening
        if self.is_silent:
            self._listening = set()
        await super().announce(announcement)
        self._listening = listening

    async def _suffer(self) -> None:
        if self.is_frozen:
            await asyncio.Event().wait()
        if self.is_down:
            msg = "connection refused"
            raise StoreError(msg, transient=True)

    def plant(self, document: Document) -> None:
        """Put a document there past all checks."""
        self._documents["rules"] = document

    async def publish(self, document: Document, names: Sequence[str] = ("rules",), since: int | None = None) -> None:
        await self.put(document)
        since = self._position.number if since is None else since
        await self.announce(Announcement(since, Position(document.lineage, document.number, "m"), names))

    async def looks(self, times: int = 2) -> None:
        """Wait until it was looked at so many times; one look may be in flight."""
        for _ in range(times):
            self.looked.clear()
            await asyncio.wait_for(self.looked.wait(), 10)


class Stored(StoredChanges):
    """A database that can be put to the test."""

    def __init__(self, *documents: Document, lineage: str = "l1") -> None:
        self.lineage = lineage
        self.documents: dict[str, Document] = {}
        self.changes: list[str] = []
        """Their names; the first is change 1."""
        self.is_down = self.is_frozen = False
        self.looked = self.fetched = 0
        for document in documents:
            self.publish(document)

    def publish(self, document: Document) -> None:
        """Commit a document, under the number of its change."""
        self.documents[document.kind] = document
        self.change(document.kind, document.number)

    def change(self, name: str, number: int | None = None) -> None:
        """Commit a change."""
        self.changes += [name] * (1 if number is None else number - len(self.changes))

    async def document(self, kind: str) -> Document | None:
        await self._suffer()
        self.fetched += kind == "rules"
        return self.documents.get(kind)

    async def since(self, position: Position) -> changes.ChangeState:
        await self._suffer()
        self.looked += 1
        numbers = {kind: self.documents[kind].number if kind in self.documents else 0 for kind in ("rules", "blocks")}
        names = self.changes[position.number :] if position.lineage == self.lineage else ["*"]
        return changes.ChangeState(Position(self.lineage, len(self.changes), "m"), numbers, list(dict.fromkeys(names)))

    async def _suffer(self) -> None:
        if self.is_frozen:
            await asyncio.Event().wait()
        if self.is_down:
            msg = "it does not answer"
            raise DatabaseError(msg, transient=True)


class Trial:
    """A process that follows, and what becomes of it."""

    def __init__(self, saved: SavedDocuments | None = None, **options: Any) -> None:  # noqa: ANN401 (whatever it takes)
        self.feed = Feed()
        self.limits: list[str] = []
        self.forgotten: list[list[str]] = []
        self.subscriber = Subscriber(
            self.feed,
            {"rules": self._take, "blocks": lambda _data, _number: None},
            lambda names: self.forgotten.append(list(names)),
            saved,
            **{"every": SOON, "grace": SOON, "patience": 60.0, **options},
        )

    def _take(self, data: object, _number: int) -> None:
        self.limits = [str(rule.limits[0]) for rule in parse_rule_set(data).rules]

    def stumble(self, _names: Sequence[str]) -> None:
        msg = "an accident"
        raise RuntimeError(msg)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.subscriber.run())
        yield
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert asyncio.all_tasks() == {asyncio.current_task()}

    @property
    def number(self) -> int:
        return self.subscriber.state["rules"].number

    async def until(self, number: int) -> None:
        async with asyncio.timeout(10):
            while self.number != number:  # noqa: ASYNC110 (a thread is at work)
                await asyncio.sleep(0.001)
