"""Moves events from the database to the archive and back: archive, verify, drop, restore, delete.

A month is archived as parts. Events in its partition that are in no part yet become a further part; then the partition
is dropped, if it still holds exactly the events that were read. So a run that is killed at any point is simply
repeated: nothing is lost, because the partition is dropped last, and nothing is stored twice, because events of an
existing part are not written again.
"""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from headgate.errors import ArchiveError, Conflict, NotFound

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from headgate.archive.event_archive import EventArchive
    from headgate.archive.event_table import EventTable
    from headgate.archive.part import Month, Part
    from headgate.archive.retention import Retention

_TRIES: Final = 3
_CLOCKS_DIFFER: Final = timedelta(hours=1)
_QUIET: Final = timedelta(days=366)
_MIN_KEPT: Final = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class ArchivePolicy:
    """How long events are kept."""

    days: int
    """In the database, at least."""
    years: int
    """In the archive."""

    def before(self, now: datetime) -> datetime:
        """Months that end before this time are archived."""
        return now - timedelta(days=self.days)

    def too_old(self, part: Part, now: datetime) -> bool:
        """Whether a part is deleted. A part that was written lately stays, however old its events are."""
        return part.month.later(12 * self.years).end <= now and part.written_at + _MIN_KEPT <= now


@dataclass(frozen=True, slots=True)
class MonthDone:
    """What a run did, or would do, with one month of the database."""

    month: Month
    events: int
    """In its partition."""
    size: int
    """Of the partition, in bytes."""
    part: Part | None
    """The part that was written; None if the archive had all its events already."""


@dataclass(frozen=True, slots=True)
class RunDone:
    """What a run did, or would do."""

    archived: Sequence[MonthDone]
    deleted: Sequence[Part]
    kept: Sequence[Month]
    """Restored months that stay for now."""
    batches: int
    """The number of batch ids that were deleted."""


@dataclass(frozen=True, slots=True)
class Restored:
    """A restored month."""

    month: Month
    events: int
    """In its parts."""
    added: int
    """Events that were not in the database before."""
    until: datetime


class Progress:
    """Receives progress; this one ignores it."""

    def begin(self, what: str, total: int) -> None:
        """A step with `total` events starts."""

    def advance(self, done: int) -> None:
        """`done` events of the step are done."""


class Archiver:
    """Moves events between the database and the archive."""

    def __init__(self, events: EventTable, archive: EventArchive, retention: Retention, bounds: ArchivePolicy) -> None:
        """`retention` also gives the time."""
        self._events = events
        self._archive = archive
        self._retention = retention
        self._bounds = bounds

    async def plan(self, *, clock_is_right: bool = False) -> RunDone:
        """What `run` would do now. Changes nothing."""
        now = await self._now(clock_is_right=clock_is_right)
        due, kept = await self._due(now)
        archived = [MonthDone(month, (await self._events.mark(month)).number, size, None) for month, size in due]
        old = [part for part in await self._archive.parts() if self._bounds.too_old(part, now)]
        return RunDone(archived, old, kept, 0)

    async def run(self, progress: Progress, *, clock_is_right: bool = False) -> RunDone:
        """Archive the months that are due, delete parts and batch ids past their retention.

        `Conflict` if another run is active, or if the clock is implausible; `clock_is_right` accepts it although the
        database has had no event or change for more than a year.
        """
        async with self._events.locked() as still_locked:
            now = await self._now(clock_is_right=clock_is_right)
            await self._retention.make_ahead()
            await self._archive.tidy()
            due, kept = await self._due(now)
            archived = [await self._archive_month(month, size, still_locked, progress) for month, size in due]
            deleted = []
            for part in await self._archive.parts():
                if self._bounds.too_old(part, now):
                    await self._archive.delete(part)
                    deleted.append(part)
            batches = await self._retention.forget_batches(self._bounds.days)
            return RunDone(archived, deleted, kept, batches)

    async def parts(self) -> list[Part]:
        """All archived parts."""
        return await self._archive.parts()

    async def restore(self, month: Month, until: datetime, progress: Progress) -> Restored:
        """Restore a month into the database, where it stays until then; existing events are not changed."""
        async with self._events.locked():
            parts = await self._archive.parts(month)
            if not parts:
                msg = (
                    f"{self._archive.url} has no events of {month} of this database; "
                    "'headgate archive list' lists what it has"
                )
                raise NotFound(msg)
            for part in parts:
                progress.begin(f"checking {month}, part {part.number}", part.rows)
                await self._archive.check(part)
            added = 0
            async with self._events.restoring(month, until) as events:
                for part in parts:
                    progress.begin(f"storing {month}, part {part.number}", part.rows)
                    async with aclosing(self._archive.blocks(part)) as blocks:
                        added += await events.put(blocks)
                    progress.begin(f"comparing {month}, part {part.number}", part.rows)
                    async with aclosing(events.stored()) as stored:
                        if await self._archive.digest(stored) != (part.rows, part.digest):
                            msg = (
                                f"{month} was not restored: the database has events with the same ids that "
                                f"differ from those in part {part.number}"
                            )
                            raise Conflict(msg)
            return Restored(month, sum(part.rows for part in parts), added, until)

    async def _now(self, *, clock_is_right: bool) -> datetime:
        """The time. A wrong clock could delete years of events, so it is compared with the database."""
        now = self._retention.now
        server, newest = await self._events.times()
        if abs(now - server) > _CLOCKS_DIFFER:
            msg = (
                f"nothing was archived, because two clocks differ: it is {now:%Y-%m-%d %H:%M} on this machine and "
                f"{server:%Y-%m-%d %H:%M} on the database server; correct the wrong one"
            )
            raise Conflict(msg)
        if now - newest > _QUIET and not clock_is_right:
            msg = (
                f"nothing was archived, because the clock says {now:%Y-%m-%d} and the newest event or change is of "
                f"{newest:%Y-%m-%d}; if the clock is right, add --clock-is-right"
            )
            raise Conflict(msg)
        return now

    async def _due(self, now: datetime) -> tuple[list[tuple[Month, int]], list[Month]]:
        """The months to archive, with their sizes; and those that are old but restored."""
        bound = self._bounds.before(now)
        old = sorted((month, size) for month, size in (await self._events.months()).items() if month.end <= bound)
        restored = await self._retention.restored()
        kept = {month for month, until in restored.items() if until > now}
        return [each for each in old if each[0] not in kept], [month for month, _ in old if month in kept]

    async def _archive_month(
        self, month: Month, size: int, still_locked: Callable[[], Awaitable[None]], progress: Progress
    ) -> MonthDone:
        for _ in range(_TRIES):
            parts = await self._archive.parts(month)
            number = 1 + max((part.number for part in parts), default=0)
            known = self._keys(parts) if parts else None
            async with self._events.reading(month.start, month.end, known) as reading:
                progress.begin(f"archiving {month}", reading.number)
                async with aclosing(reading.blocks()) as blocks:
                    now = self._retention.now
                    part = await self._archive.write(month, number, blocks, now, progress.advance)
            written = 0 if part is None else part.rows
            if written != reading.number:
                msg = f"{month} has {reading.number} events to archive, but {written} were written; nothing was dropped"
                raise ArchiveError(msg)
            await still_locked()
            if part is not None:
                await self._archive.complete(part)
            if await self._events.drop(month, reading.mark):
                return MonthDone(month, reading.mark.number, size, part)
        msg = f"new events of {month} keep arriving, so it stays in the database for now; run this again later"
        raise Conflict(msg)

    async def _keys(self, parts: Sequence[Part]) -> AsyncGenerator[bytes]:
        for part in parts:
            async with aclosing(self._archive.keys(part)) as blocks:
                async for block in blocks:
                    yield block
