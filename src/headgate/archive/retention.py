"""Retention of events in the database: partitions ahead, and old batch ids.

The leading process of a service does this as long as it runs.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from headgate.archive.part import Month
from headgate.core.units import SECOND
from headgate.errors import DatabaseError, short_repr

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from headgate.core.units import Micros
    from headgate.ports import Statements

log = logging.getLogger("headgate")

MONTHS_AHEAD: Final = 2
_SECONDS_AFTER_START: Final = 1.0
_SECONDS_BETWEEN_ROUNDS: Final = 3_600.0
_SECONDS_AFTER_ERROR: Final = 60.0
_MAX_DOUBLINGS: Final = 6


class Retention:
    """The tables that grow with time."""

    def __init__(self, database: Statements, clock: Callable[[], Micros]) -> None:
        """`clock` says which month it is."""
        self._database = database
        self._clock = clock

    @property
    def now(self) -> datetime:
        """The time of the clock."""
        return datetime.fromtimestamp(self._clock() / SECOND, UTC)

    async def make_ahead(self) -> list[Month]:
        """Make the event partitions of this month and the next ones; returns these months."""
        this = Month.of(self._clock())
        months = [this.later(number) for number in range(MONTHS_AHEAD + 1)]
        for month in months:
            await self._database.row("retention.make_partition", month.start)
        return months

    async def restored(self) -> dict[Month, datetime]:
        """The months that were restored from the archive, and until when they stay."""
        rows = await self._database.rows("retention.restored")
        return {Month(row["month"].year, row["month"].month): row["until"] for row in rows}

    async def forget_batches(self, days: int) -> int:
        """Delete the ids of batches older than `days`, which are never sent again; returns how many."""
        row = await self._database.row("retention.prune_batches", self.now - timedelta(days=days))
        return 0 if row is None else int(row["number"])


async def maintain_tables(*steps: Callable[[], Awaitable[object]]) -> None:
    """Take the steps every hour, such as to make partitions ahead, until cancelled. After an error sooner."""
    wait, failed = _SECONDS_AFTER_START, 0
    said: set[str] = set()
    while True:
        await asyncio.sleep(wait)
        problems = [problem for step in steps if (problem := await _problem(step)) is not None]
        if not problems:
            if failed:
                log.info("table maintenance recovered")
            wait, failed = _SECONDS_BETWEEN_ROUNDS, 0
            said.clear()
            continue
        wait = min(_SECONDS_BETWEEN_ROUNDS, _SECONDS_AFTER_ERROR * 2 ** min(failed, _MAX_DOUBLINGS))
        # Once for as long as it lasts: what is missing is made up for, and there are months of time.
        for problem in problems:
            log.log(
                logging.DEBUG if problem in said else logging.WARNING,
                "table maintenance failed, retry in %.0f s: %s",
                wait,
                problem,
            )
        said.update(problems)
        failed += 1


async def _problem(step: Callable[[], Awaitable[object]]) -> str | None:
    """Take a step; what went wrong, or None."""
    try:
        await step()
    except DatabaseError as error:
        return str(error)
    except Exception as error:
        log.exception("table maintenance failed")
        return short_repr(error)
    return None
