"""Counts by month in a real PostgreSQL: partitions ahead, rows in their months, and old months gone."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tests.support.recounts import START, alike
from tests.support.stored_counts import micros, stored_metrics

from headgate.adapters.postgres import Database, migrate
from headgate.adapters.postgres.count_sink import PostgresCounts
from headgate.adapters.postgres.migrations import apply_on
from headgate.archive.metric_months import MetricMonths
from headgate.controlplane.analytics import Analytics, Dimension, Granularity, MetricsQuery
from headgate.controlplane.rollups import Rollups
from headgate.core.counts import CountBatch
from headgate.core.units import DAY, HOUR, MINUTE
from headgate.errors import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest
    from tests.support.postgres import Postgres

_NOW = micros(datetime(2026, 11, 18, 12, tzinfo=UTC))
_BEFORE_MONTHS = 13
"""The last migration of the table without partitions."""
# As processes store counts that know nothing of months.
_OLD_STATEMENT = """
INSERT INTO metrics (granularity, at, total) VALUES ('day', $1, $2)
ON CONFLICT (granularity, at, rule, endpoint, tier, region, user_id)
DO UPDATE SET total = metrics.total + excluded.total"""


async def _partitions(database: Database) -> dict[str, int]:
    """The partitions of metrics, with their numbers of rows."""
    async with database.use() as connection:
        names = [row["name"] for row in await database.rows("retention.metric_partitions")]
        return {name: await connection.fetchval(f"SELECT count(*) FROM {name}") for name in [*names, "metrics_default"]}  # noqa: S608 (ours)


async def _add_days(database: Database, days: Iterable[str]) -> None:
    async with database.use() as connection:
        for day in days:
            await connection.execute(_OLD_STATEMENT, datetime.fromisoformat(f"{day}T00:00Z"), 1)


def test_a_table_of_before_is_taken_over_with_all_its_rows(postgres: Postgres) -> None:
    """The migration moves nothing; then rows go to their months, old ones go, and earlier processes add as before."""
    url = postgres.new_database(empty=True)

    async def run() -> None:
        database = Database(url)
        async with database.use() as connection:
            await apply_on(connection, _BEFORE_MONTHS)
        await _add_days(database, ["2025-10-31", "2025-11-01", "2026-10-31", "2026-11-18", "2027-06-01"])
        earlier = await stored_metrics(database, "day")
        assert next(step.name for step in await migrate(database)) == "metrics_by_month"
        assert await _partitions(database) == {"metrics_default": 5}
        assert await stored_metrics(database, "day") == earlier
        months = MetricMonths(database, lambda: _NOW, 12)
        for _ in range(2):
            await months.keep()
            assert await _partitions(database) == {
                "metrics_2025_11": 1,
                "metrics_2026_10": 1,
                "metrics_2026_11": 1,
                "metrics_2026_12": 0,
                "metrics_2027_01": 0,
                "metrics_default": 1,  # of a clock that was ahead; it moves when its month comes near
            }
        await _add_days(database, ["2026-11-18", "2026-12-01", "2026-09-30"])
        await months.keep()
        found = {place[0]: number for place, number in (await stored_metrics(database, "day")).items()}
        assert sorted(found.values()) == [1, 1, 1, 1, 1, 2]
        assert (await _partitions(database))["metrics_2026_09"] == 1
        await database.close()

    asyncio.run(run())


def test_months_past_their_retention_are_dropped(database_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """A month goes with its partition once it is too old, and what comes for it later goes too."""
    caplog.set_level("INFO", "headgate")

    async def run() -> None:
        database = Database(database_url)
        await _add_days(database, ["2026-09-01", "2026-10-01", "2026-11-01"])
        await MetricMonths(database, lambda: _NOW, 2).keep()
        assert len(await stored_metrics(database, "day")) == 3
        later = MetricMonths(database, lambda: _NOW + 31 * DAY, 2)
        await later.keep()
        await _add_days(database, ["2026-09-02"])
        await later.keep()
        names = [*await _partitions(database)]
        assert names == [
            *(f"metrics_{each}" for each in ("2026_10", "2026_11", "2026_12", "2027_01", "2027_02")),
            names[-1],
        ]
        assert len(await stored_metrics(database, "day")) == 2
        await database.close()

    asyncio.run(run())
    assert caplog.text.count("metrics of 2026-09 dropped: they are older than 2 months") == 1


async def _store(database: Database, name: str) -> None:
    for number in range(6):
        minute = START + number % 3 * 40 * DAY
        await PostgresCounts(database).store(CountBatch(f"{name}{number}", name, "", [alike(minute, "u1")], []))


async def _keep_months(database: Database) -> None:
    left = [*range(4)]
    while left:
        try:
            await MetricMonths(database, lambda: START + left[0] * 31 * DAY, 12).keep()
            left.pop(0)
        except DatabaseError as error:
            assert "lock timeout" in str(error)  # noqa: PT017 (it gives way, and comes again)


async def _roll_up(database: Database) -> None:
    for _ in range(3):
        await Rollups(database, lambda: START + 8 * DAY).catch_up()


def test_counts_go_on_while_months_are_made(postgres: Postgres) -> None:
    """Two processes store, roll up and make months at once: none stops another, and nothing is lost."""
    url = postgres.new_database()

    async def run() -> None:
        first, second = Database(url, seconds=60), Database(url, seconds=60)
        async with asyncio.TaskGroup() as group:
            for database, name in ((first, "a"), (second, "b")):
                for work in (_store(database, name), _keep_months(database), _roll_up(database)):
                    group.create_task(work)
        stored = await stored_metrics(first)
        assert sum(each for place, each in stored.items() if place[5:] == ("", "total")) == 12
        for database in (first, second):
            await database.close()

    asyncio.run(run())


def test_a_named_user_is_counted_by_endpoint_up_to_days(database_url: str) -> None:
    """Minutes, hours and days by user and endpoint add up; users who are not named have one row without an endpoint."""

    async def run() -> None:
        database = Database(database_url)
        sink = PostgresCounts(database, by_endpoint=["vip"])
        for number, minute in enumerate((START, START + MINUTE, START + HOUR)):
            counts = [
                alike(minute, user, requests=requests)._replace(endpoint=endpoint)
                for user, endpoint, requests in (
                    ("vip", "/a", 3),
                    ("vip", "/b", 1),
                    ("other", "/a", 50),
                    ("third", "/b", 9),
                )
            ]
            await sink.store(CountBatch(str(number), "server", "", counts, []))
        assert await Rollups(database, lambda: START + DAY, most=2).catch_up()
        analytics = Analytics(database, lambda: START + DAY)

        async def by_endpoint(granularity: Granularity, user: str) -> dict[str, int]:
            query = MetricsQuery(granularity, frozenset({Dimension.ENDPOINT}), {Dimension.USER: user})
            rows = await analytics.metrics(query, analytics.span(granularity, None, None))
            return {row["endpoint"]: row["total"] for row in rows}

        assert await by_endpoint(Granularity.DAY, "vip") == {"/a": 9, "/b": 3}
        assert await by_endpoint(Granularity.DAY, "other") == {"": 150}
        assert await by_endpoint(Granularity.DAY, "third") == {}  # there is room for two
        query = MetricsQuery(Granularity.DAY, frozenset({Dimension.USER}))
        rows = await analytics.metrics(query, analytics.span(Granularity.DAY, None, None))
        assert {row["user"]: row["total"] for row in rows} == {"vip": 12, "other": 150}
        # Once minutes and hours are gone, the rest of too many endpoints is added up for the user too.
        many = [alike(START, "vip")._replace(endpoint=f"/{each}") for each in range(120)]
        await sink.store(CountBatch("late", "server", "", many, []))
        assert await Rollups(database, lambda: START + 450 * DAY, most=2).catch_up()
        found = {
            str(place[2]): each
            for place, each in (await stored_metrics(database, "day")).items()
            if place[5:] == ("vip", "total")
        }
        assert len(found) == 101
        assert sum(found.values()) == 12 + 120
        assert found["/a"] == 9
        await database.close()

    asyncio.run(run())
