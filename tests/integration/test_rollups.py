"""Minutes, hours and days in a real PostgreSQL: always the sum of what was stored."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.recounts import START, alike, batches, metrics_of
from tests.support.stored_counts import cut_off, micros, stored_metrics

from headgate.adapters.postgres import Database
from headgate.adapters.postgres.count_sink import PostgresCounts
from headgate.controlplane.rollups import HOURS_KEPT, MINUTES_KEPT, Rollups
from headgate.core.counts import CountBatch, LatencyBucket
from headgate.core.units import DAY, HOUR, MINUTE
from headgate.errors import DatabaseError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest
    from tests.support.postgres import Postgres
    from tests.support.recounts import Recount

_EMPTY = "TRUNCATE metrics, usage_daily, batches, stale_metrics, pruned_metrics"
_MINUTES = st.one_of(
    st.integers(0, 3 * 1_440),  # near the beginning, so that some come after their minutes or hours are gone
    st.sampled_from([0, 59, 60, 1_439, 1_440]),
    st.integers(0, 500 * 1_440),
)
_LONG = 600 * DAY


def _coarse(recount: Recount, length: int) -> Recount:
    found: Recount = Counter()
    for (at, *rest), number in recount.items():
        assert isinstance(at, int)
        found[at // length * length, *rest] += number
    return found


class _Breaking:
    """A database that is lost at the statement of a number."""

    def __init__(self, database: Database, after: int) -> None:
        self._database = database
        self.left = after
        self.rows = database.rows

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        async with self._database.transaction() as writing:
            yield _BreakingStatements(writing, self)


class _BreakingStatements:
    def __init__(self, writing: Any, database: _Breaking) -> None:  # noqa: ANN401 (statements)
        self._writing = writing
        self._database = database

    async def rows(self, statement: str, *arguments: object) -> object:
        return await self._writing.rows(statement, *arguments)

    async def row(self, statement: str, *arguments: object) -> object:
        return await self._writing.row(statement, *arguments)

    async def run(self, statement: str, *arguments: object) -> None:
        self._database.left -= 1
        if self._database.left < 0:
            await cut_off(self._writing)
        await self._writing.run(statement, *arguments)


_STEPS = st.lists(
    st.one_of(batches(_MINUTES), st.tuples(st.integers(0, _LONG), st.integers(0, 12)), st.integers(0, _LONG)),
    max_size=8,
)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(_STEPS)
def test_hours_and_days_equal_a_recount_of_minutes(
    database_url: str, steps: list[CountBatch | tuple[int, int] | int]
) -> None:
    """However late counts come, and wherever a roll-up is cut off: in the end all sums are right."""

    async def run() -> None:
        database = Database(database_url)
        async with database.use() as connection:
            await connection.execute(_EMPTY)
        stored: list[CountBatch] = []
        now = START
        for number, step in enumerate(steps):
            if isinstance(step, CountBatch):
                stored.append(step._replace(id=str(number)))
                await PostgresCounts(database).store(stored[-1])
                continue
            ahead, after = step if isinstance(step, tuple) else (step, 10**9)
            now = max(now, START + ahead)  # clocks go on
            rolling = Rollups(_Breaking(database, after), lambda now=now: now)  # type: ignore[arg-type, misc] # as much as it needs
            try:
                await rolling.catch_up()
            except DatabaseError:
                continue
            await _all_sums_are_right(database, stored)
        await Rollups(database, lambda: now).catch_up()
        await _all_sums_are_right(database, stored)
        minutes, hours = await stored_metrics(database), await stored_metrics(database, "hour")
        assert all(
            int(str(at)) >= (now - int(MINUTES_KEPT.total_seconds()) * 10**6) // HOUR * HOUR for at, *_ in minutes
        )
        assert all(int(str(at)) >= (now - int(HOURS_KEPT.total_seconds()) * 10**6) // DAY * DAY for at, *_ in hours)
        await database.close()

    asyncio.run(run())


async def _all_sums_are_right(database: Database, stored: list[CountBatch]) -> None:
    recount = metrics_of(stored)
    assert await stored_metrics(database, "day") == _coarse(recount, DAY)
    kept = {at for at, *_ in await stored_metrics(database, "hour")}
    hours = _coarse(recount, HOUR)
    assert await stored_metrics(database, "hour") == Counter({k: v for k, v in hours.items() if k[0] in kept})
    present = {at for at, *_ in await stored_metrics(database)}
    assert await stored_metrics(database) == Counter({k: v for k, v in recount.items() if k[0] in present})


def test_pruning_can_be_cut_off_anywhere(database_url: str) -> None:
    """What comes late for an hour whose minutes are gone is added to it, wherever the pruning before was cut off."""

    async def run() -> None:
        database = Database(database_url)
        now = START
        for after in range(12):
            async with database.use() as connection:
                await connection.execute(_EMPTY)
            stored = []
            for number, minute in enumerate((START, START + MINUTE, START + HOUR, START + DAY)):
                stored.append(CountBatch(str(number), "server", "", [alike(minute, requests=number + 1)], []))
                await PostgresCounts(database).store(stored[-1])
            for days, breaks in ((1, 10**9), (20, after), (20, 10**9), (450, after)):
                now = START + days * DAY
                rolling = Rollups(_Breaking(database, breaks), lambda now=now: now)  # type: ignore[arg-type, misc] # as above
                with suppress(DatabaseError):
                    await rolling.catch_up()
                for minute in (START + 2 * MINUTE, START + HOUR):
                    name = f"{days}{breaks}{minute}"
                    stored.append(CountBatch(name, "server", "", [alike(minute, requests=100)], []))
                    await PostgresCounts(database).store(stored[-1])
            await Rollups(database, lambda now=now: now).catch_up()  # type: ignore[misc] # as above
            await _all_sums_are_right(database, stored)
        await database.close()

    asyncio.run(run())


def test_counts_that_come_while_it_is_rolled_up_are_not_missed(postgres: Postgres) -> None:
    """Sinks go on adding to the very hours that two processes roll up and prune; in the end nothing is missing."""

    async def run() -> None:
        url = postgres.new_database()
        now = START + 15 * DAY  # the first minutes are too old already
        stored: list[CountBatch] = []

        async def store(name: str) -> None:
            database = Database(url)
            for number in range(40):
                minutes = (START + MINUTE * (number % 3), START + 2 * DAY + MINUTE * (number % 5))
                counts = [alike(minute) for minute in minutes]
                batch = CountBatch(f"{name}{number}", "server", "", counts, [])
                while True:
                    try:
                        await PostgresCounts(database).store(batch)
                        break
                    except Exception as error:  # noqa: BLE001 (two that wait for each other: one is sent again)
                        assert "deadlock" in str(error)  # noqa: PT017 (it need not be raised)
                stored.append(batch)
            await database.close()

        async def roll_up(is_over: asyncio.Event) -> None:
            database = Database(url)
            while not is_over.is_set():
                try:
                    await Rollups(database, lambda: now).catch_up()
                except DatabaseError as error:
                    assert "deadlock" in str(error)  # noqa: PT017 (it need not be raised)
            await database.close()

        is_over = asyncio.Event()
        rolling = asyncio.gather(roll_up(is_over), roll_up(is_over))
        await asyncio.gather(*map(store, "abc"))
        is_over.set()
        await rolling
        database = Database(url)
        await Rollups(database, lambda: now).catch_up()
        await _all_sums_are_right(database, stored)
        await database.close()

    asyncio.run(run())


def test_one_process_at_a_time_rolls_up(postgres: Postgres) -> None:
    """A process that comes while another rolls up leaves the work to that one."""

    async def run() -> None:
        url = postgres.new_database()
        one, other = Database(url), Database(url)
        count = alike()
        await PostgresCounts(one).store(CountBatch("b", "server", "", [count], []))
        async with one.transaction() as writing:
            await writing.row("rolling_up.begin")
            assert not await Rollups(other, lambda: START).catch_up()
        assert await Rollups(other, lambda: START).catch_up()
        assert await stored_metrics(one, "day") == _coarse(await stored_metrics(one), DAY)
        for database in (one, other):
            await database.close()

    asyncio.run(run())


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(_STEPS)
def test_days_are_right_whatever_clocks_have_said(
    database_url: str, steps: list[CountBatch | tuple[int, int] | int]
) -> None:
    """A clock that goes ahead and back again, and roll-ups that are cut off, cost no count."""

    async def run() -> None:
        database = Database(database_url)
        async with database.use() as connection:
            await connection.execute(_EMPTY)
        stored: list[CountBatch] = []
        for number, step in enumerate(steps):
            if isinstance(step, CountBatch):
                stored.append(step._replace(id=str(number)))
                await PostgresCounts(database).store(stored[-1])
                continue
            now, after = step if isinstance(step, tuple) else (step, 10**9)
            rolling = Rollups(_Breaking(database, after), lambda now=now: START + now)  # type: ignore[arg-type, misc] # as above
            with suppress(DatabaseError):
                await rolling.catch_up()
        await Rollups(database, lambda: START).catch_up()
        assert await stored_metrics(database, "day") == _coarse(metrics_of(stored), DAY)
        await database.close()

    asyncio.run(run())


def test_a_clock_that_was_ahead_takes_no_minutes_away_for_good(database_url: str) -> None:
    """Minutes and hours that come after it is set right are there, and what came meanwhile is in the sums."""

    async def run() -> None:
        database = Database(database_url)
        now = START + 10 * DAY + 5 * HOUR
        stored: list[CountBatch] = []

        async def store_and_roll_up(minute: int, clock: int) -> None:
            stored.append(CountBatch(str(len(stored)), "server", "", [alike(minute)], []))
            await PostgresCounts(database).store(stored[-1])
            assert await Rollups(database, lambda: clock).catch_up()

        await store_and_roll_up(now - HOUR, now)
        await store_and_roll_up(now, now + 900 * DAY)
        assert not await stored_metrics(database)
        for later in range(3):
            await store_and_roll_up(now + later * MINUTE, now + later * MINUTE)
        for minute in (now + MINUTE, now + 2 * MINUTE):
            assert (await stored_metrics(database))[minute, "", "/a", "", "", "", "total"] == 1
        assert (await stored_metrics(database, "hour"))[now, "", "/a", "", "", "", "total"] == 3
        assert await stored_metrics(database, "day") == _coarse(metrics_of(stored), DAY)
        await database.close()

    asyncio.run(run())


def test_it_rolls_up_at_once_and_goes_on_after_any_trouble(
    database_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The first run does not wait an hour, and by the database's own clock nothing of today is old."""

    async def run() -> None:
        database = Database(database_url)
        async with database.use() as connection:
            minute = micros(await connection.fetchval("SELECT date_trunc('minute', now())"))
        await PostgresCounts(database).store(CountBatch("b", "server", "", [alike(minute)], []))
        rolling = Rollups(database, every=0.01)
        catch_up, tries, is_done = rolling.catch_up, 0, asyncio.Event()

        async def failing_at_first() -> bool:
            nonlocal tries
            tries += 1
            if tries <= 2:
                raise ZeroDivisionError
            has_ended = await catch_up()
            is_done.set()
            return has_ended

        monkeypatch.setattr(rolling, "catch_up", failing_at_first)
        task = asyncio.create_task(rolling.run())
        await asyncio.wait_for(is_done.wait(), 60)
        task.cancel()
        await asyncio.wait([task])
        assert await stored_metrics(database)
        assert sum((await stored_metrics(database, "hour")).values()) == 4
        await database.close()

    asyncio.run(run())
    assert caplog.text.count("roll-up of counts failed, retry in 0.01 s: ZeroDivisionError()") == 1


def test_the_first_roll_up_is_not_waited_for(database_url: str) -> None:
    """However seldom it looks, it looks once at the start."""

    async def run() -> None:
        database = Database(database_url)
        await PostgresCounts(database).store(CountBatch("b", "server", "", [alike()], []))
        task = asyncio.create_task(Rollups(database, every=3_600).run())
        async with asyncio.timeout(60):
            while not await stored_metrics(database, "day"):  # noqa: ASYNC110 (the database does not tell)
                await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task])
        await database.close()

    asyncio.run(run())


def test_only_so_many_endpoints_and_users_are_told_apart(database_url: str) -> None:
    """Hours and days have a bounded number of rows however many paths were asked for, and the sums stay exact."""

    async def run() -> None:
        database = Database(database_url)
        number = 0

        async def store(days: int) -> None:
            nonlocal number
            for minute in (START, START + HOUR):
                number += 1
                counts = [
                    alike(minute, f"u{each}", requests=each)._replace(
                        endpoint=f"/{each}" if each else None, charged=("rule", 1), tier="free" if each % 2 else None
                    )
                    for each in range(10)
                ]
                latencies = [LatencyBucket(minute, None, f"/{each}", ("rule",), 3, 1) for each in range(10)]
                await PostgresCounts(database).store(CountBatch(str(number), "server", "", counts, latencies))
            assert await Rollups(database, lambda: START + days * DAY, most=3).catch_up()

        for turn, days in enumerate((1, 1, 20, 20, 450, 450), 1):  # with minutes, without, and without hours
            await store(days)
            for granularity, several in (("hour", 1), ("day", 2)):
                found = await stored_metrics(database, granularity)
                if not found:  # too old
                    continue
                for rule in ("", "rule"):
                    totals: Counter[object] = Counter()
                    for (at, its, endpoint, *_, user, name), value in found.items():
                        if at == START and its == rule and not user:
                            totals[endpoint] += value if name == "total" else 0
                            totals["timed"] += value if name == 3 else 0
                    wanted = {"/9": 9, "/8": 8, "/7": 7, "(other)": 21, "timed": 10}
                    assert +totals == {name: each * turn * several for name, each in wanted.items()}
                assert {str(user) for *_, user, _ in found} == {"", "u9", "u8", "u7"}
        await database.close()

    asyncio.run(run())


def _after(days: int) -> int:
    return START + days * DAY


def test_tiers_that_callers_make_up_are_bounded_in_hours_and_days(database_url: str) -> None:
    """Each minute has tiers of its own: an hour has so many rows, one more for each rule, and the sums stay exact."""

    async def run() -> None:
        database = Database(database_url)
        for minute in range(6):
            counts = [
                alike(START + minute * MINUTE, None)._replace(
                    endpoint="/a", charged=("rule", 1), tier=f"{minute}-{each}"
                )
                for each in range(10)
            ]
            await PostgresCounts(database).store(CountBatch(str(minute), "server", "", counts, []))
        for days in (1, 20, 450):  # with minutes, without, and without hours
            assert await Rollups(database, partial(_after, days), series=7).catch_up()
            for granularity in ("hour", "day"):
                found = await stored_metrics(database, granularity)
                totals = {place[1:4]: number for place, number in found.items() if place[-1] == "total"}
                if totals:
                    assert len(totals) == 7 + 2
                    assert [sum(totals[each] for each in totals if each[0] == rule) for rule in ("", "rule")] == [
                        60,
                        60,
                    ]
        await database.close()

    asyncio.run(run())
