"""A month of synthetic traffic in PostgreSQL, made by the server itself: events, counts, usage."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.adapters.postgres import Database

DAYS = 30
RULES, ENDPOINTS, TIERS = 20, 100, 3
_A_DAY = timedelta(days=1)
_EVENTS = """
INSERT INTO events (at, sequence, id, user_id, api_key, ip, tier, method, endpoint, rule, decision, source, count,
                    "limit", cost, status, retry_after, region, server, latency)
SELECT $1::timestamptz + random() * interval '1 day', n, md5($1::text || n),
       CASE WHEN random() < 0.9 THEN 'user-' || floor($3::int * random() ^ 3)::int END,
       CASE WHEN random() < 0.3 THEN 'key-' || floor(1000 * random())::int END,
       '10.0.0.0'::inet + floor(262144 * random())::int,
       (ARRAY['free', 'pro', 'enterprise'])[1 + floor(3 * random())::int],
       (ARRAY['GET', 'POST'])[1 + floor(2 * random())::int],
       '/api/v1/resource-' || floor(100 * random() ^ 2)::int || '/items/' || floor(10000 * random())::int,
       'rule-' || floor(20 * random() ^ 2)::int, decision, 'store',
       CASE WHEN decision = 'denied' THEN 100 ELSE floor(100 * random())::int END, 100, 1,
       CASE WHEN decision IN ('denied', 'blocked') THEN 429 ELSE 200 END,
       CASE WHEN decision = 'denied' THEN 60 * random() END, 'eu', 'server-' || n % 8, 0.0001 + 0.001 * random() ^ 4
FROM (
    SELECT n, (ARRAY['denied', 'denied', 'denied', 'allowed', 'allowed', 'allowed', 'throttled', 'blocked', 'shadow'])
              [1 + floor(9 * random())::int] AS decision
    FROM generate_series(1, $2::bigint) AS n
) AS drawn
"""
_METRICS = """
INSERT INTO metrics (granularity, at, rule, endpoint, tier, region, user_id, total, allowed, denied, latency)
SELECT $1::text, at, rule, '/api/v1/resource-' || endpoint, tier, 'eu', '', 100, 95, 5,
       array_fill(0, ARRAY[24]) || array_fill(10, ARRAY[12])
FROM generate_series($2::timestamptz, $3::timestamptz - interval '1 second', ('1 ' || $1)::interval) AS at,
     generate_series(0, 99) AS endpoint,
     unnest(ARRAY['free', 'pro', 'enterprise']) AS tier,
     unnest(ARRAY['', 'rule-' || endpoint % 20]) AS rule
"""
_USERS = """
INSERT INTO metrics (granularity, at, region, user_id, total, allowed, denied)
SELECT $1::text, at, 'eu', 'user-' || n, 100, 95, 5
FROM generate_series($2::timestamptz, $3::timestamptz - interval '1 second', ('1 ' || $1)::interval) AS at,
     generate_series(0, 999) AS n
"""
_USAGE = """
INSERT INTO usage_daily (day, user_id, rule, requests, denied, cost)
SELECT $1::date, 'user-' || n, CASE r WHEN 0 THEN '' ELSE 'rule-' || (n + r) % 20 END, 100, 5,
       CASE r WHEN 0 THEN 0 ELSE 95 END
FROM generate_series(0, $2::int - 1) AS n, generate_series(0, 2) AS r
"""


class Month(NamedTuple):
    """Which month it is about, and how much happened."""

    first: datetime
    events: int
    users: int

    @property
    def end(self) -> datetime:
        """Where its last day ends."""
        return self.first + DAYS * _A_DAY


def month_before(now: datetime, events: int) -> Month:
    """The month before the present one; in a month of 31 days the last one is left out."""
    this = datetime(now.year, now.month, 1, tzinfo=UTC)
    before = this - _A_DAY
    # February is shorter than 30 days, so its traffic ends in March.
    return Month(datetime(before.year, before.month, 1, tzinfo=UTC), events, max(100, min(50_000, events // 400)))


async def fill(database: Database, month: Month, done: Callable[[int], None]) -> None:
    """Make it; `done` is told of each day. Minutes are there for the last day only, hours and days for all."""
    async with database.use() as connection:
        for time in (month.first, month.end):
            await connection.fetchval("SELECT make_event_partition($1)", time)
        for day in range(DAYS):
            begin = month.first + day * _A_DAY
            await connection.execute(_EVENTS, begin, month.events // DAYS, month.users, timeout=3_600)
            await connection.execute(_USAGE, begin.date(), month.users, timeout=3_600)
            done(day + 1)
        for granularity in ("hour", "day"):
            for statement in (_METRICS, _USERS):
                await connection.execute(statement, granularity, month.first, month.end, timeout=3_600)
        await connection.execute(_METRICS, "minute", month.end - _A_DAY, month.end, timeout=3_600)
        await connection.execute("ANALYZE", timeout=3_600)
