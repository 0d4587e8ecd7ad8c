"""Retention of counts in the database, by the month: partitions ahead, and old ones dropped.

Counts of months without a partition are in the default partition: those of before there were partitions, and those
that were stored while no service led. They move to their months here.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Final

from headgate.archive.part import Month

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.core.units import Micros
    from headgate.ports import Statements

log = logging.getLogger("headgate")

MONTHS_AHEAD: Final = 2
_PARTITION: Final = re.compile(r"metrics_([0-9]{4})_([0-9]{2})")


class MetricMonths:
    """The months of counts."""

    def __init__(self, database: Statements, clock: Callable[[], Micros], kept: int) -> None:
        """`clock` says which month it is; `kept` months before it stay. Moving a month may take minutes."""
        self._database = database
        self._clock = clock
        self._kept = kept

    async def keep(self) -> None:
        """Make partitions ahead, move counts to their months, and drop the months past their retention."""
        this = Month.of(self._clock())
        first, last = this.later(-self._kept), this.later(MONTHS_AHEAD)
        for number in range(MONTHS_AHEAD + 1):
            await self._database.row("retention.make_metric_partition", this.later(number).start)
        for row in await self._database.rows("retention.metric_months", first.start, last.end):
            await self._database.row(
                "retention.make_metric_partition", Month(row["month"].year, row["month"].month).start
            )
        for month in await self._months():
            if month < first:
                await self._database.row("retention.drop_metric_partition", month.start)
                log.info("metrics of %s dropped: they are older than %d months", month, self._kept)
        await self._database.row("retention.prune_metrics", first.start)

    async def _months(self) -> list[Month]:
        """Those with a partition; partitions made by hand are ignored."""
        rows = await self._database.rows("retention.metric_partitions")
        names = [_PARTITION.fullmatch(row["name"]) for row in rows]
        return [Month(int(name[1]), int(name[2])) for name in names if name is not None]
