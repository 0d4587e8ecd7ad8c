"""A database with something of everything, to be backed up, and what is in it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from tests.integration.accounts import Accounts, with_accounts

from headgate.adapters.postgres import Database
from headgate.backup.table_copies import kept_tables

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_EVENTS = """
INSERT INTO events (at, id, user_id, ip, decision, extra)
SELECT '2026-01-15 00:00Z'::timestamptz + n * interval '1 hour', 'd' || n, E'tab\\t, back\\\\slash, ünï, \\\\N',
       '203.0.113.9', 'denied', '{"route": "/a\\n\\"b\\""}'
FROM generate_series(1, $1::int) AS n"""
_OTHERS = (
    "INSERT INTO metrics (at, granularity, rule, total, latency) VALUES (now(), 'minute', 'search', 7, '{1,2,NULL}')",
    "INSERT INTO usage_daily (day, user_id, requests) VALUES ('2026-01-15', 'u1', 12)",
    "INSERT INTO batches (id) VALUES ('b-1'), ('b-2')",
)


class Secrets(NamedTuple):
    """What only its owner knows."""

    key: str
    token: str


def fill(url: str, events: int = 1_500) -> Secrets:
    """Put something into every table, in services' own ways where there are some."""
    made: list[Secrets] = []

    async def go(accounts: Accounts) -> None:
        await accounts.users.create({"id": "u1", "tier": "premium", "overrides": {"search": "9/day"}}, "me")
        _, key = await accounts.keys.create({"user": "u1", "limits": {"export": "2/minute"}}, "me")
        old, _ = await accounts.keys.create({"user": "u1"}, "me")
        await accounts.keys.rotate(str(old.id), "me")
        await accounts.blocks.create({"network": "192.0.2.0/24", "reason": "abuse"}, "me")
        _, token = await accounts.access.create({"name": "ci", "role": "operator"}, "me")
        for month in range(1, 5):
            await accounts.sql(f"SELECT make_event_partition('2026-{month:02}-01Z')")
        await accounts.sql(_EVENTS, events)
        for sql in _OTHERS:
            await accounts.sql(sql)
        made.append(Secrets(key, token))

    with_accounts(url, go)
    return made[0]


def contents(url: str) -> Mapping[str, Sequence[str]]:
    """Every row of every table that a backup keeps, but not which lineage it is."""

    async def read() -> Mapping[str, Sequence[str]]:
        database = Database(url, seconds=300)
        try:
            async with database.use() as connection:
                return {
                    table: [row[0] for row in await connection.fetch(f"SELECT t::text FROM {table} t ORDER BY 1")]  # noqa: S608 (ours)
                    for table in kept_tables()
                    if table != "lineage"
                }
        finally:
            await database.close()

    return asyncio.run(read())


def execute(url: str, sql: str) -> list[tuple[object, ...]]:
    """Ask the database something."""

    async def ask() -> list[tuple[object, ...]]:
        database = Database(url, seconds=300)
        try:
            async with database.use() as connection:
                return [tuple(row.values()) for row in await connection.fetch(sql)]
        finally:
            await database.close()

    return asyncio.run(ask())
