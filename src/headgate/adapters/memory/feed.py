"""The feed and the cache for one process: the same promises, and nothing to connect to."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from headgate.ports import EVERYTHING, CachedValues, FeedState, Position

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

    from headgate.core.units import Micros
    from headgate.ports import Announcement, Document

_MAX_VALUES: Final = 10_000
_DROPPED_MICROS: Final = 10_000_000
"""See redis/cache.py."""


class MemoryFeed:
    """A `Feed` for all users of this object. Use it on one event loop."""

    def __init__(self) -> None:
        """Nothing is announced yet."""
        self._position = Position()
        self._documents: dict[str, Document] = {}
        self._listening: set[asyncio.Queue[Announcement]] = set()

    async def state(self) -> FeedState:
        """See `Feed.state`."""
        return FeedState(self._position, {kind: document.id for kind, document in self._documents.items()})

    async def document(self, kind: str) -> Document | None:
        """See `Feed.document`."""
        return self._documents.get(kind)

    async def put(self, document: Document) -> None:
        """See `Feed.put`."""
        there = self._documents.get(document.kind)
        if there is None or there.lineage != document.lineage or there.number <= document.number:
            self._documents[document.kind] = document

    async def announce(self, announcement: Announcement) -> None:
        """See `Feed.announce`."""
        position = announcement.position
        if self._position.lineage != position.lineage or self._position.number < position.number:
            self._position = position
        for queue in self._listening:
            queue.put_nowait(announcement)

    async def announcements(self) -> AsyncGenerator[Announcement | None]:
        """See `Feed.announcements`."""
        queue: asyncio.Queue[Announcement] = asyncio.Queue()
        self._listening.add(queue)
        try:
            yield None
            while True:
                yield await queue.get()
        finally:
            self._listening.discard(queue)

    async def close(self) -> None:
        """See `Feed.close`."""


class MemoryCache:
    """A `Cache` for all users of this object."""

    def __init__(self, clock: Callable[[], Micros]) -> None:
        """Nothing is kept yet."""
        self._clock = clock
        self._kept: dict[str, tuple[bytes | None, Micros]] = {}
        """A value, or None for one that was dropped a moment ago, and until when that holds."""
        self._era = 0
        """How often everything was dropped."""

    async def get_many(self, names: Sequence[str]) -> CachedValues:
        """See `Cache.get_many`."""
        now = self._clock()
        found = (self._kept.get(name, (None, 0)) for name in names)
        return CachedValues([value if until > now else None for value, until in found], str(self._era))

    async def put_many(self, values: Mapping[str, bytes], seconds: float, era: str) -> None:
        """See `Cache.put_many`."""
        if era != str(self._era):
            return
        now = self._clock()
        for name, value in values.items():
            there, until = self._kept.get(name, (b"", 0))
            if there is not None or until <= now:  # else it was dropped a moment ago
                self._keep(name, value, now + int(seconds * 1_000_000))

    async def drop(self, names: Sequence[str]) -> bool:
        """See `Cache.drop`."""
        until = self._clock() + _DROPPED_MICROS
        if EVERYTHING in names:
            self._kept.clear()
            self._era += 1
            return True
        for name in names:
            self._keep(name, None, until)
        return True

    def _keep(self, name: str, value: bytes | None, until: Micros) -> None:
        self._kept.pop(name, None)  # so that it is the youngest again
        if len(self._kept) >= _MAX_VALUES:
            del self._kept[next(iter(self._kept))]
        self._kept[name] = (value, until)
