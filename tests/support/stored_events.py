"""Events in a database, for tests of what becomes of them."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import asyncpg

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

COLUMNS = (
    *("at", "sequence", "id", "user_id", "tenant", "api_key", "ip", "tier", "method", "endpoint", "rule", "decision"),
    *("source", "count", "limit", "cost", "status", "retry_after", "latency", "region", "server", "extra"),
)
ODD = ("", " ", 'comma, and "quotes"', "line\nfeed\r\n", "\\N", "NULL", "näme 漢字 🙂", "'", "\t", "0", "x" * 3_000)


def events(month: str, number: int, seed: int = 0) -> Iterator[tuple[Any, ...]]:
    """Events of a month: some ordinary, some with texts and numbers that are hard to keep."""
    random_ = random.Random(seed)
    start = datetime.fromisoformat(f"{month}-01").replace(tzinfo=UTC)
    for sequence in range(number):
        at = start + timedelta(microseconds=random_.randrange(28 * 86_400 * 10**6) if sequence > 1 else 0)
        odd = random_.choice(ODD) if sequence % 7 == 0 else None
        has_all = sequence % 5 != 0
        yield (
            at,
            sequence,
            f"{random_.getrandbits(128):032x}{odd or ''}",
            odd if odd is not None else f"user_{random_.randrange(1_000)}",
            odd if has_all else None,
            None,
            random_.choice(["192.0.2.7", "2001:db8::1", None]),
            "pro" if has_all else None,
            "GET",
            f"/api/{random_.randrange(50)}",
            "search" if has_all else None,
            random_.choice(["denied", "allowed", "throttled", "blocked", "shadow"]),
            "exact",
            random_.choice([0, 1, 2**62, None]),
            2**53 + 1 if has_all else None,
            1,
            429,
            random_.choice([None, 0.0, 0.1, 1 / 3, 5e-324, 1e300]),
            random_.random(),
            "eu",
            "server-1",
            '{"attributes": {"a": "b,\\n\\"c\\""}, "cost": 1.10}' if sequence % 11 == 0 else None,
        )


async def store(url: str, records: Iterable[tuple[Any, ...]]) -> None:
    """Store events as a sink does: partitions that are missing are made."""
    rows = list(records)
    connection = await asyncpg.connect(url)
    try:
        for month in {row[0].replace(day=1) for row in rows}:
            await connection.execute("SELECT make_event_partition($1)", month)
        await connection.copy_records_to_table("events", columns=COLUMNS, records=rows)
    finally:
        await connection.close()


async def all_events(url: str) -> list[tuple[Any, ...]]:
    """Everything that is stored, in order."""
    columns = ", ".join(f'"{name}"' for name in COLUMNS)
    question = f'SELECT {columns} FROM events ORDER BY at, id COLLATE "C"'  # noqa: S608 (our own words)
    connection = await asyncpg.connect(url)
    try:
        return [tuple(row) for row in await connection.fetch(question)]
    finally:
        await connection.close()
