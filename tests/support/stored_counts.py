"""What the tables of counts hold, in the form in which it is counted again."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime, time, timedelta
from typing import TYPE_CHECKING, Any

import asyncpg

if TYPE_CHECKING:
    from tests.support.recounts import Recount

    from headgate.adapters.postgres import Database

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBERS = ("total", "allowed", "denied", "throttled", "blocked", "shadow", "degraded")


def micros(instant: datetime) -> int:
    """A time, as the core has it."""
    return (instant - _EPOCH) // timedelta(microseconds=1)


async def cut_off(writing: Any) -> None:  # noqa: ANN401 (statements)
    """Have the server end the connection that statements are on, in the middle of a transaction."""
    with suppress(asyncpg.PostgresConnectionError):
        await writing._given.execute("SELECT pg_terminate_backend(pg_backend_pid())")


async def stored_metrics(database: Database, granularity: str = "minute") -> Recount:
    """All rows of a granularity."""
    async with database.use() as connection:
        rows = await connection.fetch("SELECT * FROM metrics WHERE granularity = $1", granularity)
    found: Recount = Counter()
    for row in rows:
        place = (micros(row["at"]), *(row[name] for name in ("rule", "endpoint", "tier", "region", "user_id")))
        for name in _NUMBERS:
            found[*place, name] += row[name]
        for bucket, times in enumerate(row["latency"]):
            found[*place, bucket] += times
    return +found


async def billed(database: Database) -> Counter[str]:
    """The requests of each user, as they would be billed."""
    requests: Counter[str] = Counter()
    for (_, user, rule, name), number in (await stored_usage(database)).items():
        if (rule, name) == ("", "requests"):
            requests[str(user)] += number
    return requests


async def stored_usage(database: Database) -> Recount:
    """All of users' days."""
    async with database.use() as connection:
        rows = await connection.fetch("SELECT * FROM usage_daily")
    found: Recount = Counter()
    for row in rows:
        day = micros(datetime.combine(row["day"], time(), UTC))
        for name in ("requests", "denied", "cost"):
            found[day, row["user_id"], row["rule"], name] += row[name]
    return +found
