"""Counts in a real PostgreSQL: exact, whatever happens on the way."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.recounts import START, alike, batches, metrics_of, usage_of
from tests.support.stored_counts import cut_off, stored_metrics, stored_usage

from headgate.adapters.postgres import Database
from headgate.adapters.postgres.count_sink import PostgresCounts, array_of_numbers, array_of_texts
from headgate.core.counts import OTHER, CountBatch, KeyCount, LatencyBucket
from headgate.core.metric_rows import RowBounds
from headgate.core.units import DAY
from headgate.errors import DatabaseError, SinkError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.postgres import Postgres

    from headgate.core.counts import Count

_EMPTY = "TRUNCATE metrics, usage_daily, batches, stale_metrics, pruned_metrics"


async def _empty(database: Database) -> None:
    async with database.use() as connection:
        await connection.execute(_EMPTY)


class _Cut:
    """A database whose connection is lost in the middle of a transaction, or just after it was kept."""

    def __init__(self, database: Database, where: str) -> None:
        self._database = database
        self._where = where

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        async with self._database.transaction() as writing:
            yield _CutStatements(writing, self._where)
        if self._where == "kept":
            msg = "the answer was lost"
            raise DatabaseError(msg, transient=True, perhaps_done=True)


class _CutStatements:
    def __init__(self, writing: Any, where: str) -> None:  # noqa: ANN401 (statements)
        self._writing = writing
        self._where = where

    async def row(self, statement: str, *arguments: object) -> object:
        return await self._writing.row(statement, *arguments)

    async def rows(self, statement: str, *arguments: object) -> object:
        return await self._writing.rows(statement, *arguments)

    async def run(self, statement: str, *arguments: object) -> None:
        if statement == self._where:
            await cut_off(self._writing)
        await self._writing.run(statement, *arguments)


_CUTS = st.sampled_from(["", "", "counts.add_metrics", "counts.note", "counts.add_usage", "kept"])


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(st.tuples(batches(), st.lists(_CUTS, max_size=2)), max_size=4))
def test_tables_equal_a_recount_also_after_crashes(database_url: str, plan: list[tuple[CountBatch, list[str]]]) -> None:
    """Batches that were cut off in the middle, or whose answer was lost, are sent again and counted once."""

    async def run() -> None:
        database = Database(database_url)
        await _empty(database)
        for number, (made, cuts) in enumerate(plan):
            batch = made._replace(id=str(number))
            for cut in cuts:
                sink = PostgresCounts(_Cut(database, cut))  # type: ignore[arg-type] # what a sink needs of it
                try:
                    assert await sink.store(batch) == (batch.size, 0)
                except SinkError as error:
                    assert "counts wait" in str(error)  # noqa: PT017 (it need not be raised)
            assert await PostgresCounts(database).store(batch) == (batch.size, 0)
        several = [batch for batch, _ in plan]
        assert await stored_metrics(database) == metrics_of(several)
        assert await stored_usage(database) == usage_of(several)
        await database.close()

    asyncio.run(run())


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(batches(), min_size=1, max_size=6), st.data())
def test_batches_that_come_together_are_added_once(
    database_url: str, several: list[CountBatch], data: st.DataObject
) -> None:
    """Also those that came before, together with others: of these only what is new is added."""

    async def run() -> None:
        database = Database(database_url)
        await _empty(database)
        sink, named = PostgresCounts(database), [each._replace(id=str(number)) for number, each in enumerate(several)]
        for _ in range(2):
            some = data.draw(st.lists(st.sampled_from(named), unique_by=lambda each: each.id))
            assert await sink.store(*some) == (sum(each.size for each in some), 0)
        assert await sink.store(*named) == (sum(each.size for each in named), 0)
        assert await stored_metrics(database) == metrics_of(named)
        assert await stored_usage(database) == usage_of(named)
        await database.close()

    asyncio.run(run())


def _mixed(number: int) -> CountBatch:
    """A batch of many rows in an order of its own; each two of them have the same id and contents."""
    turn, kinds = number // 2, ("allowed", "denied", "blocked", "throttled")
    counts = [alike(START, f"u{(3 * each + turn) % 40}", kinds[each % 4], 2) for each in range(60)]
    return CountBatch(f"b{turn}", "server", "eu", counts, [LatencyBucket(START, None, "/a", (), turn % 3, 1)])


def test_processes_store_at_once_without_waiting_in_a_circle(postgres: Postgres) -> None:
    """Eight sinks add to the same rows, and each sends some batches that another has sent: all is counted once."""

    async def run() -> None:
        url = postgres.new_database()
        databases = [Database(url) for _ in range(8)]
        several = [_mixed(number) for number in range(64)]
        batches_of = [several[number::8] for number in range(8)]

        async def store(database: Database, mine: list[CountBatch]) -> None:
            for batch in mine:
                await PostgresCounts(database).store(batch)

        await asyncio.gather(*map(store, databases, batches_of))
        assert await stored_usage(databases[0]) == usage_of(several[::2])
        assert await stored_metrics(databases[0]) == metrics_of(several[::2])
        for database in databases:
            await database.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("user", "endpoint", "kept"),
    [
        ("bad\0name", "/a\0b", ("", "/a�b")),
        ("half\ud800", "/\ud800", ("", "/�")),
        ("x" * 256, "/" + "ü" * 3_000, ("", "/" + "ü" * 499)),
        ("𓀀" * 255, "/" + "𓀀" * 3_000, ("𓀀" * 255, "/" + "𓀀" * 249)),
    ],
)
def test_texts_that_cannot_be_stored_lose_no_count(
    database_url: str, user: str, endpoint: str, kept: tuple[str, str]
) -> None:
    """Paths are cleaned and cut, and a user whose name does not fit is counted without a name."""

    async def run() -> None:
        database = Database(database_url)
        count = alike(START, user, requests=10**9)._replace(
            tier=endpoint * 2, endpoint=endpoint, charged=("a\0" * 300, 10**12)
        )
        bucket = LatencyBucket(START, endpoint, endpoint, ("a\0" * 300,), 1, 1)
        batch = CountBatch("\0", "server", "\ud800", [count], [bucket])
        for _ in range(2):
            assert await PostgresCounts(database).store(batch) == (2, 0)
        assert {place[1] for place in await stored_usage(database)} == {kept[0]}
        found = await stored_metrics(database)
        assert {place[2] for place in found if not place[5]} == {kept[1]}
        assert {number for place, number in found.items() if place[-1] == "total"} == {10**9}
        await database.close()

    asyncio.run(run())


def test_one_name_that_cannot_be_stored_costs_the_others_nothing(database_url: str) -> None:
    """Of many users with the same requests, only those whose names do not fit are counted without a name."""

    async def run() -> None:
        database = Database(database_url)
        users = {None: 1, "": 2, "bad\0name": 3, "x" * 256: 4, "u1": 5, "u2": 6}
        batch = CountBatch("b", "server", "", [alike()._replace(users=users)], [])
        assert await PostgresCounts(database).store(batch) == (6, 0)
        found = {place[1]: number for place, number in (await stored_usage(database)).items() if place[3] == "requests"}
        assert found == {"": 10, "u1": 5, "u2": 6}
        await database.close()

    asyncio.run(run())


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))), st.lists(st.integers()))
def test_an_array_is_read_as_it_was_written(database_url: str, texts: list[str], numbers: list[int]) -> None:
    """Quotes, commas, braces, spaces and the word null in a text are parts of it, and a number has all its digits."""

    async def run() -> None:
        database = Database(database_url)
        try:
            async with database.use() as connection:
                assert await connection.fetchval("SELECT ($1::text)::text[]", array_of_texts(texts)) == texts
                found = await connection.fetchval("SELECT ($1::text)::numeric[]", array_of_numbers(numbers))
                assert found == numbers
        finally:
            await database.close()

    asyncio.run(run())


def test_a_text_with_a_zero_character_is_in_no_array() -> None:
    """It would be two of them."""
    with pytest.raises(ValueError, match="zero character"):
        array_of_texts(["a\0b"])


async def _number(database: Database, condition: str) -> int:
    async with database.use() as connection:
        number: int = await connection.fetchval(f"SELECT count(*) FROM metrics WHERE {condition}")  # noqa: S608 (ours)
        return number


def test_random_paths_of_many_batches_make_a_bounded_number_of_rows(database_url: str) -> None:
    """Two sinks store what callers make up in one minute: the rows are bounded in all, a second wave adds none."""

    async def run() -> None:
        database = Database(database_url)
        sinks = [PostgresCounts(database), PostgresCounts(database)]
        numbers, waves, bounds = itertools.count(), list[CountBatch](), RowBounds()
        for _ in range(2):
            for sink in sinks * 2:
                batch = CountBatch(str(next(numbers)), "server", "", [_made_up(next(numbers)) for _ in range(800)], [])
                waves.append(batch)
                await sink.store(batch)
            rows = await _number(database, "true")
            assert await _number(database, "user_id = '' AND rule = '' AND endpoint <> '(other)'") == bounds.endpoints
            assert await _number(database, "user_id <> ''") == bounds.users
            assert rows == 2 * (bounds.endpoints + 1) + bounds.users
            if len(waves) == len(sinks) * 2:
                first = rows
        assert rows == first
        found = await stored_metrics(database)
        for rule in ("", "wide"):
            denied = [
                number for place, number in found.items() if (place[1], place[5], place[6]) == (rule, "", "denied")
            ]
            assert sum(denied) == 800 * len(waves)
        await database.close()

    asyncio.run(run())


def _made_up(number: int) -> Count:
    """One refused call that is like no other."""
    return alike(START, f"u{number}", "denied")._replace(endpoint=f"/{number}", charged=("wide", 1), rule="wide")


def test_a_day_has_so_many_users_and_the_rest_are_counted_together(database_url: str) -> None:
    """Those who are there are counted as before, and all of a day's requests, denials and costs are in its rows."""

    async def run() -> None:
        database = Database(database_url)
        sinks = [PostgresCounts(database, users_per_day=5), PostgresCounts(database, users_per_day=5)]
        for number in range(12):
            users: dict[str | None, int] = {f"u{number}-{each}": each for each in range(1, 3)}
            count = alike()._replace(
                users=users | {None: 1, "u0": 1}, charged=("a", 2), kind="denied" if number % 2 else "allowed", rule="a"
            )
            await sinks[number % 2].store(CountBatch(str(number), "server", "", [count], []))
        found = await stored_usage(database)
        assert {str(place[1]) for place in found} - {"", OTHER} == {"u0", "u0-1", "u0-2", "u1-1", "u1-2"}
        for rule in ("", "a"):
            assert sum(number for place, number in found.items() if place[2:] == (rule, "requests")) == 12 * 5
            assert sum(number for place, number in found.items() if place[2:] == (rule, "denied")) == 6 * 5
        assert found[START, "u0", "", "requests"] == 12
        assert found[START, OTHER, "a", "cost"] == 2 * 3 * 5
        await database.close()

    asyncio.run(run())


def test_a_time_that_no_calendar_has_is_refused(database_url: str) -> None:
    """It can never be stored, and keeps nothing else from being."""

    async def run() -> None:
        database = Database(database_url)
        good = alike(user=None)
        bad = [good._replace(minute=10**18, users={"u1": 1, "u2": 1}), good._replace(minute=-60)]
        latencies = [LatencyBucket(minute, None, "/a", (), 1, 1) for minute in (START, 10**18)]
        batch = CountBatch("b", "server", "", [good, *bad], latencies)
        assert await PostgresCounts(database).store(batch) == (2, 4)
        assert await PostgresCounts(database).store(CountBatch("nothing", "server", "", [], [])) == (0, 0)
        assert sum((await stored_usage(database)).values()) == 1
        await database.close()

    asyncio.run(run())


def test_no_sum_is_too_much(database_url: str) -> None:
    """Costs beyond what a column holds stay at the most that there can be, and counting goes on."""

    async def run() -> None:
        database = Database(database_url)
        count = alike(requests=10**8)._replace(charged=("a", 10**12))
        for number in range(2):
            await PostgresCounts(database).store(CountBatch(str(number), "server", "", [count], []))
        assert (await stored_usage(database))[START, "u1", "a", "cost"] == 2**63 - 1
        await database.close()

    asyncio.run(run())


def test_an_unavailable_database_is_a_sink_that_waits() -> None:
    """Counts stay where they are until it has recovered."""

    async def run() -> None:
        sink = PostgresCounts(Database("postgresql://me:secret@/none?host=/nowhere"))
        with pytest.raises(SinkError, match="counts wait to be stored") as caught:
            await sink.store(CountBatch("b", "server", "", [], []))
        assert "secret" not in str(caught.value)
        await sink.close()

    asyncio.run(run())


def test_requests_of_api_keys_are_added_to_their_days_and_totals(database_url: str) -> None:
    """Keys on record have rows and a total, all others are one row; a batch that comes twice is added once."""

    async def run() -> None:
        database = Database(database_url)
        async with database.use() as connection:
            await connection.execute("TRUNCATE key_usage_daily")
            key = await connection.fetchval(
                "INSERT INTO api_keys (hash, prefix, created_by) VALUES (sha256('k'), 'hg_k', 'ann') RETURNING id::text"
            )
        day = START - START % DAY
        unknown = "018f6f8e-0000-4000-8000-000000000000"
        counts = [KeyCount(day, key, 5, 2), KeyCount(day, key, 1, 0), KeyCount(day + DAY, key, 7, 0)]
        foreign = [
            KeyCount(day, "sha256:4e07408562bedb8b", 3, 1),
            KeyCount(day, unknown, 4, 0),
            KeyCount(-DAY, key, 1, 0),
        ]
        batch = CountBatch("keys", "server", "", [], [], (*counts, *foreign))
        sink = PostgresCounts(database)
        assert await sink.store(batch) == (5, 1)
        assert await sink.store(batch) == (5, 1)
        async with database.use() as connection:
            rows = await connection.fetch(
                "SELECT api_key, requests, denied FROM key_usage_daily ORDER BY day, requests"
            )
            assert [tuple(row) for row in rows] == [(key, 6, 2), (OTHER, 7, 1), (key, 7, 0)]
            total = await connection.fetchval("SELECT requests FROM key_records_counted WHERE id = $1::text::uuid", key)
            assert total == 13
            await connection.execute("DELETE FROM api_keys; TRUNCATE key_usage_daily")
        await database.close()

    asyncio.run(run())
