"""How long things are kept: partitions are made ahead, and what nobody needs any more is forgotten."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from headgate.archive.part import Month
from headgate.core.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.core.units import Micros
    from headgate.ports import Statements

MONTHS_AHEAD: Final = 2


class Retention:
    """Looks after the tables that grow with time."""

    def __init__(self, database: Statements, clock: Callable[[], Micros]) -> None:
        """`clock` says which month it is."""
        self._database = database
        self._clock = clock

    @property
    def now(self) -> datetime:
        """By the clock."""
        return datetime.fromtimestamp(self._clock() / SECOND, UTC)

    async def make_ahead(self) -> list[Month]:
        """Have partitions for the events of this month and the next ones; returns those months."""
        this = Month.of(self._clock())
        months = [this.later(number) for number in range(MONTHS_AHEAD + 1)]
        for month in months:
            await self._database.row("retention.make_partition", month.start)
        return months

    async def restored(self) -> dict[Month, datetime]:
        """Months that were brought back from the archive, and until when they stay."""
        rows = await self._database.rows("retention.restored")
        return {Month(row["month"].year, row["month"].month): row["until"] for row in rows}

    async def forget_batches(self, days: int) -> int:
        """Forget the ids of batches that were stored so long ago that none of them comes again; returns how many."""
        row = await self._database.row("retention.prune_batches", self.now - timedelta(days=days))
        return 0 if row is None else int(row["number"])
