"""What the leading process of a service does about events as time goes by."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import asyncpg
from tests.support.stored_events import all_events, events, store

from headgate.adapters.clock import wall_clock
from headgate.adapters.postgres import Database
from headgate.archive import retention as maintenance
from headgate.archive.retention import Retention
from headgate.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

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
    """It makes partitions ahead and archives what is old, in a process of its own, and logs what was done."""
    monkeypatch.setattr(maintenance, "_SECONDS_AFTER_START", 0.0)
    caplog.set_level(logging.INFO, "headgate")
    chosen = Settings(
        database_url=database_url, data_dir=tmp_path, archive_url=str(tmp_path / "kept"), archive_daily=True
    )

    async def run() -> None:
        await store(database_url, events("2024-02", 50))
        database = Database(database_url)
        archived = asyncio.Event()
        archive = maintenance.run_archive_in_child

        async def archive_and_say(settings: Settings) -> None:
            await archive(settings)
            archived.set()

        monkeypatch.setattr(maintenance, "run_archive_in_child", archive_and_say)
        work = asyncio.create_task(maintenance.maintain_events(Retention(database, wall_clock), chosen, archives=True))
        async with asyncio.timeout(60):
            await archived.wait()
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        await database.close()
        assert await all_events(database_url) == []

    asyncio.run(run())
    assert "archived  2024-02, part 1: 50 events" in caplog.text
    assert len(_partitions(database_url)) >= 3


def test_a_child_that_cannot_be_started_stops_nothing_else(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """If no process can be started for archiving, that is logged, and partitions are made ahead as ever."""
    for name in ("_SECONDS_AFTER_START", "_SECONDS_BETWEEN_ROUNDS"):
        monkeypatch.setattr(maintenance, name, 0.0)
    monkeypatch.setattr("sys.executable", str(tmp_path / "no-such-program"))
    chosen = Settings(database_url=database_url, data_dir=tmp_path, archive_daily=True)

    async def run() -> None:
        database = Database(database_url)
        retention = Retention(database, wall_clock)
        looked = asyncio.Semaphore(0)
        make_ahead = retention.make_ahead

        async def make_and_say() -> list[Month]:
            looked.release()
            return await make_ahead()

        monkeypatch.setattr(retention, "make_ahead", make_and_say)
        work = asyncio.create_task(maintenance.maintain_events(retention, chosen, archives=True))
        async with asyncio.timeout(60):
            for _ in range(3):
                await looked.acquire()
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        await database.close()

    asyncio.run(run())
    assert "archive run failed: [Errno 2] No such file or directory" in caplog.text


def test_what_keeps_a_service_from_archiving_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A run that fails is a warning with its sentence."""
    chosen = Settings(database_url=f"postgresql://unknown@/none?host={tmp_path}", data_dir=tmp_path)
    asyncio.run(maintenance.run_archive_in_child(chosen))
    assert "archive run failed: headgate: the database does not answer" in caplog.text
