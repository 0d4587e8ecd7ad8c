"""What the leading process of a service does about events as time goes by."""

from __future__ import annotations

import asyncio
import logging
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from headgate.errors import DatabaseError
from headgate.settings import for_child

if TYPE_CHECKING:
    from headgate.archive.retention import Retention
    from headgate.settings import Settings

log = logging.getLogger("headgate")

_SECONDS_AFTER_THE_START: Final = 1.0
_SECONDS_BETWEEN_LOOKS: Final = 3_600.0
_SECONDS_AFTER_A_FAULT: Final = 60.0
_LOOKS_A_DAY: Final = 24


async def look_after_events(retention: Retention, settings: Settings, *, archives: bool) -> None:
    """Have partitions ahead, and archive once a day if that is wanted, for as long as this runs."""
    looks = 0
    wait = _SECONDS_AFTER_THE_START
    while True:
        await asyncio.sleep(wait)
        try:
            await retention.make_ahead()
        except DatabaseError as error:
            log.debug("partitions for events are made later: %s", error)  # whoever stores events says the rest
            wait = _SECONDS_AFTER_A_FAULT
            continue
        except Exception:
            log.exception("partitions for events are made later")
            wait = _SECONDS_AFTER_A_FAULT
            continue
        if archives and settings.archive_daily and looks % _LOOKS_A_DAY == 0:
            try:
                await archive_in_a_child(settings)
            except Exception as error:  # noqa: BLE001 (whatever it is, there must be partitions next month)
                log.warning("events were not archived: %s", error)
        looks += 1
        wait = _SECONDS_BETWEEN_LOOKS


async def archive_in_a_child(settings: Settings) -> None:
    """Carry out `headgate archive run` in a process of its own, so that no decision waits for it; log what it says."""
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
        out, complaints = await child.communicate()
    except BaseException:
        with suppress(ProcessLookupError):
            child.kill()  # the next run goes on
        await child.wait()
        raise
    for line in out.decode(errors="replace").splitlines():
        log.info("archive: %s", line)
    if child.returncode:
        log.warning("events were not archived: %s", complaints.decode(errors="replace").strip())
