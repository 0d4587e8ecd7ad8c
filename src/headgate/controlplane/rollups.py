"""Minutes become hours, hours become days, and old rows are deleted.

An hour is summed anew from its minutes whenever counts have arrived for it, however often or late. Once its minutes are
deleted, later counts are added to it instead. Each step is one transaction: no reader ever sees half of it, and a
process that dies in the middle has changed nothing.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.core.metric_rows import RowBounds
from headgate.core.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from headgate.core.units import Micros
    from headgate.ports import Database, Writing

log = logging.getLogger("headgate")


class Level(NamedTuple):
    """One step from finer rows to coarser ones."""

    finer: str
    coarser: str
    length: timedelta
    """Of a coarser period."""
    kept: timedelta
    """How long finer rows are there."""


MINUTES_KEPT: Final = timedelta(days=14)
"""Single minutes are of use for two weeks; they are most of all rows."""
MAX_SERIES: Final = 1_000
"""Endpoints of each rule, and users, of an hour or a day: those with most requests. Any client can invent paths."""
HOURS_KEPT: Final = timedelta(days=400)
"""A year and a month, so that a month can be laid beside the same month of last year, hour by hour."""
LEVELS: Final = (
    Level("minute", "hour", timedelta(hours=1), MINUTES_KEPT),
    Level("hour", "day", timedelta(days=1), HOURS_KEPT),
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = LEVELS


class Rollups:
    """Keeps hours and days up to date. Every process may run it: one at a time does the work."""

    def __init__(
        self,
        database: Database,
        clock: Callable[[], Micros] | None = None,
        *,
        every: float = 60.0,
        most: int = MAX_SERIES,
        series: int = RowBounds().series,
    ) -> None:
        """`clock` says what is old, instead of the database's own; `run` looks every so many seconds.

        An hour or a day has so many endpoints of each rule, and so many `series` (rule, endpoint and tier) in all.
        """
        self._database = database
        self._clock = clock
        self._every = every
        self._bounds = (most, RowBounds().user_endpoints)
        self._series = series

    async def run(self) -> None:
        """Look at once, then again and again, until cancelled."""
        has_failed = False
        while True:
            try:
                await self.catch_up()
            except Exception as error:  # noqa: BLE001 (whatever it is, the loop must go on)
                if not has_failed:
                    log.warning("roll-up of counts failed, retry in %g s: %s", self._every, str(error) or repr(error))
                has_failed = True
            else:
                has_failed = False
            await asyncio.sleep(self._every)

    async def catch_up(self) -> bool:
        """Roll up all that waits and prune all that is old; False if another process is at it."""
        for level in reversed(LEVELS):  # minutes go before hours, and hours come back before minutes
            await self._lower(level)
        for level in LEVELS:
            for row in await self._database.rows("rolling_up.stale", level.coarser):
                if not await self._roll_up(level, row["at"]):
                    return False
            while await self._prune(level):
                pass
        return True

    async def _roll_up(self, level: Level, at: datetime) -> bool:
        """Bring one hour or day up to date; False if it is not this process's turn."""
        async with self._database.transaction() as writing:
            if await self._begin(writing) is None:
                return False
            gone = (await _oldest(writing, level))["gone_before"]
            # First this: what is noted from here on is looked at next time.
            await writing.run("rolling_up.take", level.coarser, at)
            if gone is not None and at < gone:
                await self._fold(writing, level, at)
            else:
                await writing.run("rolling_up.clear", level.coarser, at)
                await writing.run("rolling_up.sum", level.finer, level.coarser, at, at + level.length, *self._bounds)
                await writing.run("rolling_up.bound", level.coarser, at, self._series)
            await _note_coarser(writing, level, at)
        return True

    async def _prune(self, level: Level) -> bool:
        """Take the finer rows of the oldest hour or day away, if they are too old; False if there is no more to do."""
        async with self._database.transaction() as writing:
            now = await self._begin(writing)
            if now is None:
                return False
            horizon = _floor(now - level.kept, level.length)
            oldest, gone = (await _oldest(writing, level)).values()
            at = None if oldest is None else _floor(oldest, level.length)
            if at is None or at >= horizon:
                if gone is None or gone < horizon:
                    await writing.run("rolling_up.pruned", level.finer, horizon)
                return False
            if gone is None or at >= gone:
                # Made anew, of the very rows that go.
                await writing.run("rolling_up.clear", level.coarser, at)
                await writing.run("rolling_up.pruned", level.finer, at + level.length)
            await self._fold(writing, level, at)
            await _note_coarser(writing, level, at)
        return True

    async def _fold(self, writing: Writing, level: Level, at: datetime) -> None:
        await writing.run("rolling_up.fold", level.finer, level.coarser, at, at + level.length)
        await writing.run("rolling_up.trim", level.coarser, at, *self._bounds)
        await writing.run("rolling_up.bound", level.coarser, at, self._series)

    async def _lower(self, level: Level) -> None:
        """Have finer rows again after a clock was ahead, and all of them up to a time to come were taken for old.

        What was added to coarser rows since then becomes one finer row of theirs, or it would be lost
        when they are made anew.
        """
        async with self._database.transaction() as writing:
            now = await self._begin(writing)
            if now is None:
                return
            gone, since = (await _oldest(writing, level))["gone_before"], _floor(now, level.length)
            if gone is None or gone <= since:
                return
            for row in await writing.rows("rolling_up.between", level.coarser, since, gone):
                at = row["at"]
                await writing.run("rolling_up.fold", level.coarser, level.finer, at, at + level.length)
                await writing.run("rolling_up.note", level.coarser, at)
            await writing.run("rolling_up.lower", level.finer, since)
        log.warning(
            "roll-up of counts: the clock was ahead and is right again, counts by the %s are stored again", level.finer
        )

    async def _begin(self, writing: Writing) -> datetime | None:
        """What time it is; None if it is not this process's turn."""
        row = await writing.row("rolling_up.begin")
        if row is None or not row["is_ours"]:
            return None
        now: datetime = row["now"] if self._clock is None else datetime.fromtimestamp(self._clock() / SECOND, UTC)
        return now


async def _oldest(writing: Writing, level: Level) -> Mapping[str, Any]:
    row = await writing.row("rolling_up.oldest", level.finer)
    assert row is not None  # noqa: S101 (a SELECT without FROM)
    return row


async def _note_coarser(writing: Writing, level: Level, at: datetime) -> None:
    """What is made of what was made anew is to be made anew."""
    if level is _FIRST:
        await writing.run("rolling_up.note", _LAST.coarser, _floor(at, _LAST.length))


def _floor(instant: datetime, length: timedelta) -> datetime:
    return instant - (instant - _EPOCH) % length
