"""Callers who make everything up, against a whole service: what it stores is bounded, and nothing is miscounted."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import httpx
from tests.support.service import Service

from headgate.adapters.postgres import Database
from headgate.core.metric_rows import RowBounds

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.chaos.figures import Figures
    from tests.support.postgres import Postgres
    from tests.support.valkey import Server

_FULL: Final = os.environ.get("CHAOS") == "full"
SECONDS: Final = 600.0 if _FULL else 20.0
CONNECTIONS: Final = 4
TOGETHER: Final = 500
RULES: Final = "rules:\n  - {name: addresses, per: [ip], limits: 1/day}\n  - {name: all, limits: 1/day, layer: all}\n"
_RULES: Final = 2
_PATIENCE: Final = 120.0


def _made_up(drawn: random.Random) -> dict[str, str]:
    """A call like no other."""
    address = ".".join(str(drawn.randrange(1, 255)) for _ in range(4))
    return {"path": f"/{drawn.getrandbits(120):x}", "ip": drawn.choice((address, "203.0.113.9")), "method": "GET"}


def _attack(url: str, until: float, seed: int) -> int:
    """Calls that were answered."""
    drawn, answered = random.Random(seed), 0
    with httpx.Client(base_url=url, timeout=_PATIENCE) as http:
        while time.monotonic() < until:
            answer = http.post("/v1/check:batch", json={"checks": [_made_up(drawn) for _ in range(TOGETHER)]})
            answered += TOGETHER if answer.status_code == httpx.codes.OK else 0
    return answered


def _wave(service: Service, number: int) -> int:
    until = time.monotonic() + SECONDS
    with ThreadPoolExecutor(CONNECTIONS) as threads:
        seeds = range(number * CONNECTIONS, (number + 1) * CONNECTIONS)
        return sum(threads.map(lambda seed: _attack(service.url, until, seed), seeds))


def _asked(url: str, *questions: str) -> list[Any]:
    async def run() -> list[Any]:
        database = Database(url, seconds=_PATIENCE)
        async with database.use() as connection:
            answers = [await connection.fetchval(question) for question in questions]
        await database.close()
        return answers

    return asyncio.run(run())


def test_callers_who_make_everything_up(
    postgres: Postgres, valkey: Server, tmp_path: Path, figures: Figures, say: Callable[[str], None]
) -> None:
    """Each minute has a bounded number of rows, however many calls there are, and their sum is all calls."""
    case = f"made-up calls, 2 x {SECONDS:g} s"
    url, rules = postgres.new_database(), tmp_path / "rules.yaml"
    rules.write_text(RULES, encoding="utf-8")
    given = {"database_url": url, "redis_url": f"{valkey.url}?deadline_ms=1000", "data_dir": str(tmp_path / "data")}
    with closing(Service("--rules", str(rules), "--workers", "2", **given)) as service:
        calls = [_wave(service, number) for number in range(2)]
        service.signal(signal.SIGTERM)
        service.process.communicate(timeout=_PATIENCE)
    bounds = RowBounds()
    most, minutes, total, rows, size = _asked(
        url,
        "SELECT max(n) FROM (SELECT count(*) AS n FROM metrics WHERE granularity = 'minute' GROUP BY at) AS minutes",
        "SELECT count(DISTINCT at) FROM metrics WHERE granularity = 'minute'",
        "SELECT sum(total)::bigint FROM metrics WHERE granularity = 'minute' AND rule = '' AND user_id = ''",
        "SELECT count(*) FROM events",
        "SELECT pg_database_size(current_database())",
    )
    say(f"{sum(calls):,} calls, {rows:,} events, at most {most:,} rows a minute, {size / 1e6:.1f} MB in all")
    assert total == sum(calls)
    figures.check(case, "rows of metrics in a minute", most, "rows", bounds.series + bounds.users + _RULES + 1)
    figures.check(case, "events a minute and process", rows / 2 / (minutes + 1), "events", 5_000)
    figures.note(case, "calls", sum(calls), "calls")
    figures.note(case, "database at the end", size / 1e6, "MB")
