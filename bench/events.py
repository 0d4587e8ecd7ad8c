"""A month of events in a real PostgreSQL: ``python -m bench.events [--events N] [--write]``.

How fast events and counts are stored, how large they are, and how long each question takes. With --write the
table goes to docs/explanation/events-figures.md.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop
from bench.events_month import DAYS, Month, fill, month_before
from bench.notes import Figure
from bench.report import machine
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from headgate.adapters.clock import wall_clock
from headgate.adapters.embedded import open_database
from headgate.adapters.postgres import migrate
from headgate.adapters.postgres.count_sink import PostgresCounts
from headgate.adapters.postgres.event_sink import PostgresEvents
from headgate.controlplane.activity import Activity
from headgate.controlplane.analytics import Analytics, Dimension, Granularity, MetricsQuery, Order
from headgate.controlplane.rollups import Rollups
from headgate.core.counts import Count, CountBatch, LatencyBucket
from headgate.core.event import Event, EventBatch
from headgate.core.units import MINUTE, SECOND

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from headgate.adapters.postgres import Database

_PAGE = Path(__file__).parents[1] / "docs/explanation/events-figures.md"
_ROUNDS = 5
_BATCH = 5_000
_SECONDS = 600.0
_A_DAY = timedelta(days=1)
_SIZES = """
SELECT sum(pg_table_size(inhrelid))::float8 AS heap, sum(pg_indexes_size(inhrelid))::float8 AS indexes
FROM pg_inherits WHERE inhparent = 'events'::regclass"""


def event(number: int, draw: random.Random, at: int) -> Event:
    """One of many events, as a process would record it."""
    is_denied = draw.random() < 0.5
    user, path = f"user-{int(50_000 * draw.random() ** 3)}", f"/api/v1/resource-{draw.randrange(100)}/items/{number}"
    used, rule = 100 if is_denied else draw.randrange(100), f"rule-{draw.randrange(20)}"
    kind, status, wait = ("denied", 429, 30.5) if is_denied else ("allowed", 200, None)
    who = (user, None, None, "192.0.2.17", "free", "GET", path)
    return Event(
        at, number, f"{draw.getrandbits(128):032x}", *who, rule, kind, "store", used, 100, 1, status, wait, 0.0003, None
    )


class Bench:
    """One run, on a database of its own."""

    def __init__(self, database: Database, url: str, month: Month, bar: Progress) -> None:
        self._database = database
        self._url = url
        self._month = month
        self._bar = bar
        self.figures: list[Figure] = []

    async def store(self) -> None:
        """Through the sinks, batch by batch, as shipping does it."""
        many = min(500_000, self._month.events)
        draw, at = random.Random(1), int(self._month.end.timestamp()) * SECOND  # behind the month, so it stays as it is
        sink = PostgresEvents(self._database, wall_clock)
        task = self._bar.add_task("events through the sink", total=many)
        seconds = 0.0
        for first in range(0, many, _BATCH):
            batch = EventBatch(f"e{first}", "bench", "eu", [event(first + n, draw, at + n) for n in range(_BATCH)])
            began = time.perf_counter()
            await sink.store(batch)
            seconds += time.perf_counter() - began
            self._bar.update(task, completed=first + _BATCH)
        self._note("events stored by the sink, batches of 5,000", many / seconds, "a second")
        await self._store_counts(at)

    async def _store_counts(self, at: int) -> None:
        sink, draw, seconds = PostgresCounts(self._database), random.Random(2), 0.0
        task = self._bar.add_task("batches of counts", total=60)
        for minute in range(60):
            counts = [
                Count(
                    at + minute * MINUTE,
                    {f"user-{draw.randrange(20_000)}": 3},
                    "free",
                    f"/api/v1/resource-{draw.randrange(100)}",
                    is_degraded=False,
                    charged=("rule-1", 1, f"rule-{draw.randrange(20)}", 1),
                    kind="allowed",
                    rule=None,
                )
                for _ in range(_BATCH)
            ]
            paths = [f"/api/v1/resource-{n}" for n in range(100)]
            took = [LatencyBucket(at + minute * MINUTE, "free", path, ("rule-1",), 40, 9) for path in paths]
            began = time.perf_counter()
            await sink.store(CountBatch(f"c{minute}", "bench", "eu", counts, took))
            seconds += time.perf_counter() - began
            self._bar.advance(task)
        self._note("a batch of 5,000 different counts, stored in", seconds / 60, "s")
        began = time.perf_counter()
        await Rollups(self._database, lambda: at + 60 * MINUTE).catch_up()
        self._note("that hour (60 such minutes) rolled up, with its day, in", time.perf_counter() - began, "s")

    async def load(self) -> None:
        """The month, made by the server."""
        task = self._bar.add_task("a month made by the server", total=DAYS)
        began = time.perf_counter()
        await fill(self._database, self._month, lambda days: self._bar.update(task, completed=days))
        self._note(
            "events made in bulk (with usage and counts)",
            self._month.events / (time.perf_counter() - began),
            "a second",
        )
        async with self._database.use() as connection:
            heap, indexes = await connection.fetchrow(_SIZES)
            stored = await connection.fetchval("SELECT count(*) FROM events", timeout=_SECONDS)
        self._note("an event in its table", heap / stored, "bytes")
        self._note("an event in indexes", indexes / stored, "bytes")

    async def ask(self) -> None:
        """Each question, some times; what it takes in the middle."""
        end = self._month.end
        clock = lambda: int(end.timestamp() * SECOND)  # noqa: E731 (shorter than a function)
        activity, analytics = Activity(self._database, clock), Analytics(self._database, clock)
        day, month = (end - _A_DAY, end), (self._month.first, end)
        (some,) = await activity.events(*day, most=1)
        day_of_hours = analytics.span(Granularity.HOUR, *day)
        questions: dict[str, Callable[[], Awaitable[object]]] = {
            "top violators of a day": lambda: activity.violators(*day),
            "top violators of a month": lambda: activity.violators(*month),
            "top violators of a day, by user, key or address": lambda: activity.violators(*day, by="anybody"),
            "top violators of a week, by user, key or address": lambda: activity.violators(
                end - timedelta(days=7), end, by="anybody"
            ),
            "near the limit, the last hour": lambda: analytics.near_limits(end - timedelta(hours=1), end),
            "near the limit, a day": lambda: analytics.near_limits(*day),
            "utilisation of all rules, a day": lambda: analytics.utilisation(*day),
            "noisy endpoints of an hour": lambda: analytics.endpoints(end - timedelta(hours=1), end),
            "noisy endpoints of a day": lambda: analytics.endpoints(*day, Order.SHARE),
            "noisy endpoints of a month": lambda: analytics.endpoints(*month, Order.DENIED),
            "one decision by its id": lambda: activity.event(some["id"]),
            "the newest 50 events of a user, a month": lambda: activity.events(*month, user="user-7"),
            "the newest 50 denials by a rule, a month": lambda: activity.events(
                *month, rule="rule-7", decision="denied"
            ),
            "the last 30 days of a user": lambda: activity.days_of("user-7", 30),
            "a chart: hours of a day by rule": lambda: analytics.metrics(
                MetricsQuery(by=frozenset({Dimension.RULE})), day_of_hours, most=1_000
            ),
            "a chart: days of a month by endpoint": lambda: analytics.metrics(
                MetricsQuery(Granularity.DAY, frozenset({Dimension.ENDPOINT})), month, most=1_000
            ),
            "a chart: hours of a day of a user": lambda: analytics.metrics(
                MetricsQuery(of={Dimension.USER: "user-7"}), day_of_hours
            ),
            "a page of 1,000 rows of usage": lambda: activity.usage(month[0].date(), end.date(), most=1_000),
            "usage of a month reconciled": lambda: activity.reconciled(month[0].date(), end.date()),
        }
        task = self._bar.add_task("questions", total=len(questions))
        for name, question in questions.items():
            took = []
            for _ in range(_ROUNDS):
                began = time.perf_counter()
                await question()
                took.append(time.perf_counter() - began)
            self._note(name, 1_000 * statistics.median(took), "ms")
            self._bar.advance(task)

    async def archive(self, folder: Path) -> None:
        """The month as Parquet, by the command that does it; nothing where there is none."""
        if find_spec("headgate.cli.archive") is None:
            return
        own = {"HEADGATE_DATABASE_URL": self._url, "HEADGATE_ARCHIVE_URL": str(folder), "HEADGATE_ARCHIVE_DAYS": "1"}
        async with self._database.use() as connection:
            name = await connection.fetchval("SELECT make_event_partition($1)", self._month.first)
            events = await connection.fetchval(f"SELECT count(*) FROM {name}", timeout=_SECONDS)  # noqa: S608 (a name of ours)
        began = time.perf_counter()
        command = [sys.executable, "-m", "headgate.cli.main", "archive", "run"]
        await asyncio.to_thread(subprocess.run, command, env={**os.environ, **own}, check=True, capture_output=True)
        seconds = time.perf_counter() - began
        size = await asyncio.to_thread(lambda: sum(file.stat().st_size for file in folder.rglob("*.parquet")))
        self._note("events archived, read back and dropped", events / seconds, "a second")
        self._note("an event in Parquet", size / events, "bytes")

    def _note(self, name: str, value: float, unit: str) -> None:
        self.figures.append(Figure(name, value, unit))


async def run(events: int) -> list[Figure]:
    """Measure everything, on a server of our own."""
    columns = (TextColumn("{task.description:34}"), BarColumn(), MofNCompleteColumn())
    month = month_before(datetime.now(UTC), events)
    with (
        tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder,
        Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn()) as bar,
    ):
        place = Path(folder)
        os.chmod(folder, 0o711)  # noqa: PTH101, S103 (PostgreSQL does not run as root, and has to get in)
        url = f"embedded://{place / 'postgres'}"
        opened = open_database(url, place)
        try:
            await migrate(opened.database)
            bench = Bench(opened.another(_SECONDS), url, month, bar)
            await bench.store()
            await bench.load()
            await bench.ask()
            await bench.archive(place / "archive")
        finally:
            await opened.close()
    return bench.figures


def page(events: int, figures: list[Figure]) -> str:
    """The figures as a page of the documentation."""
    rows = [f"| {figure.name} | {_number(figure.value)} {figure.unit} |" for figure in figures]
    about = [f"- {name}: {machine()[name]}" for name in ("cpu", "cores", "system", "python", "date")]
    about.append(f"- load at the end: {os.getloadavg()[0]:.1f}")
    lines = [
        "# Events: figures",
        "",
        f"A month of synthetic traffic, {events:,} events, measured by `python -m bench.events --write` with",
        f"PostgreSQL on the same machine. A question is asked {_ROUNDS} times, and the middle one counts.",
        "",
        *about,
        "",
        "| what | figure |",
        "|---|---:|",
        *rows,
    ]
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    return f"{value:,.3g}" if value < 1_000 else f"{value:,.0f}"


def main() -> None:
    """Run it, and show what was found."""
    parser = argparse.ArgumentParser(prog="python -m bench.events", description=__doc__)
    parser.add_argument("--events", type=int, default=20_000_000)
    parser.add_argument("--write", action="store_true", help="write the page of the documentation")
    given = parser.parse_args()
    text = page(given.events, uvloop.run(run(given.events)))
    if given.write:
        _PAGE.write_text(text, encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
