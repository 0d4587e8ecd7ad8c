"""The life of events: stored, archived, dropped, brought back, deleted after years; in folders and in S3."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest
from tests.support.recounts import alike
from tests.support.s3 import KEYS, S3Server
from tests.support.stored_events import COLUMNS, all_events, events, store

from headgate.adapters.postgres import Database
from headgate.adapters.postgres.count_sink import PostgresCounts
from headgate.archive.archiver import Progress
from headgate.archive.event_query import read
from headgate.archive.factory import archive_store, open_archive, open_query
from headgate.archive.parquet import SCHEMA
from headgate.archive.part import Month
from headgate.controlplane.rollups import Rollups
from headgate.core.counts import CountBatch
from headgate.core.units import MINUTE
from headgate.errors import ArchiveError, Conflict, NotFound
from headgate.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.archive.part import Part

MAY = Month(2026, 5)


def _at(text: str) -> Callable[[], int]:
    moment = int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1_000_000)
    return lambda: moment


def _file(chosen: Settings, form: str) -> Path:
    """The one file of such a name in an archive."""
    (file,) = Path(chosen.archive_url or "").rglob(form)
    return file


@pytest.fixture(params=["folder", "s3"])
def chosen(
    request: pytest.FixtureRequest, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Settings:
    """Settings with an empty database and an archive of each kind."""
    if request.param == "folder":
        return Settings(database_url=database_url, archive_url=str(tmp_path / "archive"))
    server: S3Server = request.getfixturevalue("s3")
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    return Settings(database_url=database_url, archive_url=server.new_bucket(), s3_endpoint=server.endpoint)


@pytest.fixture
def in_folder(database_url: str, tmp_path: Path) -> Settings:
    """Settings with an empty database and an archive in a folder."""
    return Settings(database_url=database_url, archive_url=str(tmp_path / "archive"))


def test_the_columns_are_those_of_the_table(database_url: str) -> None:
    """Nothing that the table of events has is missing in the archive."""

    async def run() -> None:
        connection = await asyncpg.connect(database_url)
        rows = await connection.fetch(
            "SELECT attname FROM pg_attribute WHERE attrelid = 'events'::regclass AND attnum > 0 AND NOT attisdropped"
        )
        assert {row["attname"] for row in rows} == set(SCHEMA.names) == set(COLUMNS)
        await connection.close()

    asyncio.run(run())


async def _count(url: str, stored: list[tuple[Any, ...]]) -> None:
    """Have all events counted, as their process would."""
    minutes = Counter(int(event[0].timestamp()) * 1_000_000 // MINUTE * MINUTE for event in stored)
    database = Database(url)
    counts = [alike(minute, requests=many) for minute, many in minutes.items()]
    await PostgresCounts(database).store(CountBatch("b", "server", "", counts, []))
    await database.close()


async def _rolled_up(url: str, clock: Callable[[], int]) -> set[tuple[str, int]]:
    """What minutes, hours and days add up to, at a moment."""
    database = Database(url)
    await Rollups(database, clock).catch_up()
    async with database.use() as connection:
        rows = await connection.fetch(
            "SELECT granularity, sum(total)::int AS total FROM metrics WHERE rule = '' AND user_id = '' GROUP BY 1"
        )
    await database.close()
    return {(row["granularity"], row["total"]) for row in rows}


async def _asked(chosen: Settings) -> list[tuple[str, int]]:
    """How many events a question finds in each month, wherever they are."""
    since, before = (datetime(year, 1, 1, tzinfo=UTC) for year in (2026, 2027))
    async with open_query(chosen, since, before, Progress()) as query:
        question = "SELECT strftime(time, '%Y-%m') AS month, count(*) AS events FROM events GROUP BY 1 ORDER BY 1"
        answer = await asyncio.to_thread(
            lambda: [row for batch in read(query.run(question)) for row in batch.to_pylist()]
        )
    return [(row["month"], row["events"]) for row in answer]


def test_the_life_of_events(chosen: Settings) -> None:
    """Partition made ahead, events stored, counted, rolled up, archived, dropped, asked for, brought back, deleted."""
    url = chosen.database_url or ""

    async def run() -> None:
        async with open_archive(chosen, _at("2026-05-20")) as opened:
            assert (await opened.archiver.run(Progress())).archived == []
            assert list(await opened.events.months()) == [MAY, Month(2026, 6), Month(2026, 7)]
        await store(url, [*events("2026-05", 3_000), *events("2026-06", 100, seed=1)])
        before = await all_events(url)
        await _count(url, before)
        assert await _rolled_up(url, _at("2026-05-02")) == {("day", 3_100), ("hour", 3_100), ("minute", 3_100)}
        async with open_archive(chosen, _at("2026-08-29T23:59")) as opened:
            assert (await opened.archiver.plan()).archived == []
        async with open_archive(chosen, _at("2026-08-30")) as opened:
            (planned,) = (await opened.archiver.plan()).archived
            assert (planned.month, planned.events, planned.part) == (MAY, 3_000, None)
            (done,) = (await opened.archiver.run(Progress())).archived
            assert done.part is not None
            assert (done.part.rows, done.part.number, done.part.first) == (3_000, 1, before[0][0])
            assert MAY not in await opened.events.months()
            assert (await opened.archiver.run(Progress())).archived == []
            assert len(await all_events(url)) == 100
            assert await _asked(chosen) == [("2026-05", 3_000), ("2026-06", 100)]
            # Minutes are old by now as well; what they add up to is kept.
            assert await _rolled_up(url, _at("2026-08-30")) == {("day", 3_100), ("hour", 3_100)}
            until = datetime(2026, 9, 5, tzinfo=UTC)
            restored = await opened.archiver.restore(MAY, until, Progress())
            assert (restored.events, restored.added) == (3_000, 3_000)
            assert await all_events(url) == before
            assert await _asked(chosen) == [("2026-05", 3_000), ("2026-06", 100)]
            assert (await opened.archiver.restore(MAY, until, Progress())).added == 0
            assert await all_events(url) == before
            assert (await opened.archiver.run(Progress())).kept == [MAY]
        async with open_archive(chosen, _at("2026-09-06")) as opened:
            (again,) = (await opened.archiver.run(Progress())).archived
            assert (again.events, again.part) == (3_000, None)
            assert [part.rows for part in await opened.archiver.parts()] == [3_000]
        await store(url, events("2033-05", 1))
        async with open_archive(chosen, _at("2033-05-31T23:59")) as opened:
            assert (await opened.archiver.run(Progress())).deleted == []
        async with open_archive(chosen, _at("2033-06-01")) as opened:
            assert [part.month for part in (await opened.archiver.plan()).deleted] == [MAY]
            assert [part.month for part in (await opened.archiver.run(Progress())).deleted] == [MAY]
            assert [part.month for part in await opened.archiver.parts()] == [Month(2026, 6)]
            assert not archive_store(chosen).names("events/2026-05")

    asyncio.run(run())


def test_late_events_become_a_further_part(in_folder: Settings) -> None:
    """What comes for a month that is archived already is archived too, and what is there already is not again."""
    url = in_folder.database_url or ""

    async def run() -> None:
        first, late = list(events("2026-05", 500)), list(events("2026-05", 700, seed=2))
        await store(url, first)
        async with open_archive(in_folder, _at("2026-09-01")) as opened:
            await opened.archiver.run(Progress())
            await store(url, [*late, *first[:50]])
            (done,) = (await opened.archiver.run(Progress())).archived
            assert done.part is not None
            assert (done.events, done.part.number, done.part.rows) == (750, 2, 700)
            assert [part.rows for part in await opened.archiver.parts()] == [500, 700]
            await opened.archiver.restore(MAY, datetime(2027, 1, 1, tzinfo=UTC), Progress())
        assert [row[2] for row in await all_events(url)] == [
            row[2] for row in sorted([*first, *late], key=lambda row: (row[0], row[2].encode()))
        ]

    asyncio.run(run())


def test_events_that_come_during_a_run_are_not_lost(in_folder: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """An event that is stored while its month is being read keeps the month from being dropped without it."""
    url = in_folder.database_url or ""

    async def run() -> None:
        await store(url, events("2026-05", 500))
        async with open_archive(in_folder, _at("2026-09-01")) as opened:
            complete = opened.archive.complete

            async def complete_late(part: Part) -> None:
                if part.number < 3:
                    await store(url, events("2026-05", 1, seed=90 + part.number))
                await complete(part)

            monkeypatch.setattr(opened.archive, "complete", complete_late)
            (done,) = (await opened.archiver.run(Progress())).archived
            assert done.events == 502
            assert [part.rows for part in await opened.archiver.parts()] == [500, 1, 1]
        assert await all_events(url) == []

    asyncio.run(run())


def test_a_damaged_file_is_found_and_named(in_folder: Settings) -> None:
    """One flipped byte is enough: nothing is brought back, nothing is dropped for it, and the file is named."""
    url = in_folder.database_url or ""

    async def run() -> None:
        await store(url, events("2026-05", 2_000))
        async with open_archive(in_folder, _at("2026-09-01")) as opened:
            await opened.archiver.run(Progress())
            file = _file(in_folder, "*.parquet")
            whole = file.read_bytes()
            file.write_bytes(whole[:5_000] + bytes([whole[5_000] ^ 1]) + whole[5_001:])
            with pytest.raises(ArchiveError, match=r"events/2026-05/1-[0-9a-f-]+/0001\.parquet is damaged"):
                await opened.archiver.restore(MAY, datetime(2027, 1, 1, tzinfo=UTC), Progress())
            await store(url, events("2026-05", 10))
            with pytest.raises(ArchiveError, match=r"0001\.parquet is damaged"):
                await opened.archiver.run(Progress())
            assert len(await all_events(url)) == 10
            file.unlink()
            with pytest.raises(ArchiveError, match=r"0001\.parquet cannot be read: No such file"):
                await opened.archiver.restore(MAY, datetime(2027, 1, 1, tzinfo=UTC), Progress())

    asyncio.run(run())


def test_what_differs_is_not_brought_back(in_folder: Settings) -> None:
    """An event in the database that differs from the archived one of its id stays, and nothing is brought back."""
    url = in_folder.database_url or ""

    async def run() -> None:
        some = list(events("2026-05", 50))
        await store(url, some)
        async with open_archive(in_folder, _at("2026-09-01")) as opened:
            await opened.archiver.run(Progress())
            await store(url, [(*some[3][:3], "another", *some[3][4:])])
            with pytest.raises(Conflict, match="differ from those in part 1"):
                await opened.archiver.restore(MAY, datetime(2027, 1, 1, tzinfo=UTC), Progress())
            assert len(await all_events(url)) == 1
            with pytest.raises(NotFound, match="no events of 2026-04"):
                await opened.archiver.restore(Month(2026, 4), datetime(2027, 1, 1, tzinfo=UTC), Progress())

    asyncio.run(run())


def test_two_runs_do_not_meet(in_folder: Settings) -> None:
    """The second run is refused with a message, and the first goes on."""

    async def run() -> None:
        async with open_archive(in_folder, _at("2026-09-01")) as opened:
            async with opened.events.locked() as still_locked:
                with pytest.raises(Conflict, match="another process is archiving"):
                    await opened.archiver.run(Progress())
                await still_locked()
            await opened.archiver.run(Progress())

    asyncio.run(run())


def test_a_time_that_cannot_be_believed_deletes_nothing(in_folder: Settings) -> None:
    """Ten years without events mean a wrong clock, unless the caller confirms; a part just written is not deleted."""
    url = in_folder.database_url or ""

    async def run() -> None:
        await store(url, events("2026-05", 10))
        far = f"{datetime.now(UTC).year + 10}-06-01"
        async with open_archive(in_folder, _at(far)) as opened:
            for refused in (opened.archiver.plan(), opened.archiver.run(Progress())):
                with pytest.raises(Conflict, match="if the clock is right, add --clock-is-right"):
                    await refused
            assert len(await all_events(url)) == 10
            done = await opened.archiver.run(Progress(), clock_is_right=True)
            assert ([each.month for each in done.archived], done.deleted) == ([MAY], [])
        async with open_archive(in_folder, _at(far.replace("-06-01", "-06-30"))) as opened:
            assert (await opened.archiver.run(Progress(), clock_is_right=True)).deleted == []
        async with open_archive(in_folder, _at(far.replace("-06-01", "-07-01"))) as opened:
            assert len((await opened.archiver.run(Progress(), clock_is_right=True)).deleted) == 1

    asyncio.run(run())


def test_ids_of_old_batches_are_forgotten(in_folder: Settings) -> None:
    """The ids of batches are kept as long as events are kept in the database."""

    async def run() -> None:
        connection = await asyncpg.connect(in_folder.database_url)
        now = datetime(2026, 9, 1, tzinfo=UTC)
        for days in (0, 89, 91, 1_000):
            await connection.execute("INSERT INTO batches VALUES ($1, $2)", f"batch{days}", now - timedelta(days=days))
        async with open_archive(in_folder, _at("2026-09-01")) as opened:
            assert (await opened.archiver.run(Progress())).batches == 2
        assert {row["id"] for row in await connection.fetch("SELECT id FROM batches")} == {"batch0", "batch89"}
        await connection.close()

    asyncio.run(run())


def test_a_manifest_that_cannot_be_read_stops_everything(in_folder: Settings) -> None:
    """Nothing is dropped or deleted beside a manifest that is damaged; it is named."""
    url = in_folder.database_url or ""

    async def run() -> None:
        await store(url, events("2026-05", 10))
        async with open_archive(in_folder, _at("2026-09-01")) as opened:
            await opened.archiver.run(Progress())
            file = _file(in_folder, "manifest.json")
            data = json.loads(file.read_text(encoding="utf-8"))
            await store(url, events("2026-05", 10, seed=5))
            for text in ("{", json.dumps(data | {"format": 2}), json.dumps(data | {"rows": 11})):
                file.write_text(text, encoding="utf-8")
                with pytest.raises(ArchiveError, match=r"events/2026-05/1-[0-9a-f-]+/manifest\.json cannot be used"):
                    await opened.archiver.run(Progress())
            assert len(await all_events(url)) == 10

    asyncio.run(run())
