"""No caller can fill the disk: what is made up in a minute makes a bounded number of rows, and all of it is counted."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any, Final

import pytest

from headgate import Limiter, Request
from headgate.adapters.clock import monotonic
from headgate.adapters.postgres import Database
from headgate.adapters.postgres.count_sink import PostgresCounts
from headgate.adapters.postgres.event_sink import PostgresEvents
from headgate.adapters.spool.batches import encoded
from headgate.core.counts import CountBatch
from headgate.core.event import EventBatch
from headgate.core.ids import new_id
from headgate.core.metric_rows import RowBounds
from headgate.core.thinning import EventBudget
from headgate.dataplane.recorder import Recorder
from headgate.testing import FakeClock
from headgate.wiring import parts

if TYPE_CHECKING:
    from collections.abc import Callable

CALLS: Final = 4_000
BETWEEN_FLUSHES: Final = 500
RULES: Final[list[dict[str, Any]]] = [
    {"name": "addresses", "per": "ip", "limits": "1/hour", "sample": 1},
    {"name": "all", "limits": "1/hour", "layer": "all", "sample": 1},
]
_DIGITS: Final = 30
_LARGEST: Final = 2**40
_SIZES: Final = """
    SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class
    WHERE relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace
"""
_ROWS: Final = ("metrics", "events", "usage_daily", "users", "batches")


class _River:
    """A process that decides, and what becomes of its records: to the spool's bytes, and into the database."""

    def __init__(self, database: Database, clock: FakeClock) -> None:
        self.recorder = Recorder(clock, monotonic)
        self.limiter = Limiter(*parts("memory://", RULES, clock), observer=self.recorder)
        self.spooled = 0
        self._database = database
        self._counts = PostgresCounts(database)
        self._events = PostgresEvents(database, clock)

    async def take(self, request: Request) -> None:
        assert self.limiter.check_now is not None
        self.limiter.check_now(request, None)

    async def flush(self, *, is_last: bool = False) -> None:
        events = EventBatch(new_id(), "host-1", "", self.recorder.take_events(is_last=is_last))
        counts = CountBatch(new_id(), "host-1", "", *self.recorder.take_counts())
        for batch in (events, counts):
            payloads, lost = encoded(batch, _LARGEST)
            assert not lost
            self.spooled += sum(len(payload) for _, payload in payloads)
        await self._events.store(events)
        await self._counts.store(counts)


async def _rows(database: Database) -> dict[str, int]:
    async with database.use() as connection:
        return {name: await connection.fetchval(f"SELECT count(*) FROM {name}") for name in _ROWS}  # noqa: S608 (ours)


async def _asked(database: Database, column: str) -> dict[str, int]:
    """What the minutes add up to, by rule."""
    async with database.use() as connection:
        rows = await connection.fetch(
            f"SELECT rule, sum({column})::bigint AS number FROM metrics WHERE user_id = '' GROUP BY rule"  # noqa: S608 (ours)
        )
    return {row["rule"]: row["number"] for row in rows}


def _address(drawn: random.Random) -> str:
    return ".".join(str(drawn.randrange(1, 255)) for _ in range(4))


def _path(drawn: random.Random) -> str:
    return f"/{drawn.getrandbits(4 * _DIGITS):x}"


def _anonymous(drawn: random.Random) -> Request:
    """Refused after the first, on a path that no other has."""
    return Request(ip="203.0.113.9", path=_path(drawn), method="GET")


def _botnet(drawn: random.Random) -> Request:
    """Each from an address of its own."""
    return Request(ip=_address(drawn), path=_path(drawn), method="GET")


def _stated(drawn: random.Random) -> Request:
    """A request of a caller that may state users and tiers, with names of any number and any length."""
    text = f"{drawn.getrandbits(64):x}" * drawn.choice((1, 1, 1, 500))
    return Request(
        user=text, tenant=text, api_key=text, ip=_address(drawn), tier=text, path=f"/{text}", method=text[:20],
        attributes={"a": text}, cost=drawn.randrange(10**9),
    )  # fmt: skip


@pytest.mark.parametrize("made_up", [_anonymous, _botnet, _stated])
def test_what_is_made_up_in_a_minute_makes_a_bounded_number_of_rows(
    database_url: str, made_up: Callable[[random.Random], Request]
) -> None:
    """Rows and bytes are bounded, a second wave in the same minute adds next to nothing, and all calls are counted."""

    async def run() -> None:
        database, drawn, clock = Database(database_url), random.Random(13), FakeClock()
        river = _River(database, clock)
        at_first = await _size(database)
        sizes, rows, spooled = [], [], []
        for _ in range(2):
            for number in range(1, CALLS + 1):
                await river.take(made_up(drawn))
                if number % BETWEEN_FLUSHES == 0:
                    await river.flush(is_last=number == CALLS)
            sizes.append(await _size(database))
            rows.append(await _rows(database))
            spooled.append(river.spooled)
        bounds, budget = RowBounds(), EventBudget()
        assert rows[1]["metrics"] <= bounds.series + len(RULES) + 1 + bounds.users
        assert rows[1]["events"] <= 2 * 2 * budget.overall  # two minutes, by its own clock, of few digits more
        assert rows[1]["users"] == 0
        assert rows[1]["metrics"] - rows[0]["metrics"] <= rows[0]["metrics"] / 20
        assert sizes[1] - at_first < 2 * 2 * CALLS * 1_000
        asked = await _asked(database, "total")
        assert asked == dict.fromkeys(("", "addresses", "all"), 2 * CALLS)
        assert (await _asked(database, "denied + allowed"))[""] == 2 * CALLS
        if made_up is not _stated:
            assert spooled[1] - spooled[0] < spooled[0]
            assert rows[1]["usage_daily"] == 1 + len(RULES)
            assert sizes[1] - sizes[0] < (sizes[0] - at_first) / 2 + 200_000
        recorder = river.recorder
        assert (recorder.dropped, recorder.waiting, recorder.emitted) == (0, 0, rows[1]["events"])
        assert await _stood_for(database) + recorder.left_out == 2 * CALLS
        await database.close()

    asyncio.run(run())


async def _size(database: Database) -> int:
    async with database.use() as connection:
        size: int = await connection.fetchval(_SIZES)
    return size


async def _stood_for(database: Database) -> int:
    """How many decisions the events stand for."""
    async with database.use() as connection:
        number: int = await connection.fetchval(
            "SELECT coalesce(sum(coalesce((extra ->> 'stands_for')::bigint, 1)), 0)::bigint FROM events"
        )
    return number
