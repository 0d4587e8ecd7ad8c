"""Several databases that are archived to one place, and a database that comes back from a backup."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.postgres import migrated
from tests.support.stored_events import all_events, events, store

from headgate.archive.archiver import Progress
from headgate.archive.factory import archive_store, open_archive
from headgate.archive.part import Month
from headgate.backup.catalog import find
from headgate.backup.factory import database_of
from headgate.backup.restorer import restore
from headgate.backup.writer import create
from headgate.cli.commands import run as headgate
from headgate.errors import ArchiveError, NotFound
from headgate.settings import Settings

if TYPE_CHECKING:
    from tests.support.postgres import Postgres

MAY = Month(2026, 5)
LATER = datetime(2027, 1, 1, tzinfo=UTC)


def _now() -> int:
    return int(datetime(2026, 9, 1, tzinfo=UTC).timestamp()) * 1_000_000


@pytest.fixture
def two(postgres: Postgres, tmp_path: Path) -> tuple[Settings, Settings]:
    """Settings of two databases with one archive."""
    chosen = Settings(database_url=postgres.new_database(), archive_url=str(tmp_path / "archive"))
    other = postgres.new_database(empty=True)  # those that are not empty are copies of one
    asyncio.run(migrated(other))
    return chosen, replace(chosen, database_url=other)


def test_two_databases_archive_to_one_place_at_once(two: tuple[Settings, Settings]) -> None:
    """Each finds its own events again, and only those, however their runs meet."""

    async def run() -> None:
        before = []
        for seed, chosen in enumerate(two):
            await store(chosen.database_url or "", events("2026-05", 300 + seed, seed=seed))
            before.append(await all_events(chosen.database_url or ""))
        async with AsyncExitStack() as stack:
            opened = [await stack.enter_async_context(open_archive(chosen, _now)) for chosen in two]
            await asyncio.gather(*(each.archiver.run(Progress()) for each in opened))
            for each, chosen, had in zip(opened, two, before, strict=True):
                assert await all_events(chosen.database_url or "") == []
                assert [(part.number, part.rows) for part in await each.archiver.parts()] == [(1, len(had))]
                await each.archiver.restore(MAY, LATER, Progress())
                assert await all_events(chosen.database_url or "") == had
            assert len((await opened[0].archive.found()).parts) == 2

    asyncio.run(run())


def test_queries_and_replays_see_one_database(
    two: tuple[Settings, Settings],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Events of another database in the same place are in no answer and in no simulation."""
    rules = tmp_path / "rules.yaml"
    rules.write_text("rules: [{name: a, per: user, limits: 5/day}]", encoding="utf-8")

    async def archive(seed: int, chosen: Settings) -> None:
        await store(chosen.database_url or "", events("2026-05", 20 + seed, seed=seed))
        async with open_archive(chosen, _now) as opened:
            await opened.archiver.run(Progress())

    for seed, chosen in enumerate(two):
        asyncio.run(archive(seed, chosen))
    monkeypatch.setenv("HEADGATE_ARCHIVE_URL", two[0].archive_url or "")
    for seed, chosen in enumerate(two):
        monkeypatch.setenv("HEADGATE_DATABASE_URL", chosen.database_url or "")
        assert headgate(["archive", "query", "SELECT count(*) AS number FROM events", "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == [{"number": 20 + seed}]
        assert headgate(["simulate", "--rules", str(rules), "--from", "archive", "--warm-up", "0", "--json"]) == 0
        assert 15 < json.loads(capsys.readouterr().out)["requests"] <= 20 + seed  # some users are not valid


def test_what_another_database_is_writing_stays(two: tuple[Settings, Settings]) -> None:
    """A run takes away what runs of its own database left unfinished, and nothing else."""
    folder = Path(two[0].archive_url or "")

    def begin(origin: str) -> Path:
        begun = folder / f"events/2026-05/1-{origin[:8]}-00000000"
        begun.mkdir(parents=True)
        for name in ("0001.parquet", "0002.parquet.unfinished"):
            (begun / name).write_bytes(b"half")
        return begun

    async def run() -> None:
        async with open_archive(two[0], _now) as opened, open_archive(two[1], _now) as other:
            own, foreign = begin(opened.archive.origin), begin(other.archive.origin)
            await opened.archiver.run(Progress())
            assert not own.exists()
            assert len(list(foreign.iterdir())) == 2

    asyncio.run(run())


def test_nothing_is_dropped_for_files_that_are_gone(
    two: tuple[Settings, Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a file or the manifest is not there as it was written, the events stay in the database."""
    chosen = two[0]
    url = chosen.database_url or ""

    async def run() -> None:
        await store(url, events("2026-05", 50))
        async with open_archive(chosen, _now) as opened:
            write = opened.archive.store.write

            def write_badly(name: str, content: bytes) -> object:
                return write(name, content.replace(b"headgate", b"another") if name.endswith("json") else content)

            monkeypatch.setattr(opened.archive.store, "write", write_badly)
            with pytest.raises(ArchiveError, match="differs from what was written; nothing was dropped"):
                await opened.archiver.run(Progress())
            assert len(await all_events(url)) == 50

    asyncio.run(run())


def test_a_restored_database_keeps_its_archives(two: tuple[Settings, Settings]) -> None:
    """What was archived before and after a backup is the database's own, also after that backup was restored."""
    chosen, empty = two

    async def run() -> None:
        place = archive_store(chosen)
        await store(chosen.database_url or "", events("2026-05", 20))
        async with open_archive(chosen, _now) as opened:
            await opened.archiver.run(Progress())
        async with database_of(chosen) as database:
            await create(database, place, None, lambda *_: None, version="1")
        await store(chosen.database_url or "", events("2026-04", 30))
        async with open_archive(chosen, _now) as opened:
            await opened.archiver.run(Progress())
        async with open_archive(empty, _now) as opened:
            with pytest.raises(NotFound, match="no events of 2026-05 of this database"):
                await opened.archiver.restore(MAY, LATER, Progress())
        async with database_of(empty) as database:
            await restore(database, place, await find(place, "latest"), lambda *_: None)
        async with open_archive(empty, _now) as opened:
            assert [part.rows for part in await opened.archiver.parts()] == [30, 20]

    asyncio.run(run())


@pytest.fixture
def damaged(two: tuple[Settings, Settings], monkeypatch: pytest.MonkeyPatch) -> Settings:
    """An archive of two months, with a manifest that cannot be read in one of them."""
    chosen = two[0]
    monkeypatch.setenv("HEADGATE_DATABASE_URL", chosen.database_url or "")
    monkeypatch.setenv("HEADGATE_ARCHIVE_URL", chosen.archive_url or "")

    async def run() -> None:
        await store(chosen.database_url or "", [*events("2026-04", 20), *events("2026-05", 30, seed=1)])
        async with open_archive(chosen, _now) as opened:
            await opened.archiver.run(Progress())

    asyncio.run(run())
    (manifest,) = Path(chosen.archive_url or "").glob("events/2026-04/*/manifest.json")
    manifest.write_text("{", encoding="utf-8")
    return chosen


def test_one_manifest_that_cannot_be_read_hides_no_others(
    damaged: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    """The list shows all others and complains; the month itself cannot be brought back, others can."""
    assert headgate(["archive", "list", "--json"]) == 0
    out, complaints = capsys.readouterr()
    (part,) = json.loads(out)["parts"]
    assert (part["month"], part["events"]) == ("2026-05", 30)
    assert "manifest.json cannot be used" in complaints
    assert headgate(["archive", "list"]) == 0
    assert part["origin"][:8] in capsys.readouterr()[0]
    assert headgate(["archive", "restore", "2026-04"]) == 1
    assert "manifest.json cannot be used" in capsys.readouterr()[1]
    assert headgate(["archive", "restore", "2026-05"]) == 0
    assert len(asyncio.run(all_events(damaged.database_url or ""))) == 30
