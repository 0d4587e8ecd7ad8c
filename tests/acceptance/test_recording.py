"""What is decided is recorded: each event exactly once, however a service ends."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
from tests.support.service import PATIENCE
from tests.support.stored_counts import billed

from headgate.adapters.postgres import Database
from headgate.adapters.spool.batches import counts_from
from headgate.adapters.spool.reader import Cursor

if TYPE_CHECKING:
    from tests.support.postgres import Postgres
    from tests.support.service import Service, Start
    from tests.support.valkey import Server

EVERYTHING = {"denial_events_per_minute": "1000000000", "events_per_minute": "1000000000"}
"""Each decision is an event of its own, however many there are."""
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
    cursors = [Cursor(folder) for folder in spool.glob("*/*/events")]
    for cursor in cursors:
        cursor.go_to_end()
    return sum(cursor.number for cursor in cursors)


def _counted(spool: Path) -> int:
    """How many requests are in counts on disk."""
    requests = 0
    for cursor in [Cursor(folder) for folder in spool.glob("*/*/counts")]:
        while (found := cursor.find()) is not None:
            requests += sum(count.requests for count in counts_from(found.payload or b"").counts)
            cursor.move_behind(found)
    return requests


def _usage(url: str) -> Counter[str]:
    """The requests of each user, as they would be billed."""

    async def run() -> Counter[str]:
        database = Database(url)
        requests = await billed(database)
        await database.close()
        return requests

    return asyncio.run(run())


def _until_all_is_shipped(start: Start, rules: str, **settings: str) -> None:
    """On a busy machine the time for an end may be over before: then the next service ships the rest."""
    deadline = time.monotonic() + 3 * PATIENCE
    while _folders(Path(settings["data_dir"])):
        assert time.monotonic() < deadline, "what is spooled is shipped in the end"
        service = start("--rules", rules, **settings)
        service.signal(signal.SIGTERM)
        assert service.wait() == 0


def _folders(data: Path) -> list[Path]:
    return [path for path in data.glob("spool/*/*") if path.is_dir()]


def test_sigterm_loses_no_event(postgres: Postgres, valkey: Server, start: Start, tmp_path: Path) -> None:
    """Two workers that are told to end have recorded everything they decided; it is stored and counted, each once."""
    url, rules = postgres.new_database(), _rules(tmp_path)
    settings = {"database_url": url, "redis_url": valkey.url, "data_dir": str(tmp_path / "data"), **EVERYTHING}
    service = start("--rules", rules, "--workers", "2", **settings)
    asked = _ask_from_all_sides(service, 50)
    service.signal(signal.SIGTERM)
    assert service.wait() == 0
    account = re.search(r"events to postgres: (\d+) emitted = (\d+) stored \+ (\d+) spooled", service.errors)
    assert account is not None
    assert int(account[1]) == int(account[2]) + int(account[3]) == asked.total()
    _until_all_is_shipped(start, rules, **settings)
    stored = _stored(url)
    assert Counter(user for user, _ in stored) == _usage(url) == asked
    assert len({id_ for _, id_ in stored}) == len(stored)


def test_what_a_killed_service_has_spooled_is_stored_after_the_next_start(
    postgres: Postgres, valkey: Server, start: Start, tmp_path: Path
) -> None:
    """After a database outage and a killed service, the next one stores and counts what was on disk, once."""
    url, rules = postgres.new_database(), _rules(tmp_path)
    settings = {"database_url": url, "redis_url": valkey.url, "data_dir": str(tmp_path / "data"), **EVERYTHING}
    service = start("--rules", rules, flush_seconds="0.05", **settings)
    postgres.freeze()
    try:
        asked = _ask_from_all_sides(service, 20)
        deadline = time.monotonic() + PATIENCE
        spool = tmp_path / "data" / "spool"
        while min(_spooled(spool), _counted(spool)) < asked.total():
            assert time.monotonic() < deadline, "events are spooled while the database is unavailable"
            time.sleep(0.05)
        service.signal(signal.SIGKILL)
        service.process.wait()
    finally:
        postgres.thaw()
    _until_all_is_shipped(start, rules, **settings)
    stored = _stored(url)
    assert Counter(user for user, _ in stored) == _usage(url) == asked
    assert len({id_ for _, id_ in stored}) == len(stored)


def test_a_worker_that_is_killed_leaves_its_log_to_the_others(
    postgres: Postgres, valkey: Server, start: Start, tmp_path: Path
) -> None:
    """What it had written is shipped while the service goes on, and its folder is removed."""
    url = postgres.new_database()
    settings = {"database_url": url, "redis_url": valkey.url, "data_dir": str(tmp_path / "data"), **EVERYTHING}
    service = start("--rules", _rules(tmp_path), "--workers", "2", flush_seconds="0.05", **settings)
    asked = _ask_from_all_sides(service, 20)
    deadline = time.monotonic() + 3 * PATIENCE
    while len(_stored(url)) < asked.total():
        assert time.monotonic() < deadline, "events are stored"
        time.sleep(0.1)
    dead = {folder for folder in _folders(tmp_path / "data") if not folder.name.startswith(f"{service.main}-")}
    for worker in service.workers:
        os.kill(worker, signal.SIGKILL)
    while dead & set(_folders(tmp_path / "data")):
        assert time.monotonic() < deadline, "the folder of a process that is dead is removed"
        time.sleep(0.1)
    assert dead


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


def test_two_databases_on_one_data_directory_are_kept_apart(
    postgres: Postgres, valkey: Server, start: Start, tmp_path: Path
) -> None:
    """Services one after another store each in its own database; what waits for another is named, and stays."""
    left = tmp_path / "data" / "spool" / "database-0" / "1-dead" / "events"
    left.mkdir(parents=True)
    (left / f"{0:020d}.log").write_bytes(b"x" * 77)
    rules, data = _rules(tmp_path), str(tmp_path / "data")
    urls = postgres.new_database(), postgres.new_database()
    for url, user in zip(urls, ("ann", "ben"), strict=True):
        service = start("--rules", rules, database_url=url, redis_url=valkey.url, data_dir=data)
        asked = _ask(service.url, user, 5)
        deadline = time.monotonic() + PATIENCE
        while len(_stored(url)) < asked:
            assert time.monotonic() < deadline, "events are stored"
            time.sleep(0.1)
        assert Counter(each for each, _ in _stored(url)) == {user: asked}
        service.signal(signal.SIGTERM)
        assert service.wait() == 0
        assert f"spool {left.parent.parent}: 77 bytes wait for a sink that is not configured" in service.errors
    assert (left / f"{0:020d}.log").exists()


def test_without_a_sink_nothing_is_spooled(start: Start, tmp_path: Path) -> None:
    """With rules in a file and counters in memory no sink would read it; nor is it written with events switched off."""
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
