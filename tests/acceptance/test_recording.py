"""What is decided is recorded: each event exactly once, however a service ends."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import httpx
from tests.acceptance.conftest import PATIENCE

from headgate.adapters.postgres import Database
from headgate.adapters.spool.cursor import Cursor

if TYPE_CHECKING:
    from pathlib import Path

    from tests.acceptance.conftest import Service, Start
    from tests.integration.postgres import Postgres
    from tests.integration.server import Server

RULES = "rules:\n  - name: tight\n    per: [user]\n    limits: 1/day\n    sample: 1\n"


def _rules(folder: Path) -> str:
    file = folder / "rules.yaml"
    file.write_text(RULES, encoding="utf-8")
    return str(file)


def _ask(url: str, user: str, many: int) -> int:
    """Ask so often; returns how often that was answered."""
    with httpx.Client(base_url=url, timeout=PATIENCE) as http:
        return sum(http.post("/v1/check", json={"user": user}).status_code in {200, 429} for _ in range(many))


def _ask_from_all_sides(service: Service, many: int) -> Counter[str]:
    users = [f"u{number}" for number in range(8)]
    with ThreadPoolExecutor(8) as threads:
        answered = threads.map(lambda user: _ask(service.url, user, many), users)
        return Counter(dict(zip(users, answered, strict=True)))


def _stored(url: str) -> list[tuple[str, str]]:
    """The user and the id of each event."""

    async def run() -> list[tuple[str, str]]:
        database = Database(url)
        async with database.use() as connection:
            rows = await connection.fetch("SELECT user_id, id FROM events")
        await database.close()
        return [(row["user_id"], row["id"]) for row in rows]

    return asyncio.run(run())


def _spooled(spool: Path) -> int:
    """How many events are on disk."""
    cursors = [Cursor(folder) for folder in spool.glob("*/events")]
    for cursor in cursors:
        cursor.go_to_end()
    return sum(cursor.number for cursor in cursors)


def test_sigterm_loses_no_event(postgres: Postgres, valkey: Server, start: Start, tmp_path: Path) -> None:
    """Two workers that are told to end have stored everything they decided, each event once, and left no spool."""
    url = postgres.new_database()
    settings = {"database_url": url, "redis_url": valkey.url, "data_dir": str(tmp_path / "data")}
    service = start("--rules", _rules(tmp_path), "--workers", "2", **settings)
    asked = _ask_from_all_sides(service, 50)
    service.signal(signal.SIGTERM)
    assert service.wait() == 0
    stored = _stored(url)
    assert Counter(user for user, _ in stored) == asked
    assert len({id_ for _, id_ in stored}) == len(stored)
    assert f"events to postgres: {len(stored)} emitted = {len(stored)} stored + 0 spooled" in service.errors
    assert [path.name for path in (tmp_path / "data" / "spool").iterdir()] == ["shipping.lock"]


def test_what_a_killed_service_has_spooled_is_stored_after_the_next_start(
    postgres: Postgres, valkey: Server, start: Start, tmp_path: Path
) -> None:
    """A database that was away, a service that was killed: the next one stores what was on disk, each event once."""
    url = postgres.new_database()
    settings = {"database_url": url, "redis_url": valkey.url, "data_dir": str(tmp_path / "data")}
    service = start("--rules", _rules(tmp_path), flush_seconds="0.05", **settings)
    postgres.freeze()
    try:
        asked = _ask_from_all_sides(service, 20)
        deadline = time.monotonic() + PATIENCE
        while _spooled(tmp_path / "data" / "spool") < asked.total():
            assert time.monotonic() < deadline, "events are spooled while the database is away"
            time.sleep(0.05)
        service.signal(signal.SIGKILL)
        service.process.wait()
    finally:
        postgres.thaw()
    second = start("--rules", _rules(tmp_path), **settings)
    second.signal(signal.SIGTERM)
    assert second.wait() == 0
    stored = _stored(url)
    assert Counter(user for user, _ in stored) == asked
    assert len({id_ for _, id_ in stored}) == len(stored)


def test_events_are_lines_of_a_file(start: Start, tmp_path: Path) -> None:
    """Without a database too; and after a restart the file goes on."""
    file = tmp_path / "events.jsonl"
    for turn in (1, 2):
        service = start("--rules", _rules(tmp_path), events_file=str(file), data_dir=str(tmp_path / "data"))
        asked = _ask_from_all_sides(service, 5)
        service.signal(signal.SIGTERM)
        assert service.wait() == 0
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        assert Counter(line["user"] for line in lines) == Counter({user: turn * asked[user] for user in asked})
        assert len({line["id"] for line in lines}) == len(lines)


def test_without_a_sink_nothing_is_spooled(start: Start, tmp_path: Path) -> None:
    """Rules in a file, counters in memory: nobody would ever read it. Nor where nobody wants events."""
    data = tmp_path / "data"
    service = start("--rules", _rules(tmp_path), data_dir=str(data))
    assert service.check(user="u1").status_code == 200
    unwanted = start("--rules", _rules(tmp_path), data_dir=str(data), events="no", events_file=str(tmp_path / "events"))
    assert unwanted.check(user="u1").status_code == 200
    for each in (service, unwanted):
        each.signal(signal.SIGTERM)
        assert each.wait() == 0
    assert not data.exists()
    assert not (tmp_path / "events").exists()
