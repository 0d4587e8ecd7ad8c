"""`headgate backup` and `headgate restore`, on a real PostgreSQL, in folders and in S3."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Protocol

import pytest
from tests.support.backups import contents, execute, fill
from tests.support.s3 import KEYS

from headgate.adapters.object_store import open_object_store
from headgate.adapters.postgres import Database
from headgate.backup import table_copies
from headgate.backup.catalog import find
from headgate.backup.restorer import restore
from headgate.backup.table_copies import kept_tables
from headgate.backup.writer import create
from headgate.cli.commands import run
from headgate.errors import ArchiveError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.postgres import Postgres
    from tests.support.s3 import S3Server

    class On(Protocol):
        """Runs a command on a database; what it printed as JSON, if it did, or else."""

        def __call__(self, url: str, *words: str, code: int = 0) -> str: ...


PATIENCE = 60.0
DIES_BACKING_UP = """
import asyncio, os, signal, sys
from headgate.adapters.object_store import open_object_store
from headgate.backup.catalog import find
from headgate.backup.restorer import restore
from headgate.backup.writer import create
from headgate.adapters.postgres import Database

def die(rows, _total):
    if rows > 100:
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(create(Database(sys.argv[1]), open_object_store(sys.argv[2]), None, die, version='0'))
"""
DIES_RESTORING = """
import asyncio, os, signal, sys
from headgate.adapters.object_store import open_object_store
from headgate.backup.catalog import find
from headgate.backup.restorer import restore
from headgate.adapters.postgres import Database

def die(through, total):
    if through > total // 2:
        os.kill(os.getpid(), signal.SIGKILL)

async def run():
    place = open_object_store(sys.argv[2])
    await restore(Database(sys.argv[1]), place, await find(place, "latest"), die, replace=True)

asyncio.run(run())
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where backups of this test go."""
    monkeypatch.setenv("HEADGATE_ARCHIVE_URL", str(tmp_path / "archive"))
    monkeypatch.setenv("HEADGATE_REDIS_URL", "memory://")
    return tmp_path / "archive"


@pytest.fixture
def on(place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> On:  # noqa: ARG001 (it is set)
    def go(url: str, *words: str, code: int = 0) -> str:
        monkeypatch.setenv("HEADGATE_DATABASE_URL", url)
        ended = run(list(words))
        said = capsys.readouterr()
        assert ended == code, said.err
        return said.err if code else said.out

    return go


def _name(said: str) -> str:
    found = re.match(r"backed up  (\S+): ", said)
    assert found is not None, said
    return found[1]


def test_a_restored_database_is_the_same(postgres: Postgres, on: On) -> None:
    """Everything that was backed up is restored into an empty database, row by row, and numbers go on behind it."""
    url, empty = postgres.new_database(), postgres.new_database(empty=True)
    fill(url)
    before = contents(url)
    assert all(before[table] for table in ("tiers", "rules", "overrides", "api_keys", "blocks", "tokens", "events"))
    made = json.loads(on(url, "backup", "--json"))
    assert {file["name"] for file in made["files"]} == {f"{table}.copy.gz" for table in kept_tables()}
    assert on(empty, "restore", made["name"]).startswith(f"restored  {made['name']}: ")
    assert contents(empty) == before
    ((newest,),) = execute(empty, "SELECT max(id) FROM changes")
    ((following,),) = execute(
        empty, "INSERT INTO changes (who, kind, name, verb) VALUES ('a', 'user', 'b', 'c') RETURNING id"
    )
    assert (newest, following) == (made["change"], made["change"] + 1)
    assert execute(url, "SELECT id FROM lineage") != execute(empty, "SELECT id FROM lineage")
    assert on(empty, "db", "status").endswith("The schema is up to date.\n")


def test_only_the_newest_backups_of_a_database_are_kept(postgres: Postgres, on: On, place: Path) -> None:
    """With `--keep` older ones of the same database are deleted, file by file; another one's in that place stay.

    A backup without events takes the place of none with them.
    """
    url, other = postgres.new_database(), postgres.new_database()
    execute(other, "UPDATE origin SET id = gen_random_uuid()")  # a copy has that of what it was copied from
    names = [_name(on(each, "backup")) for each in (other, url, url)]
    made = json.loads(on(url, "backup", "--keep", "2", "--json"))
    assert made["deleted"] == [names[1]]
    assert {folder.name for folder in (place / "backups").iterdir()} == {names[0], names[2], made["name"]}
    assert on(url, "backup", "verify", made["name"]).startswith("whole")
    small = _name(on(url, "backup", "--without-events", "--keep", "1"))
    last = on(url, "backup", "--keep", "1")
    assert f"deleted  {names[2]}, {made['name']}\n" in last
    assert {folder.name for folder in (place / "backups").iterdir()} == {names[0], small, _name(last)}


def test_every_table_is_kept(postgres: Postgres) -> None:
    """A backup has all tables of the schema, but for three that it says why it has not."""
    rows = execute(
        postgres.new_database(),
        """SELECT relname::text FROM pg_class
           WHERE relkind IN ('r', 'p') AND NOT relispartition AND relnamespace = 'public'::regnamespace""",
    )
    assert {name for (name,) in rows} - {*kept_tables()} == {"idempotency", "jobs", "processes", "migrations"}


@pytest.mark.parametrize("has_jobs", [False, True], ids=["made-now", "made-by-an-earlier-build"])
def test_a_restore_starts_no_daily_job(postgres: Postgres, on: On, *, has_jobs: bool) -> None:
    """A daily backup is made while its own job runs; restored, no job is taken for one whose service was killed."""
    url, empty = postgres.new_database(), postgres.new_database()
    claim = "INSERT INTO jobs (name, began, outcome, host, next_run) VALUES ('backup', now(), 'running', 'a', now())"
    execute(url, claim)
    with pytest.MonkeyPatch.context() as patched:
        if has_jobs:
            patched.setattr(table_copies, "_EXCLUDED", table_copies._EXCLUDED - {"jobs"})
        name = _name(on(url, "backup"))
    execute(url, "UPDATE jobs SET outcome = 'done', ended = now(), next_run = now() + interval '1 day'")
    before = execute(url, "SELECT * FROM jobs")
    on(url, "restore", name, "--replace", "--yes")
    assert execute(url, "SELECT * FROM jobs") == before
    on(empty, "restore", name)
    assert execute(empty, "SELECT * FROM jobs") == []


def test_s3_is_a_place_too(postgres: Postgres, s3: S3Server, on: On, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backup goes to a bucket, is listed and verified there, and restored from it."""
    for name, value in {**KEYS, "HEADGATE_S3_ENDPOINT": s3.endpoint}.items():
        monkeypatch.setenv(name, value)
    bucket = s3.new_bucket()
    url, empty = postgres.new_database(), postgres.new_database()
    fill(url)
    assert f"in {bucket}" in on(url, "backup", "--to", bucket)
    (listed,) = json.loads(on(url, "backup", "list", "--from", bucket, "--json"))
    assert on(url, "backup", "verify", listed["name"], "--from", bucket).startswith("whole")
    assert json.loads(on(empty, "restore", "latest", "--from", bucket, "--json"))["name"] == listed["name"]
    assert contents(empty) == contents(url)


def test_what_is_there_is_replaced_only_if_told(postgres: Postgres, on: On) -> None:
    """Without --replace, and with it but without a terminal, nothing is touched; with --yes all of it is replaced."""
    url, used = postgres.new_database(), postgres.new_database()
    fill(url)
    fill(used, events=10)
    before = contents(used)
    name = _name(on(url, "backup"))
    assert "--replace replaces it by the backup" in on(used, "restore", name, code=1)
    assert "add --yes" in on(used, "restore", name, "--replace", code=1)
    assert contents(used) == before
    on(used, "restore", name, "--replace", "--yes")
    assert contents(used) == contents(url)
    on(postgres.new_database(), "restore", name, "--replace")  # there is nothing to confirm


def test_events_can_be_left_out(postgres: Postgres, on: On) -> None:
    """A backup without events restores all the rest, and leaves the events that are there alone."""
    url = postgres.new_database()
    fill(url, events=20)
    before = contents(url)
    name = _name(on(url, "backup", "--without-events"))
    execute(url, "DELETE FROM overrides")
    execute(url, "DELETE FROM events WHERE id = 'd7'")
    on(url, "restore", name, "--replace", "--yes")
    after = contents(url)
    assert len(after["events"]) == 19
    assert {**after, "events": ()} == {**before, "events": ()}
    assert on(url, "backup", "list").split()[-4:-2] == ["no", "no"]


def test_a_backup_is_of_one_moment(postgres: Postgres, on: On, place: Path) -> None:
    """What is changed while a backup is being made is not in it, in no table."""
    url, empty = postgres.new_database(), postgres.new_database()
    fill(url)
    before = contents(url)
    database_name = url.partition("@/")[2].partition("?")[0]
    changes = iter(["TRUNCATE idempotency; DELETE FROM usage_daily"])

    def meanwhile(_rows: int, _total: int) -> None:
        for sql in changes:
            postgres.execute(database_name, sql)

    async def back_up() -> str:
        database = Database(url)
        try:
            return (await create(database, open_object_store(str(place)), None, meanwhile, version="0")).name
        finally:
            await database.close()

    on(empty, "restore", asyncio.run(back_up()))
    assert contents(empty) == before
    assert contents(url)["usage_daily"] == []


def test_no_reader_waits_for_a_restore(postgres: Postgres, on: On, place: Path) -> None:
    """While a backup is being restored, keys and rules are read as they were; none is half restored."""
    url, used = postgres.new_database(), postgres.new_database()
    fill(url)
    on(url, "backup")
    fill(used, events=10)
    keys = contents(used)["api_keys"]
    seen = []

    async def meanwhile(reader: Database) -> None:
        async with reader.use() as connection:
            await connection.execute("SET statement_timeout = '30s'")
            rows = await connection.fetch(
                "SELECT k::text FROM api_keys k, lineage, changes WHERE changes.id = 1 ORDER BY 1"
            )
        seen.append([row[0] for row in rows])

    async def go() -> None:
        database, reader = Database(used), Database(used)
        loop = asyncio.get_running_loop()
        reading: list[asyncio.Task[None]] = []
        try:
            backups = open_object_store(str(place))
            manifest = await find(backups, "latest")
            await restore(
                database,
                backups,
                manifest,
                lambda *_: reading.append(loop.create_task(meanwhile(reader))),
                replace=True,
            )
            await asyncio.gather(*reading)
        finally:
            await database.close()
            await reader.close()

    asyncio.run(go())
    assert seen[0] == keys
    assert all(rows in (keys, contents(used)["api_keys"]) for rows in seen)


def test_a_killed_backup_is_none(postgres: Postgres, on: On, place: Path) -> None:
    """What a backup leaves that was killed half-way is neither listed nor restored."""
    url = postgres.new_database()
    fill(url)
    assert _ended(DIES_BACKING_UP, url, place) == -signal.SIGKILL
    assert any(place.glob("backups/*/*.gz"))
    assert json.loads(on(url, "backup", "list", "--json")) == []
    (left,) = place.glob("backups/*")
    assert "there is no backup" in on(url, "restore", left.name, code=1)
    assert "there is no backup" in on(url, "restore", "latest", code=1)
    _name(on(url, "backup"))
    assert len(json.loads(on(url, "backup", "list", "--json"))) == 1


def test_leftovers_of_killed_backups_are_deleted_before_the_next_is_made(
    postgres: Postgres, on: On, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `--keep`, so that runs which are killed again and again do not fill the disk; else nothing is deleted."""
    url = postgres.new_database()
    left = place / "backups" / "2026-01-01T000000Z-abcd"
    left.mkdir(parents=True)
    (left / "users.copy.gz").write_bytes(b"")
    on(url, "backup")
    assert left.exists()
    with monkeypatch.context() as patched:
        patched.setattr("headgate.backup.writer.create", _fails)
        assert "no room" in on(url, "backup", "--keep", "5", code=1)
    assert not left.exists()
    left.mkdir(parents=True)
    (left / "users.copy.gz").write_bytes(b"")
    assert f"deleted  {left.name} (incomplete, of a killed run)\n" in on(url, "backup", "--keep", "5")
    assert not left.exists()


async def _fails(*_: object, **__: object) -> None:
    raise ArchiveError("no room")  # noqa: EM101, TRY003 (a test's)


def test_a_backup_whose_files_were_deleted_meanwhile_is_none(postgres: Postgres, place: Path) -> None:
    """It fails and gets no manifest, so that it is not listed."""
    url = postgres.new_database()
    fill(url, events=20)

    def meanwhile(_rows: int, _total: int) -> None:
        for file in place.glob("backups/*/*.gz"):
            file.unlink()

    async def back_up() -> None:
        database = Database(url)
        try:
            await create(database, open_object_store(str(place)), None, meanwhile, version="0")
        finally:
            await database.close()

    with pytest.raises(ArchiveError, match=r"is not complete: \w+\.copy\.gz was deleted while others were written"):
        asyncio.run(back_up())
    assert not [*place.rglob("*.*")]


def test_a_killed_restore_changes_nothing(postgres: Postgres, on: On, place: Path) -> None:
    """A restore that was killed half-way leaves the database as it was, and can be done again."""
    url, used = postgres.new_database(), postgres.new_database()
    fill(url)
    fill(used, events=10)
    before = contents(used)
    on(url, "backup")
    assert _ended(DIES_RESTORING, used, place) == -signal.SIGKILL
    assert contents(used) == before
    execute(used, "INSERT INTO changes (who, kind, name, verb) VALUES ('a', 'user', 'b', 'c')")
    on(used, "restore", "latest", "--replace", "--yes")
    assert contents(used) == contents(url)


def test_a_place_that_fails_leaves_nothing(postgres: Postgres, on: On, tmp_path: Path) -> None:
    """A backup that cannot be written says so in a sentence."""
    url = postgres.new_database()
    (tmp_path / "file").write_text("", encoding="ascii")
    assert "Not a directory" in on(url, "backup", "--to", str(tmp_path / "file"), code=1)
    assert "run 'headgate db migrate' first" in on(postgres.new_database(empty=True), "backup", code=1)
    assert not (tmp_path / "archive").exists()


def _ended(script: str, *arguments: object) -> int:
    words = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(words, check=False, timeout=PATIENCE, capture_output=True).returncode  # noqa: S603 (our own)
