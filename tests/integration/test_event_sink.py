"""Events in PostgreSQL: each once, whatever is in them and whatever happens to the server."""

from __future__ import annotations

import asyncio
import tracemalloc
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.spool import AT, batch, batch_of, event

from headgate.adapters.clock import wall_clock
from headgate.adapters.postgres import Database
from headgate.adapters.postgres.event_rows import COLUMNS, copied
from headgate.adapters.postgres.event_sink import PostgresEvents
from headgate.core.event import EventKind
from headgate.core.ids import new_id
from headgate.core.units import DAY
from headgate.errors import SinkError
from headgate.ports import SinkResult

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.support.postgres import Postgres

    from headgate.core.event import Event, EventBatch

_PATIENCE = 60.0


def _with_sink(
    postgres: Postgres, body: Callable[[PostgresEvents, Database], Awaitable[None]], seconds: float = 10.0
) -> None:
    async def run() -> None:
        database = Database(postgres.new_database(), seconds=seconds)
        try:
            await body(PostgresEvents(database, wall_clock), database)
        finally:
            await database.close()

    asyncio.run(run())


async def _rows(database: Database, sql: str = "SELECT * FROM events ORDER BY at, sequence") -> list[Any]:
    async with database.use() as connection:
        return [dict(row) for row in await connection.fetch(sql)]


async def _stored_in_the_end(sink: PostgresEvents, made: EventBatch) -> SinkResult:
    """As `Exporter` does it: again and again, while the sink fails."""
    async with asyncio.timeout(_PATIENCE):
        while True:
            try:
                return await sink.store(made)
            except SinkError:
                await asyncio.sleep(0.05)


def test_a_batch_is_stored_with_everything_in_it(postgres: Postgres) -> None:
    """Every field of an event has its column; a month that has no partition gets one."""

    async def body(sink: PostgresEvents, database: Database) -> None:
        extra = {"attributes": {"colour": "blue"}, "cost": 3}
        sent = event(5, tenant="acme", api_key="k1", ip="2001:db8::1", extra=extra, retry_after=None)
        assert await sink.store(batch_of(sent)) == SinkResult(1)
        (row,) = await _rows(database)
        assert str(row.pop("ip").ip if hasattr(row["ip"], "ip") else row.pop("ip")) == "2001:db8::1"
        at = row.pop("at")
        assert round(at.timestamp() * 1e6) == sent.at
        assert row == {
            "sequence": 5, "id": "d5", "user_id": "u5", "tenant": "acme", "api_key": "k1", "tier": "free",
            "method": "GET", "endpoint": "/api/search", "rule": "search", "decision": "denied", "source": "store",
            "count": 10, "limit": 10, "cost": 1, "status": 429, "retry_after": None, "region": "eu",
            "server": "host-1", "latency": 0.0001, "extra": extra,
        }  # fmt: skip

    _with_sink(postgres, body)


_TEXTS = st.none() | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
_NUMBERS = st.none() | st.integers(-(2**63), 2**63 - 1)
_SECONDS = st.none() | st.floats(allow_nan=False)
_EVENTS = st.builds(
    event,
    user=_TEXTS,
    tenant=_TEXTS,
    api_key=_TEXTS,
    ip=st.none() | st.ip_addresses().map(str),
    tier=_TEXTS,
    method=_TEXTS,
    endpoint=_TEXTS,
    rule=_TEXTS,
    decision=st.sampled_from(EventKind).map(str),
    source=_TEXTS,
    used=_NUMBERS,
    limit=_NUMBERS,
    cost=_NUMBERS,
    status=st.none() | st.integers(-(2**31), 2**31 - 1),
    retry_after=_SECONDS,
    latency=_SECONDS,
    extra=st.none() | st.dictionaries(_TEXTS.filter(bool), _TEXTS | st.booleans() | st.integers(), max_size=2),
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(_EVENTS, min_size=1, max_size=20), _TEXTS, st.integers(0, 300))
def test_what_was_stored_is_what_was_sent(
    database_url: str, events: list[Event], region: str | None, days: int
) -> None:
    """Whatever an event holds is found in the table as it was, in the form in which all of a batch is copied."""

    async def run() -> None:
        database = Database(database_url)
        try:
            sent = [each._replace(id=new_id(), at=AT + days * DAY + n, sequence=n) for n, each in enumerate(events)]
            made = batch_of(*sent)._replace(region=region or "")
            await database.row("batches.make_partition", _time(sent[0].at))
            async with database.transaction() as writing:
                await writing.copy_bytes("events", COLUMNS, copied(made))
            async with database.use() as connection:
                found = await connection.fetch(
                    f"SELECT {', '.join(map(_quoted, COLUMNS))} FROM events WHERE id = ANY ($1) ORDER BY sequence",  # noqa: S608 (our own names)
                    [each.id for each in sent],
                )
            rows = [tuple(row) for row in found]
            at, ip = COLUMNS.index("at"), COLUMNS.index("ip")
            expected = [(_time(each.at), *each[1:], made.region, made.server) for each in sent]
            assert [row[at] for row in rows] == [row[at] for row in expected]
            assert [row[ip] and str(row[ip]).partition("/")[0] for row in rows] == [row[ip] for row in expected]
            assert [row[1:ip] + row[ip + 1 :] for row in rows] == [row[1:ip] + row[ip + 1 :] for row in expected]
        finally:
            await database.close()

    asyncio.run(run())


def _time(at: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at)


def _quoted(name: str) -> str:
    return f'"{name}"'


def test_a_batch_is_stored_once(postgres: Postgres) -> None:
    """A batch whose id was stored is stored; nothing of it comes twice."""

    async def body(sink: PostgresEvents, database: Database) -> None:
        made = batch(0, 100)
        assert await asyncio.gather(*(sink.store(made) for _ in range(4))) == [SinkResult(100)] * 4
        assert len(await _rows(database)) == 100

    _with_sink(postgres, body)


@pytest.mark.parametrize(
    ("poison", "kept"),
    [
        (event(1, user="a\0b"), {"user_id": "a\N{REPLACEMENT CHARACTER}b"}),
        (event(1, endpoint="/\ud800"), {"endpoint": "/?"}),
        (event(1, ip="unknown"), {"ip": None, "extra": {"ip": "unknown"}}),
        (event(1, ip="fe80::1%eth0"), {"extra": None}),
        (event(1, cost=2**70), {"cost": 2**63 - 1}),
        (event(1, status=2**40), {"status": 2**31 - 1}),
        (event(1, extra={"attributes": {"a\0": ["\0"]}}), {"extra": {"attributes": {"a\ufffd": ["\ufffd"]}}}),
        (event(1, user="\N{SNOWMAN}" * 9_999), {"user_id": None, "extra": {"user": "\N{SNOWMAN}" * 9_999}}),
        (event(1, at=AT + 400 * DAY), {"id": "d1"}),
    ],
)
def test_what_can_be_stored_in_another_form_is(postgres: Postgres, poison: Event, kept: dict[str, Any]) -> None:
    """A value that PostgreSQL has no form for costs no event, least of all another."""

    async def body(sink: PostgresEvents, database: Database) -> None:
        assert await sink.store(batch_of(event(0), poison, event(2))) == SinkResult(3)
        by_number = {row["sequence"]: row for row in await _rows(database)}
        assert len(by_number) == 3
        assert {name: by_number[1][name] for name in kept} == kept

    _with_sink(postgres, body)


@pytest.mark.parametrize(
    "poison",
    [
        *(event(1, decision="perhaps"), event(1, at=10**30), event(1, decision=None), event(1, user=7), event(0)),
        *(event(1, user=[7]), event(1, at="noon")),
    ],
)
def test_what_cannot_be_stored_is_refused_alone(postgres: Postgres, poison: Event) -> None:
    """Nothing else is lost for an event that no database can take."""

    async def body(sink: PostgresEvents, database: Database) -> None:
        made = batch_of(*(event(number) for number in range(10)), poison, *(event(20 + each) for each in range(10)))
        made = made._replace(events=[each._replace(id=f"{each.id}") for each in made.events])
        assert await sink.store(made) == SinkResult(20, 1)
        assert await sink.store(made) == SinkResult(21)  # it was stored, and is not examined again
        assert len(await _rows(database)) == 20

    _with_sink(postgres, body)


def test_a_batch_from_nowhere_is_refused_and_delays_no_other(postgres: Postgres) -> None:
    """Where not even the region is a text, nothing of a batch can be stored, and that is the end of it."""

    async def body(sink: PostgresEvents, _database: Database) -> None:
        assert await sink.store(batch(0, 3)._replace(region=5)) == SinkResult(0, 3)  # type: ignore[arg-type] # as it may be in a file
        assert await sink.store(batch(3, 3)) == SinkResult(3)

    _with_sink(postgres, body)


def test_long_texts_are_not_remembered() -> None:
    """Callers choose their paths: what is kept of them does not grow with their length."""

    async def run() -> None:
        for number in range(3_000):
            path = f"/{number}" + "x" * 10 * (number % 200)
            assert path.encode() in b"".join([part async for part in copied(batch_of(event(endpoint=path)))])

    tracemalloc.start()
    try:
        asyncio.run(run())
        assert tracemalloc.get_traced_memory()[0] < 3_000_000
    finally:
        tracemalloc.stop()


def test_a_frozen_server_loses_nothing_and_stores_nothing_twice(postgres: Postgres) -> None:
    """While it is frozen the sink fails; what was in doubt then is stored once."""

    async def body(sink: PostgresEvents, database: Database) -> None:
        await _stored_in_the_end(sink, batch(0, 10))
        postgres.freeze()
        try:
            with pytest.raises(SinkError, match="does not answer"):
                await sink.store(made := batch(10, 1_000))
        finally:
            postgres.thaw()
        assert await _stored_in_the_end(sink, made) == SinkResult(1_000)
        assert await _rows(database, "SELECT count(*) AS n, count(DISTINCT id) AS d FROM events") == [
            {"n": 1_010, "d": 1_010}
        ]

    _with_sink(postgres, body, seconds=2.0)


def test_connections_that_are_cut_lose_nothing_and_store_nothing_twice(postgres: Postgres) -> None:
    """Whenever a connection ends, in the middle of a batch or behind it."""

    async def body(sink: PostgresEvents, database: Database) -> None:
        url = database._address.url
        cutting = Database(url)
        cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = "
        await sink.store(batch(0, 1))
        await _rows(cutting, cut + "'nothing'")
        for number in range(20):
            storing = asyncio.create_task(_stored_in_the_end(sink, batch(1_000 * (number + 1), 500)))
            await asyncio.sleep(0.001 * number)
            await _rows(cutting, cut + "'client backend' AND datname = current_database()")
            assert await storing == SinkResult(500)
        # On the connection that was never cut: the other one may not have noticed yet.
        counted = await _rows(cutting, "SELECT count(*) AS n, count(DISTINCT id) AS d FROM events")
        await cutting.close()
        assert counted == [{"n": 10_001, "d": 10_001}]

    _with_sink(postgres, body)


def test_a_database_that_is_not_prepared_is_waited_for(postgres: Postgres) -> None:
    """Without its tables nothing is refused: it may be migrated later."""

    async def run() -> None:
        database = Database(postgres.new_database(empty=True))
        with pytest.raises(SinkError, match="db migrate"):
            await PostgresEvents(database, wall_clock).store(batch(0, 1))
        await database.close()

    asyncio.run(run())
