"""How fast backups are made and restored, in how much memory, and how soon running services follow."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.support.backups import contents, execute, fill
from tests.support.service import HEADGATE, Service, environment

if TYPE_CHECKING:
    from tests.chaos.figures import Figures
    from tests.support.postgres import Postgres
    from tests.support.valkey import Server

TOKEN: Final = "a-token-of-the-test"  # noqa: S105 (used only here)
MOST_MEGABYTES: Final = 120.0
"""A plain `headgate --version` has 45."""
_MANY: Final = """
INSERT INTO users (id, tier) SELECT 'many' || n, 'free' FROM generate_series(1, 100000) AS n"""
_MANY_EVENTS: Final = """
INSERT INTO events (at, id, user_id, ip, method, endpoint, rule, decision, count, "limit", cost, latency)
SELECT '2026-02-01Z'::timestamptz + n * interval '1 second', md5(n::text), 'many' || n % 100000, '203.0.113.9', 'GET',
       '/api/search', 'search', 'denied', n % 100, 100, 1, random() / 1000
FROM generate_series(1, 1000000) AS n"""


def _ran(*words: str, **settings: str) -> tuple[float, float]:
    """Seconds that a command took, and megabytes that it needed."""
    began = time.monotonic()
    kilobytes = 0
    with subprocess.Popen([HEADGATE, *words], env=environment(**settings), stdout=subprocess.DEVNULL) as process:  # noqa: S603 (ours)
        while process.poll() is None:
            # Not what the system says in the end, which counts the test's own memory from before it became the command.
            if found := re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")):
                kilobytes = int(found[1])
            time.sleep(0.02)
    assert process.returncode == 0
    return time.monotonic() - began, kilobytes / 1024


def test_a_million_events(postgres: Postgres, tmp_path: Path, figures: Figures) -> None:
    """A million events are backed up and restored in bounded memory, and come back the same."""
    url, empty = postgres.new_database(), postgres.new_database(empty=True)
    fill(url)
    for sql in ("SET statement_timeout = 0", _MANY, _MANY_EVENTS, "ANALYZE"):
        postgres.execute(url.partition("@/")[2].partition("?")[0], sql)
    settings = {"archive_url": str(tmp_path), "redis_url": "memory://"}
    rows = sum(map(len, contents(url).values()))
    for verb, words, database in (("backup", ["backup"], url), ("restore", ["restore", "latest"], empty)):
        seconds, megabytes = _ran(*words, database_url=database, **settings)
        case = f"{verb} of {rows:,} rows"
        figures.note(case, "rows per second", rows / seconds, "")
        figures.check(case, "memory", megabytes, "MB", MOST_MEGABYTES)
    size = sum(file.stat().st_size for file in tmp_path.rglob("*.gz"))
    figures.note(f"backup of {rows:,} rows", "bytes per row", size / rows, "")
    assert contents(empty) == contents(url)


def test_running_services_follow(postgres: Postgres, valkey: Server, tmp_path: Path, figures: Figures) -> None:
    """A service decides by restored rules within a second of the restore."""
    url = postgres.new_database()
    settings = {"archive_url": str(tmp_path), "redis_url": valkey.url, "database_url": url, "admin_token": TOKEN}
    service = Service(data_dir=str(tmp_path / "data"), **settings)
    try:
        rule = {"name": "five", "per": ["user"], "limits": "5/day"}

        def limit() -> int | None:
            found: int | None = service.http.post("/v1/peek", json={"user": "u1"}).json()["limit"]
            return found

        service.admin.post("/v1/rules", json=rule)
        _ran("backup", **settings)
        slowest = 0.0
        for _ in range(10):
            service.admin.put("/v1/rules/five", json=rule | {"limits": "6/day"})
            while limit() != 6:
                time.sleep(0.01)
            before = execute(url, "SELECT id FROM lineage")
            words = [HEADGATE, "restore", "latest", "--replace", "--yes"]
            with subprocess.Popen(words, env=environment(**settings), stdout=subprocess.DEVNULL) as restoring:  # noqa: S603 (ours)
                while execute(url, "SELECT id FROM lineage") == before:
                    assert restoring.poll() in {None, 0}
                restored = time.monotonic()
                while limit() != 5:
                    assert time.monotonic() < restored + 60
                slowest = max(slowest, time.monotonic() - restored)
        figures.check("restore into a running system", "until it is active, worst of 10", slowest, "s", 1.0)
    finally:
        service.close()
