"""Retention of events in the database: partitions ahead, old batch ids, and a daily archive run.

The leading process of a service does this as long as it runs.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from headgate.archive.part import Month
from headgate.core.units import SECOND
from headgate.errors import DatabaseError
from headgate.settings import for_child

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.core.units import Micros
    from headgate.ports import Statements
    from headgate.settings import Settings

log = logging.getLogger("headgate")

MONTHS_AHEAD: Final = 2
_SECONDS_AFTER_START: Final = 1.0
_SECONDS_BETWEEN_ROUNDS: Final = 3_600.0
_SECONDS_AFTER_ERROR: Final = 60.0
_ROUNDS_PER_DAY: Final = 24


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


async def maintain_events(retention: Retention, settings: Settings, *, archives: bool) -> None:
    """Make partitions ahead every hour and, if `archives` and configured, archive once a day, until cancelled."""
    rounds = 0
    wait = _SECONDS_AFTER_START
    while True:
        await asyncio.sleep(wait)
        try:
            await retention.make_ahead()
        except DatabaseError as error:
            # Debug only: the event sink logs that the database is unavailable.
            log.debug("event partitions were not made, retry in %.0f s: %s", _SECONDS_AFTER_ERROR, error)
            wait = _SECONDS_AFTER_ERROR
            continue
        except Exception:
            log.exception("event partitions were not made, retry in %.0f s", _SECONDS_AFTER_ERROR)
            wait = _SECONDS_AFTER_ERROR
            continue
        if archives and settings.archive_daily and rounds % _ROUNDS_PER_DAY == 0:
            try:
                await run_archive_in_child(settings)
            except Exception as error:  # noqa: BLE001 (whatever it is, next month needs partitions)
                log.warning("archive run failed: %s", error)
        rounds += 1
        wait = _SECONDS_BETWEEN_ROUNDS


async def run_archive_in_child(settings: Settings) -> None:
    """Run `headgate archive run` in a child process, so that no decision waits for it, and log its output."""
    changes = {"database_url": settings.database_url or "", "data_dir": str(settings.data_dir.absolute())}
    if settings.archive_url is not None:
        changes["archive_url"] = settings.archive_url
    changes |= {"archive_days": str(settings.archive_days), "archive_years": str(settings.archive_years)}
    if settings.s3_endpoint is not None:
        changes["s3_endpoint"] = settings.s3_endpoint
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "headgate.cli.main", "archive", "run"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=for_child(changes),
    )
    try:
        out, errors = await child.communicate()
    except BaseException:
        with suppress(ProcessLookupError):
            child.kill()  # the next run continues its work
        await child.wait()
        raise
    for line in out.decode(errors="replace").splitlines():
        log.info("archive: %s", line)
    if child.returncode:
        log.warning("archive run failed: %s", errors.decode(errors="replace").strip())
