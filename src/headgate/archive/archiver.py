"""The life of events after their time in the database: archived, verified, dropped, brought back, deleted.

A month is archived as parts. What is in its partition and in no part yet becomes a further part; then the
partition is dropped, if it still has just what was seen. So a run that was killed at any step is simply
begun again: nothing is lost, because a partition goes last, and nothing is there twice, because what a part
has is not written again.
"""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from headgate.errors import ArchiveError, Conflict, NotFound

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from headgate.archive.part import Month, Part
    from headgate.archive.ports import EventArchive, EventTable
    from headgate.archive.retention import Retention

_TRIES: Final = 3
_CLOCKS_DIFFER: Final = timedelta(hours=1)
_QUIET: Final = timedelta(days=366)
_STAYS: Final = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long events are kept where."""

    days: int
    """In the database, at least."""
    years: int
    """In the archive."""

    def before(self, now: datetime) -> datetime:
        """What lies wholly before this is archived."""
        return now - timedelta(days=self.days)

    def too_old(self, part: Part, now: datetime) -> bool:
        """Whether a part is deleted. None is that was written only lately, however old its events are."""
        return part.month.later(12 * self.years).end <= now and part.written_at + _STAYS <= now


@dataclass(frozen=True, slots=True)
class MonthDone:
    """What was done with one month of the database, or would be."""

    month: Month
    events: int
    """That it had."""
    size: int
    """What it took in the database, in bytes."""
    part: Part | None
    """The part that was written; None if there was nothing that the archive did not have."""


@dataclass(frozen=True, slots=True)
class RunDone:
    """What a run has done, or would do."""

    archived: Sequence[MonthDone]
    deleted: Sequence[Part]
    kept: Sequence[Month]
    """Months that were brought back, and stay for now."""
    batches: int
    """Whose ids were forgotten."""


@dataclass(frozen=True, slots=True)
class Restored:
    """What was brought back."""

    month: Month
    events: int
    """Of its parts."""
    added: int
    """Those that were not there already."""
    until: datetime


class Progress:
    """Whom it is told how far things are; this one listens to nothing."""

    def begin(self, what: str, total: int) -> None:
        """Something begins, of so many events."""

    def advance(self, done: int) -> None:
        """So many of them are done."""


class Archiving:
    """Events, between the database and the archive."""

    def __init__(self, events: EventTable, archive: EventArchive, retention: Retention, bounds: Bounds) -> None:
        """`retention` knows the time."""
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
        """Archive what is due, delete what is too old, forget what nobody needs.

        `Conflict` if another run is on, or if the time cannot be believed; `clock_is_right` says that it can,
        although nothing has happened in the database for more than a year.
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
        """What is archived."""
        return await self._archive.parts()

    async def restore(self, month: Month, until: datetime, progress: Progress) -> Restored:
        """Bring a month back into the database, where it stays until then; what is there already stays as it is."""
        async with self._events.locked():
            parts = await self._archive.parts(month)
            if not parts:
                msg = (
                    f"{self._archive.url} has no events of {month} that are of this database; "
                    "'headgate archive list' says what it has"
                )
                raise NotFound(msg)
            for part in parts:
                progress.begin(f"checking {month}, part {part.number}", part.rows)
                await self._archive.check(part)
            added = 0
            async with self._events.returning(month, until) as events:
                for part in parts:
                    progress.begin(f"storing {month}, part {part.number}", part.rows)
                    async with aclosing(self._archive.blocks(part)) as blocks:
                        added += await events.put(blocks)
                    progress.begin(f"comparing {month}, part {part.number}", part.rows)
                    async with aclosing(events.stored()) as stored:
                        if await self._archive.digest(stored) != (part.rows, part.digest):
                            msg = (
                                f"nothing of {month} was brought back: the database has events of the same ids that "
                                f"differ from those in part {part.number}"
                            )
                            raise Conflict(msg)
            return Restored(month, sum(part.rows for part in parts), added, until)

    async def _now(self, *, clock_is_right: bool) -> datetime:
        """When it is. A wrong clock would have years of events deleted, so it is compared with what there is."""
        now = self._retention.now
        there, newest = await self._events.times()
        if abs(now - there) > _CLOCKS_DIFFER:
            msg = (
                f"nothing was done, because it is not known when it is: {now:%Y-%m-%d %H:%M} by the clock of this "
                f"machine, and {there:%Y-%m-%d %H:%M} by that of the database; set the one right that is wrong"
            )
            raise Conflict(msg)
        if now - newest > _QUIET and not clock_is_right:
            msg = (
                f"nothing was done, because it is {now:%Y-%m-%d} by the clock, and the newest event or change is of "
                f"{newest:%Y-%m-%d}; if the clock is right, write --clock-is-right"
            )
            raise Conflict(msg)
        return now

    async def _due(self, now: datetime) -> tuple[list[tuple[Month, int]], list[Month]]:
        """Months that are to be archived, with their sizes; and those that would be, but were brought back."""
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
                msg = f"{month} has {reading.number} events to archive, and {written} were written; nothing was dropped"
                raise ArchiveError(msg)
            await still_locked()
            if part is not None:
                await self._archive.complete(part)
            if await self._events.drop(month, reading.mark):
                return MonthDone(month, reading.mark.number, size, part)
        msg = f"events of {month} keep coming, so it stays in the database for now; run this again later"
        raise Conflict(msg)

    async def _keys(self, parts: Sequence[Part]) -> AsyncGenerator[bytes]:
        for part in parts:
            async with aclosing(self._archive.keys(part)) as blocks:
                async for block in blocks:
                    yield block
