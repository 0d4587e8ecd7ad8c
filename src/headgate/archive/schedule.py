"""Jobs that the service runs by itself: archive, backup, base backup. All are off unless a setting asks for them.

Every job runs in a process of its own, so that no decision waits for it. A run is claimed in the database, so of all
services on one database one does it. The next run is a day after the last one began: runs that were missed, because
no service was there, are made up for by one. A claim is renewed while its run goes on, so that one that was cut off,
because the service was killed, is begun again two minutes later, and after longer pauses if that happens again.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import socket
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from headgate.archive import base_backups
from headgate.archive.base_backups import partial_of
from headgate.errors import DatabaseError
from headgate.settings import for_child

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from pathlib import Path

    from headgate.core.units import Micros
    from headgate.ports import Statements
    from headgate.settings import Settings

log = logging.getLogger("headgate")

_A_DAY: Final = 86_400.0
_SECONDS_OF_A_CLAIM: Final = 120.0
_RENEWALS: Final = 4
"""In the time of a claim."""
_SECONDS_AFTER_START: Final = 1.0
_SECONDS_BETWEEN_LOOKS: Final = 60.0
_MAX_DETAIL: Final = 500


class Job(NamedTuple):
    """A program that is run once a day."""

    name: str
    command: tuple[str, ...]
    folder: Path | None = None
    """Where its result belongs. It writes to the same name with `.partial`: half of one is not taken for a whole."""
    password: str | None = None
    """Of the database, for programs of PostgreSQL; every user of the machine can read a command line."""
    keep: int | None = None
    """How many of the newest folders are kept beside each other; without, all are."""


def jobs_of(settings: Settings, now: Micros) -> list[Job]:
    """The jobs that settings ask for; what is made `now` is named after the time."""
    here = (sys.executable, "-m", "headgate.cli.main")
    jobs = []
    if settings.archive_daily:
        jobs.append(Job("archive", (*here, "archive", "run")))
    if settings.backup_daily:
        keep = () if settings.backup_keep is None else ("--keep", str(settings.backup_keep))
        jobs.append(Job("backup", (*here, "backup", *keep)))
    if settings.base_backup_folder is not None:
        folder = base_backups.folder_in(settings.base_backup_folder, now)
        program = shutil.which("pg_basebackup") or "pg_basebackup"
        options = ("--pgdata", str(partial_of(folder)), "--checkpoint=fast", "--wal-method=stream", "--no-password")
        url, password = _without_password(settings.database_url or "")
        command = (program, "--dbname", url, *options)
        jobs.append(Job("base_backup", command, folder, password, settings.backup_keep))
    return jobs


def _without_password(url: str) -> tuple[str, str | None]:
    """The address of a database without its password, and the password."""
    parts = urlsplit(url)
    query = parse_qsl(parts.query, keep_blank_values=True)
    in_query = dict(query).get("password")
    user, colon, password = parts.netloc.rpartition("@")[0].partition(":")
    hosts = parts.netloc.rpartition("@")[2]
    netloc = f"{user}@{hosts}" if user else hosts
    others = urlencode([(name, value) for name, value in query if name != "password"])
    if not colon and in_query is None:
        return url, None
    return urlunsplit(parts._replace(netloc=netloc, query=others)), unquote(password) if colon else in_query


async def run_jobs(database: Statements, settings: Settings, clock: Callable[[], Micros]) -> None:
    """Run every job that is due, one after another, until cancelled."""
    wait = _SECONDS_AFTER_START
    while True:
        await asyncio.sleep(wait)
        wait = _SECONDS_BETWEEN_LOOKS
        for job in jobs_of(settings, clock()):
            try:
                await _run_if_due(database, job, settings)
            except DatabaseError as error:
                # Others log that there is no database.
                log.debug("job %s: cannot read whether it is due: %s", job.name, error)
            except Exception:
                log.exception("job %s: cannot read whether it is due", job.name)


async def _run_if_due(database: Statements, job: Job, settings: Settings) -> None:
    claimed = await database.row("jobs.claim", job.name, socket.gethostname(), _SECONDS_OF_A_CLAIM)
    if claimed is None:
        return
    if claimed["cut_off"]:
        log.warning(
            "job %s: restarted after its service was killed while it ran; kills in a row: %d",
            job.name,
            claimed["cut_off"],
        )
    renewing = asyncio.create_task(_renew(database, job.name, claimed["began"]))
    try:
        problem = await run_in_child(job, settings)
    except asyncio.CancelledError:
        with suppress(DatabaseError):  # then it is tried when the claim has ended
            await database.rows("jobs.stopped", job.name, claimed["began"], "the service stopped while it ran")
        raise
    finally:
        renewing.cancel()
        await asyncio.wait([renewing])
    outcome = "done" if problem is None else "failed"
    if problem is None:
        log.info("job %s: done", job.name)
    else:
        log.warning("job %s failed, next try in a day: %s", job.name, problem)
    detail = (problem or "")[:_MAX_DETAIL]
    await database.rows("jobs.end", job.name, claimed["began"], outcome, detail, int(problem is not None), _A_DAY)


async def _renew(database: Statements, name: str, began: datetime) -> None:
    """Keep the claim of a run, until cancelled."""
    while True:
        await asyncio.sleep(_SECONDS_OF_A_CLAIM / _RENEWALS)
        with suppress(DatabaseError):  # the next one may succeed in time
            await database.rows("jobs.renew", name, began, _SECONDS_OF_A_CLAIM)


async def run_in_child(job: Job, settings: Settings) -> str | None:
    """Run a job in a child process and log what it prints; what went wrong, or None."""
    is_whole = False
    if job.folder is not None and job.keep is not None:
        await asyncio.to_thread(base_backups.delete_leftovers, job.folder)
    try:
        problem = await _run_in_child(job, settings)
        is_whole = problem is None
    finally:
        await _keep(job, is_whole=is_whole)
    return problem


async def _run_in_child(job: Job, settings: Settings) -> str | None:
    try:
        child = await asyncio.create_subprocess_exec(
            *job.command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=for_child(_changes(settings)) | ({} if job.password is None else {"PGPASSWORD": job.password}),
        )
    except OSError as error:
        return f"{job.command[0]} cannot be started: {error.strerror}"
    try:
        out, errors = await child.communicate()
    except BaseException:
        with suppress(ProcessLookupError):
            child.kill()  # the next run continues its work
        await child.wait()
        raise
    for line in out.decode(errors="replace").splitlines():
        log.info("job %s: %s", job.name, line)
    if child.returncode:
        return errors.decode(errors="replace").strip() or f"exit code {child.returncode}"
    return None


async def _keep(job: Job, *, is_whole: bool) -> None:
    """Give what a job made its name, or remove what it only began."""
    if job.folder is None:
        return
    partial = partial_of(job.folder)
    if is_whole and partial.exists():
        await asyncio.to_thread(partial.rename, job.folder)
        if job.keep is not None:
            await asyncio.to_thread(base_backups.delete_old, job.folder, job.keep)
    else:
        await asyncio.to_thread(shutil.rmtree, partial, ignore_errors=True)


def _changes(settings: Settings) -> dict[str, str]:
    """The settings of the service, for a child that reads them from its environment."""
    changes = {"database_url": settings.database_url or "", "data_dir": str(settings.data_dir.absolute())}
    for name in ("archive_url", "s3_endpoint"):
        value = getattr(settings, name)
        if value is not None:
            changes[name] = value
    return changes | {"archive_days": str(settings.archive_days), "archive_years": str(settings.archive_years)}
