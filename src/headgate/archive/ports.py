"""What archiving asks of the database and of the place that archives are in, as Protocols."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
    from contextlib import AbstractAsyncContextManager
    from datetime import datetime

    from headgate.archive.part import EventMark, Month, Part


class EventReading(Protocol):
    """The events of a span as they were at one instant."""

    mark: EventMark
    """Of all of them."""
    number: int
    """Of those that are read."""

    def blocks(self) -> AsyncGenerator[bytes]:
        """They, by time and id, as CSV in the columns of the archive: whole lines, some megabytes at a time."""


class EventReturn(Protocol):
    """Events that come back; all of them, or none if the block that they come in fails."""

    async def put(self, blocks: AsyncIterator[bytes]) -> int:
        """Store those that are not there, from CSV as of `EventArchive.blocks`; returns how many those were."""

    def stored(self) -> AsyncGenerator[bytes]:
        """All that were put last, as they are stored now; CSV as of `EventReading.blocks`."""


class EventTable(Protocol):
    """Events in the database, month by month. Raises as `headgate.ports.Statements` does."""

    async def times(self) -> tuple[datetime, datetime]:
        """When it is by the clock of its server, and when something last happened: an event, a change, and the like."""

    async def months(self) -> Mapping[Month, int]:
        """The months that have a partition, and what it takes on disk, in bytes."""

    async def mark(self, month: Month) -> EventMark:
        """Which events a month has now."""

    def locked(self) -> AbstractAsyncContextManager[Callable[[], Awaitable[None]]]:
        """Let nobody else archive or bring back meanwhile (`Conflict` if somebody does).

        What it gives raises `DatabaseError` if the lock was lost since.
        """

    def reading(
        self, since: datetime, before: datetime, known: AsyncIterator[bytes] | None = None
    ) -> AbstractAsyncContextManager[EventReading]:
        """Read a span, without the events whose keys are `known` (CSV of time and id)."""

    def returning(self, month: Month, until: datetime) -> AbstractAsyncContextManager[EventReturn]:
        """Bring events of a month back, to stay until then."""

    async def drop(self, month: Month, mark: EventMark) -> bool:
        """Take a month away, if it still has just the events of the mark; says whether it did."""


class EventArchive(Protocol):
    """Events in files. Raises `ArchiveError`, and nothing else."""

    url: str

    async def parts(self, month: Month | None = None) -> list[Part]:
        """All complete parts of this database, or those of a month, by month and number."""

    async def write(
        self, month: Month, number: int, blocks: AsyncIterator[bytes], at: datetime, progress: Callable[[int], None]
    ) -> Part | None:
        """Write the files of a part, and read them back to see that they are what came; None if nothing came.

        `progress` is told how many events were written. Until `complete` the part counts for nothing.
        """

    async def complete(self, part: Part) -> None:
        """Write the manifest, from which on the part counts, and make sure that all of it is there."""

    async def check(self, part: Part) -> None:
        """Raise `ArchiveError` naming the file that is damaged or missing, if one is."""

    def keys(self, part: Part) -> AsyncGenerator[bytes]:
        """Time and id of all its events, as CSV; only from files that are whole."""

    def blocks(self, part: Part) -> AsyncGenerator[bytes]:
        """All its events, as CSV; only from files that are whole."""

    async def digest(self, blocks: AsyncIterator[bytes]) -> tuple[int, str]:
        """How many events there are in CSV as of `EventReading.blocks`, and the digest that a part of them has."""

    async def delete(self, part: Part) -> None:
        """Take a part away, its manifest first."""

    async def tidy(self) -> None:
        """Take files of this database away that belong to no part: what was left by runs that died."""
