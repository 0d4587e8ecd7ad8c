"""The database as the control plane needs it: reachable, writable, up to date, and with room for events to come."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from statistics import median
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from headgate.adapters.clock import monotonic
from headgate.adapters.embedded import EmbeddedPostgres, named_folder
from headgate.archive.part import Month
from headgate.archive.retention import MONTHS_AHEAD
from headgate.cli.diagnosis.redis_checks import listens
from headgate.controlplane import documents
from headgate.errors import DatabaseError, HeadgateError, InvalidSettings
from headgate.ports import RULES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headgate.adapters.postgres import Database
    from headgate.cli.diagnosis.catalog import Report
    from headgate.core.units import Micros
    from headgate.settings import Settings

_SUBJECT: Final = "PostgreSQL"
_SECONDS: Final = 10.0
_LOOKS: Final = 5
_MAX_CLOCK_OFFSET: Final = 1.0
_SLOW: Final = 0.1
_TOO_OLD: Final = "or newer"


@dataclass(slots=True)
class DatabaseFacts:
    """What the database has."""

    is_readable: bool = False
    """Whether its rules could be read."""
    rules: Any = field(default=None)
    """The active rules, as data; None if none were published."""


async def check_database(chosen: Settings, clock: Callable[[], Micros], report: Report) -> DatabaseFacts:
    """Look at the database, and return the rules that it has."""
    url = chosen.database_url
    if url is None:
        report.well(_SUBJECT, "there is none: the rules are in a file")
        return DatabaseFacts()
    from headgate.adapters.postgres import Database  # noqa: PLC0415 (an extra)

    try:
        if url.startswith("embedded:"):
            postgres = EmbeddedPostgres(named_folder(urlsplit(url), chosen.data_dir, "postgres"))
            if not listens(postgres.server.socket):
                report.add(_SUBJECT, "embedded-stopped", f"no PostgreSQL listens on {postgres.server.socket}")
                return DatabaseFacts()
            url = postgres.url
        database = Database(url, seconds=_SECONDS, max_connections=1)
    except InvalidSettings as error:
        report.add(_SUBJECT, "database-address", f"HEADGATE_DATABASE_URL is malformed: {error}")
        return DatabaseFacts()
    try:
        return await _look(database, clock, report)
    except DatabaseError as error:
        code = "database-down" if error.transient else "database-refuses"
        report.add(_SUBJECT, "database-old" if _TOO_OLD in str(error) else code, str(error))
        return DatabaseFacts()
    finally:
        await database.close()


async def _look(database: Database, clock: Callable[[], Micros], report: Report) -> DatabaseFacts:
    before = len(report.issues)
    row = await database.row("inspection.server")
    assert row is not None  # noqa: S101 (it selects from no table)
    latency, offset = await _times(database, clock)
    judge(row, latency, offset, report)
    is_prepared = await _check_rights(database, report) and await _check_schema(database, report)
    stored = DatabaseFacts()
    if is_prepared:
        await _check_tables(database, clock, report)
        stored = await _stored(database, report)
    if len(report.issues) == before:
        speed = f"{latency * 1000:.1f} ms an answer, clock {offset * 1000:+.1f} ms"
        name = f"PostgreSQL {row['version'].split()[0]}"
        report.well(_SUBJECT, f"{name}: {speed}, schema up to date, partitions {MONTHS_AHEAD} months ahead")
    return stored


async def _times(database: Database, clock: Callable[[], Micros]) -> tuple[float, float]:
    """The usual seconds for an answer, and by how many the clock there is ahead."""
    spans, offsets = [], []
    for _ in range(_LOOKS):
        began, ours = monotonic(), clock()
        row = await database.row("time.now")
        assert row is not None  # noqa: S101 (it selects from no table)
        spans.append(monotonic() - began)
        theirs = row["now"] - datetime.fromtimestamp(0, UTC)
        offsets.append(theirs.total_seconds() - (ours + (clock() - ours) / 2) / 1_000_000)
    return median(spans), min(offsets, key=abs)


def judge(row: Mapping[str, Any], latency: float, offset: float, report: Report) -> None:
    """What a server that answered says of itself."""
    if row["is_standby"]:
        report.add(_SUBJECT, "database-standby", f"{row['database']} is on a server in recovery")
    if row["encoding"] != "UTF8":
        report.add(_SUBJECT, "database-encoding", f"{row['database']} has the encoding {row['encoding']}")
    unsafe = [f"{name} is {row[name]}" for name in ("fsync", "synchronous_commit") if row[name] == "off"]
    if unsafe:
        report.add(_SUBJECT, "database-unsafe", " and ".join(unsafe))
    if latency > _SLOW:
        report.add(_SUBJECT, "database-slow", f"an answer takes {latency * 1000:,.0f} ms")
    if abs(offset) > _MAX_CLOCK_OFFSET:
        side = "ahead of" if offset > 0 else "behind"
        report.add(_SUBJECT, "database-clock", f"its clock is {abs(offset):,.1f} s {side} ours")


async def _check_rights(database: Database, report: Report) -> bool:
    """Whether the schema can be looked at; a role with grants only lacks those on tables that were made later."""
    from headgate.adapters.postgres import forbidden_tables  # noqa: PLC0415 (an extra)

    forbidden = await forbidden_tables(database)
    if forbidden:
        report.add(_SUBJECT, "database-rights", f"no full access to {', '.join(forbidden)}")
    return "migrations" not in forbidden


async def _check_schema(database: Database, report: Report) -> bool:
    """Whether the schema is that of this version."""
    from headgate.adapters.postgres import applied, known  # noqa: PLC0415 (an extra)

    try:
        done = await applied(database)
    except DatabaseError as error:
        if error.transient:
            raise
        report.add(_SUBJECT, "schema-foreign", str(error))
        return False
    missing = [step for step in known() if step.number not in done]
    if missing:
        what = f"it lacks {len(missing)} of {len(known())} migrations" if done else "it has no schema of headgate's yet"
        report.add(_SUBJECT, "schema-behind", what)
    return not missing


async def _check_tables(database: Database, clock: Callable[[], Micros], report: Report) -> None:
    there = {row["name"] for row in await database.rows("archive.partitions")}
    this = Month.of(clock())
    months = [this.later(number) for number in range(MONTHS_AHEAD + 1)]
    missing = [f"{month.year}-{month.number:02}" for month in months if _partition(month) not in there]
    if missing:
        report.add(_SUBJECT, "partitions-missing", f"there is none for {', '.join(missing)}")


def _partition(month: Month) -> str:
    return f"events_{month.year}_{month.number:02}"


async def _stored(database: Database, report: Report) -> DatabaseFacts:
    try:
        document = await documents.stored(database, RULES)
        return DatabaseFacts(is_readable=True, rules=None if document is None else documents.read(document))
    except DatabaseError as error:
        if error.transient:
            raise
        return DatabaseFacts()  # without the right to read them, which is said already
    except HeadgateError as error:
        report.add(_SUBJECT, "rules-unreadable", f"the newest snapshot: {error}")
        return DatabaseFacts()
