"""The past of the demo is stored by the real sinks: events, counts and usage that agree with each other."""

from __future__ import annotations

import asyncio
from typing import Any

from headgate.adapters.clock import wall_clock
from headgate.adapters.postgres import Database
from headgate.cli.showcase.past import slices, store_past
from headgate.cli.showcase.scenario import read_scenario

DAY = 86_400_000_000
NOON = DAY // 2


async def _stored(url: str) -> tuple[Any, dict[str, Any], list[float]]:
    database = Database(url)
    now = wall_clock()
    wanted = slices(now - (now - NOON) % DAY, 1)  # up to noon: at night fewer rules deny
    shares: list[float] = []

    def done() -> bool:
        shares.append(1)
        return len(shares) < 3

    made = await store_past(read_scenario(), database, wanted, 0.5, done)
    again = await store_past(read_scenario(), database, wanted[:3], 0.5)
    async with database.use() as connection:
        row = await connection.fetchrow(
            """SELECT (SELECT count(*) FROM events) AS events,
                      (SELECT sum(requests) FROM usage_daily WHERE rule = '') AS used,
                      (SELECT sum(total) FROM metrics WHERE rule = '' AND user_id = '') AS counted,
                      (SELECT count(DISTINCT rule) FROM events WHERE decision = 'denied') AS denying,
                      (SELECT count(DISTINCT at) FROM metrics) AS minutes"""
        )
    await database.close()
    assert again.requests == made.requests  # which events are sampled is drawn anew
    return made, dict(row or {}), shares


def test_the_past_adds_up(database_url: str) -> None:
    """Every request is counted, in the metrics and in the usage; stored twice it is there once; it can be ended."""
    made, row, shares = asyncio.run(_stored(database_url))
    assert len(shares) == 3
    assert row["events"] == made.events > 100
    assert row["used"] == row["counted"] == made.requests > 50_000
    assert row["minutes"] == 9
    assert row["denying"] >= 3
