"""Archiver while things go wrong: interrupted at every step, a full disk, a database that is lost."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.stored_events import all_events, events, store

from headgate.archive import event_table
from headgate.archive.archiver import Progress
from headgate.archive.factory import open_archive
from headgate.archive.parquet import EventWriter
from headgate.archive.part import Month
from headgate.errors import ArchiveError, DatabaseError
from headgate.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.support.postgres import Postgres

    from headgate.archive.factory import OpenedArchive

MONTHS = (Month(2026, 3), Month(2026, 4), Month(2026, 5))


def _now() -> int:
    return int(datetime(2026, 9, 1, tzinfo=UTC).timestamp()) * 1_000_000


@pytest.fixture
def chosen(database_url: str, tmp_path: Path) -> Settings:
    """Settings with an empty database and an archive in a folder."""
    return Settings(database_url=database_url, archive_url=str(tmp_path / "archive"))


async def _restored(chosen: Settings) -> None:
    """Everything that was archived, in the database again."""
    async with open_archive(chosen, _now) as opened:
        for month in MONTHS:
            await opened.archiver.restore(month, datetime(2030, 1, 1, tzinfo=UTC), Progress())


class _Killed(BaseException):
    """The end of a process, as far as this can be played inside one."""


class _Fate:
    """Ends a run after so many steps."""

    def __init__(self, steps: int) -> None:
        self._left = steps

    def take(self, opened: OpenedArchive, folder: str, patch: pytest.MonkeyPatch) -> None:
        """Be in the way of whatever this writes, reads back, deletes and drops."""
        place = opened.archive.store
        write = self._around(place.write)

        def write_half(name: str, content: object) -> object:
            half = Path(folder, name + ".unfinished")
            half.parent.mkdir(parents=True, exist_ok=True)
            half.write_bytes(b"half")
            return write(name, content)

        patch.setattr(place, "write", write_half)
        patch.setattr(place, "delete", self._around(place.delete))
        patch.setattr(opened.events, "drop", self._around_async(opened.events.drop))
        patch.setattr(opened.archive, "check", self._around_async(opened.archive.check))

    def _pass(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise _Killed

    def _around(self, function: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object) -> object:
            self._pass()
            answer = function(*arguments)
            self._pass()
            return answer

        return call

    def _around_async(self, function: Callable[..., Awaitable[object]]) -> Callable[..., Awaitable[object]]:
        async def call(*arguments: object) -> object:
            self._pass()
            answer = await function(*arguments)
            self._pass()
            return answer

        return call


def test_a_run_that_ends_at_any_step_is_gone_on_with(chosen: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever a run ends, half a file left behind included, the next ones lose nothing and store nothing twice."""
    url, folder = chosen.database_url or "", chosen.archive_url or ""
    monkeypatch.setattr(EventWriter.__init__, "__defaults__", (100, 2))  # so that there are many files

    async def is_through(steps: int) -> bool:
        async with open_archive(chosen, _now) as opened:
            _Fate(steps).take(opened, folder, monkeypatch)
            try:
                await opened.archiver.run(Progress())
            except _Killed:
                return False
            return True

    async def run() -> None:
        for number, month in enumerate(MONTHS):
            await store(url, events(str(month), 700, seed=number))
        before = await all_events(url)
        steps = 0
        while not await is_through(steps):
            steps += 1
        assert steps > 10
        assert await all_events(url) == []
        async with open_archive(chosen, _now) as opened:
            parts = await opened.archiver.parts()
        assert [(part.month, part.rows, len(part.files)) for part in parts] == [(month, 700, 4) for month in MONTHS]
        await _restored(chosen)
        assert await all_events(url) == before
        assert not [name for name in _files(chosen) if name.endswith(".unfinished")]

    asyncio.run(run())


def _files(chosen: Settings) -> list[str]:
    return [str(path) for path in Path(chosen.archive_url or "").rglob("*") if path.is_file()]


def test_a_full_disk_drops_nothing(chosen: Settings) -> None:
    """A run whose files do not fit says so in a sentence, leaves the events where they are, and can be done again."""
    url = chosen.database_url or ""
    asyncio.run(store(url, events("2026-05", 3_000)))
    command = [sys.executable, "-m", "headgate.cli.main", "archive", "run"]
    # Without those who measure what is covered: they want to write a file at the end, too.
    environment = {name: text for name, text in os.environ.items() if not name.startswith("COVERAGE")} | {
        "HEADGATE_DATABASE_URL": url,
        "HEADGATE_ARCHIVE_URL": chosen.archive_url or "",
        "HEADGATE_ARCHIVE_DAYS": "1",
    }

    def with_room_for_little() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))

    full = subprocess.run(  # noqa: S603 (our own words)
        command,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        preexec_fn=with_room_for_little,
    )
    assert full.returncode == 1
    assert "cannot be written: File too large" in full.stderr
    assert "Traceback" not in full.stderr
    assert len(asyncio.run(all_events(url))) == 3_000
    done = subprocess.run(  # noqa: S603 (our own words)
        command, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "3000 events" in done.stdout


def test_a_database_that_is_lost_in_the_middle(
    postgres: Postgres, chosen: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that is cut while events are read is a sentence, and the next run completes the month."""
    url = chosen.database_url or ""
    name = url.partition("@/")[2].partition("?")[0]

    def cut() -> None:
        postgres.execute(
            "postgres",
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'",  # noqa: S608 (our own words)
        )

    monkeypatch.setattr(event_table, "_BLOCK", 2**16)

    async def run() -> None:
        await store(url, events("2026-05", 3_000))
        async with open_archive(chosen, _now) as opened:
            add = EventWriter.add

            def cutting(self: EventWriter, block: bytes) -> None:
                cut()
                add(self, block)

            monkeypatch.setattr(EventWriter, "add", cutting)
            with pytest.raises((DatabaseError, ArchiveError)):
                await opened.archiver.run(Progress())
            monkeypatch.setattr(EventWriter, "add", add)
            (done,) = (await opened.archiver.run(Progress())).archived
            assert done.part is not None
            assert done.part.rows == 3_000
            assert [part.number for part in await opened.archiver.parts()] == [1]

    asyncio.run(run())
