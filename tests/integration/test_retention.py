"""What the leading process of a service does about events as time goes by."""

from __future__ import annotations

import asyncio
import logging
import subprocess
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest
from tests.support.stored_events import all_events, events, store
from tests.support.waiting import wait_until_async

from headgate.adapters.clock import wall_clock
from headgate.adapters.postgres import Database
from headgate.archive import retention as maintenance
from headgate.archive import schedule
from headgate.archive.retention import Retention
from headgate.core.units import DAY
from headgate.errors import DatabaseError
from headgate.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tests.support.postgres import Postgres

    from headgate.archive.part import Month


def _partitions(url: str) -> list[str]:
    async def ask() -> list[str]:
        connection = await asyncpg.connect(url)
        rows = await connection.fetch("SELECT inhrelid::regclass::text AS name FROM pg_inherits ORDER BY 1")
        await connection.close()
        return [row["name"] for row in rows if row["name"].count("_") == 2 and "pkey" not in row["name"]]

    return asyncio.run(ask())


def test_partitions_are_made_ahead(database_url: str) -> None:
    """There are partitions for this month and the next two, over the end of a year, however often they are made."""

    async def run() -> None:
        database = Database(database_url)
        december = int(datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()) * 1_000_000
        for _ in range(2):
            months = await Retention(database, lambda: december).make_ahead()
            assert list(map(str, months)) == ["2026-12", "2027-01", "2027-02"]
        await database.close()

    asyncio.run(run())
    assert _partitions(database_url) == ["events_2026_12", "events_2027_01", "events_2027_02"]


def test_a_service_archives_if_it_is_told_to(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It archives what is old once a day, in a process of its own, logs it, and says when it is due again."""
    monkeypatch.setattr(schedule, "_SECONDS_AFTER_START", 0.0)
    monkeypatch.setattr(schedule, "_SECONDS_BETWEEN_LOOKS", 0.01)
    caplog.set_level(logging.INFO, "headgate")
    chosen = Settings(
        database_url=database_url, data_dir=tmp_path, archive_url=str(tmp_path / "kept"), archive_daily=True
    )

    async def run() -> None:
        await store(database_url, events("2024-02", 50))
        jobs = await _until_all_ended(database_url, chosen, 1)
        assert await all_events(database_url) == []
        ((name, outcome, failures, waits),) = jobs
        assert (name, outcome, failures) == ("archive", "done", 0)
        assert waits == timedelta(days=1)

    asyncio.run(run())
    assert "archived  2024-02, part 1: 50 events" in caplog.text
    assert caplog.text.count("job archive: done") == 1


def test_partitions_are_made_while_a_service_runs(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The leading process makes them again and again."""
    for name in ("_SECONDS_AFTER_START", "_SECONDS_BETWEEN_ROUNDS"):
        monkeypatch.setattr(maintenance, name, 0.0)

    async def run() -> None:
        database = Database(database_url)
        retention = Retention(database, wall_clock)
        looked = asyncio.Semaphore(0)
        make_ahead = retention.make_ahead

        async def make_and_say() -> list[Month]:
            looked.release()
            return await make_ahead()

        monkeypatch.setattr(retention, "make_ahead", make_and_say)
        work = asyncio.create_task(maintenance.maintain_tables(retention.make_ahead))
        async with asyncio.timeout(60):
            for _ in range(3):
                await looked.acquire()
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        await database.close()

    asyncio.run(run())
    assert len(_partitions(database_url)) >= 3


async def _until_all_ended(url: str, chosen: Settings, many: int, services: int = 1) -> list[tuple[object, ...]]:
    """Let services run their jobs until so many have ended; name, outcome, failures and the time between two runs."""
    database = Database(url)
    work = [asyncio.create_task(schedule.run_jobs(database, chosen, wall_clock)) for _ in range(services)]
    rows: Sequence[Mapping[str, Any]] = []
    async with asyncio.timeout(120):
        while len([row for row in rows if row["ended"]]) < many:
            await asyncio.sleep(0.05)
            rows = await database.rows("jobs.list")
    for task in work:
        task.cancel()
    await asyncio.gather(*work, return_exceptions=True)
    await database.close()
    return [(row["name"], row["outcome"], row["failures"], row["next_run"] - row["began"]) for row in rows]


def test_backups_are_made_by_one_of_several_services_and_missed_ones_once(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Three services make one backup that can be verified; after three missed days they make one more."""
    monkeypatch.setattr(schedule, "_SECONDS_AFTER_START", 0.0)
    monkeypatch.setattr(schedule, "_SECONDS_BETWEEN_LOOKS", 0.01)
    caplog.set_level(logging.INFO, "headgate")
    chosen = Settings(
        database_url=database_url, data_dir=tmp_path, archive_url=str(tmp_path / "kept"), backup_daily=True
    )

    async def run() -> None:
        for times in (1, 2):
            jobs = await _until_all_ended(database_url, chosen, 1, services=3)
            assert [job[:2] for job in jobs] == [("backup", "done")]
            assert caplog.text.count("job backup: done") == times
            assert len([*(tmp_path / "kept").rglob("manifest.json")]) == times
            connection = await asyncpg.connect(database_url)
            await connection.execute(
                "UPDATE jobs SET next_run = now() - interval '3 days', began = now() - interval '4 days', ended = NULL"
            )
            await connection.close()

    asyncio.run(run())


def test_a_job_that_fails_is_logged_counted_and_tried_a_day_later(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A program that fails, or is not there, is a warning with its sentence, and stops no other job."""
    monkeypatch.setattr(schedule, "_SECONDS_AFTER_START", 0.0)
    monkeypatch.setattr(schedule, "_SECONDS_BETWEEN_LOOKS", 0.01)
    monkeypatch.setattr("sys.executable", str(tmp_path / "no-such-program"))
    monkeypatch.setattr("shutil.which", lambda _: "false")
    folder = tmp_path / "base"
    chosen = Settings(database_url=database_url, data_dir=tmp_path, archive_daily=True, base_backup_folder=folder)
    jobs = asyncio.run(_until_all_ended(database_url, chosen, 2))
    assert [job[:3] for job in jobs] == [("archive", "failed", 1), ("base_backup", "failed", 1)]
    assert "job archive failed, next try in a day: " in caplog.text
    assert "no-such-program cannot be started: No such file or directory" in caplog.text
    assert "job base_backup failed, next try in a day: exit code 1" in caplog.text


def test_a_base_backup_is_one_that_postgresql_can_verify(postgres: Postgres, database_url: str, tmp_path: Path) -> None:
    """`pg_basebackup` of the same version makes what `pg_verifybackup` finds complete; the next one replaces it."""
    programs = postgres.programs
    folder = tmp_path / "base"
    chosen = Settings(database_url=database_url, data_dir=tmp_path, base_backup_folder=folder, backup_keep=1)
    folder.mkdir()
    for days in (0, 1):
        (job,) = schedule.jobs_of(chosen, wall_clock() + days * DAY)
        job = job._replace(command=(str(programs / "pg_basebackup"), *job.command[1:]))
        assert asyncio.run(schedule.run_in_child(job, chosen)) is None
        (made,) = folder.iterdir()
        assert made == job.folder
    subprocess.run([programs / "pg_verifybackup", made], check=True, capture_output=True)  # noqa: S603 (our own)


@pytest.mark.parametrize(
    ("url", "public", "password"),
    [
        (
            "postgresql://me:p%40ss@host:5432/name?sslmode=require",
            "postgresql://me@host:5432/name?sslmode=require",
            "p@ss",
        ),
        (
            "postgresql://me@host/name?password=secret&sslmode=require",
            "postgresql://me@host/name?sslmode=require",
            "secret",
        ),
        ("postgresql://me@host/name", "postgresql://me@host/name", None),
    ],
)
def test_a_base_backup_shows_no_password(url: str, public: str, password: str | None, tmp_path: Path) -> None:
    """Every user of the machine can read command lines, so the password goes by the environment."""
    (job,) = schedule.jobs_of(Settings(database_url=url, base_backup_folder=tmp_path), wall_clock())
    assert job.command[2] == public
    assert job.password == password


def test_a_job_that_a_stop_cuts_off_is_due_at_the_next_start(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it only began is removed, and the next service begins anew instead of waiting for a day."""
    monkeypatch.setattr(schedule, "_SECONDS_AFTER_START", 0.0)
    program = tmp_path / "pg_basebackup"
    program.write_text('#!/bin/sh\nmkdir -p "$4" && exec sleep 600\n')
    program.chmod(0o755)
    monkeypatch.setattr("shutil.which", lambda _: str(program))
    folder = tmp_path / "base"
    chosen = Settings(database_url=database_url, data_dir=tmp_path, base_backup_folder=folder)

    async def run() -> Any:  # noqa: ANN401 (a row)
        database = Database(database_url)
        running = asyncio.create_task(schedule.run_jobs(database, chosen, wall_clock))
        await wait_until_async(lambda: folder.is_dir() and bool([*folder.iterdir()]), interval=0.01)
        running.cancel()
        await asyncio.wait([running])
        (job,) = await database.rows("jobs.list")
        claimed = await database.row("jobs.claim", "base_backup", "host", 1.0)
        await database.close()
        return job, claimed

    job, claimed = asyncio.run(run())
    assert (job["outcome"], job["detail"]) == ("failed", "the service stopped while it ran")
    assert claimed is not None
    assert not [*folder.iterdir()]


def test_a_job_whose_service_was_killed_is_run_again_when_its_claim_ends(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim that is renewed holds; one that is not ends, counts as failed, and another service runs the job."""
    monkeypatch.setattr(schedule, "_SECONDS_AFTER_START", 0.0)
    monkeypatch.setattr(schedule, "_SECONDS_BETWEEN_LOOKS", 0.01)
    monkeypatch.setattr(schedule, "_SECONDS_OF_A_CLAIM", 6.0)
    monkeypatch.setattr(schedule, "_RENEWALS", 60)
    go_on = tmp_path / "go-on"
    program = tmp_path / "pg_basebackup"
    program.write_text(f'#!/bin/sh\nwhile [ ! -e {go_on} ]; do sleep 0.05; done; mkdir -p "$4"\n')
    program.chmod(0o755)
    monkeypatch.setattr("shutil.which", lambda _: str(program))
    chosen = Settings(database_url=database_url, data_dir=tmp_path, base_backup_folder=tmp_path / "base")

    async def run() -> list[tuple[object, ...]]:
        database = Database(database_url)
        killed = await database.row("jobs.claim", "base_backup", "a host that is gone", 0.0)
        assert killed is not None
        work = asyncio.create_task(schedule.run_jobs(database, chosen, wall_clock))
        renewed = killed["began"]
        for _ in range(3):
            renewed = await _renewed_after(database, renewed)
            assert await database.row("jobs.claim", "base_backup", "another", 60.0) is None
        go_on.touch()
        work.cancel()
        await asyncio.wait([work])
        await database.close()
        return await _until_all_ended(database_url, chosen, 1)

    ((name, outcome, failures, waits),) = asyncio.run(run())
    assert (name, outcome, failures, waits) == ("base_backup", "done", 1, timedelta(days=1))


def test_a_job_that_kills_its_service_is_begun_again_later_each_time(database_url: str) -> None:
    """Once its claim ends the first time, then after growing pauses, as the list of jobs says, until a run ends."""

    async def run() -> None:
        database = Database(database_url)

        async def claim(seconds: float = 0.0) -> int | None:
            row = await database.row("jobs.claim", "backup", "host", seconds)
            return None if row is None else row["cut_off"]

        async def pass_by(minutes: int) -> None:
            connection = await asyncpg.connect(database_url)
            await connection.execute("UPDATE jobs SET next_run = now() - $1::interval", timedelta(minutes=minutes))
            await connection.close()

        assert [await claim() for _ in range(3)] == [0, 1, None]
        (job,) = await database.rows("jobs.list")
        assert (job["outcome"], job["failures"]) == ("failed", 2)
        assert job["detail"] == "its service was killed while it ran, 2 times in a row"
        assert timedelta(minutes=3) < job["next_run"] - job["began"] < timedelta(minutes=5)
        for number, pause in ((2, 4), (3, 8), (4, 16)):
            await pass_by(pause - 1)
            assert await claim() is None
            await pass_by(pause)
            assert await claim() == number
        for _ in range(20):
            await pass_by(24 * 60)
            last = await claim(120.0)
        assert last == 24
        (job,) = await database.rows("jobs.list")
        assert (job["outcome"], job["detail"]) == ("running", "")
        await database.rows("jobs.end", "backup", job["began"], "done", "", 0, 0.0)
        assert [await claim() for _ in range(2)] == [0, 1]
        await database.close()

    asyncio.run(run())


def test_tables_that_cannot_be_maintained_are_a_warning_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With the cause; the pauses grow; when it works again the log says so, and a new failure is a new warning."""
    waits: list[float] = []
    outcomes = iter([False, False, False, True, False])
    caplog.set_level(logging.INFO, "headgate")

    async def wait(seconds: float) -> None:
        waits.append(seconds)

    async def move() -> None:
        works = next(outcomes, None)
        if works is None:
            raise asyncio.CancelledError
        if not works:
            msg = "the month 2026-11 is locked"
            raise DatabaseError(msg, transient=True)

    monkeypatch.setattr("headgate.archive.retention.asyncio.sleep", wait)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(maintenance.maintain_tables(move))
    assert waits == [1.0, 60.0, 120.0, 240.0, 3_600.0, 60.0]
    warnings = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert warnings == ["table maintenance failed, retry in 60 s: the month 2026-11 is locked"] * 2
    assert caplog.text.count("table maintenance recovered") == 1


def test_upkeep_goes_on_for_ever_and_names_each_new_problem(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """After two months of failures it still tries every hour; a problem that lasts silences no other one."""
    rounds = 3_000
    done = iter(range(rounds))

    async def wait(_seconds: float) -> None:
        if next(done, None) is None:
            raise asyncio.CancelledError

    async def forbidden() -> None:
        msg = "permission denied"
        raise DatabaseError(msg, transient=False)

    async def make_ahead() -> None:
        if next(done, 0) > rounds // 2:
            msg = "no partition"
            raise DatabaseError(msg, transient=False)

    monkeypatch.setattr("headgate.archive.retention.asyncio.sleep", wait)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(maintenance.maintain_tables(forbidden, make_ahead))
    warnings = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert [text.partition(" s: ")[2] for text in warnings] == ["permission denied", "no partition"]


async def _renewed_after(database: Database, earlier: datetime) -> datetime:
    """The end of a claim, once it is a later one."""
    async with asyncio.timeout(60):
        while True:
            (job,) = await database.rows("jobs.list")
            if job["outcome"] == "running" and job["next_run"] > earlier:
                later: datetime = job["next_run"]
                return later
            await asyncio.sleep(0.01)
