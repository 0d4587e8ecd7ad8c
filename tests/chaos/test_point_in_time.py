"""PostgreSQL made what it was at a point in time, with the files of deploy/postgres and nothing else."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from tests.support.backups import contents, execute, fill
from tests.support.postgres import AS_UNPRIVILEGED, found_programs, migrated
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

DEPLOY: Final = Path(__file__).parents[2] / "deploy" / "postgres"
PAGE: Final = Path(__file__).parents[2] / "docs" / "how-to" / "recover.md"
PATIENCE: Final = 60.0
PLACE: Final = "/var/lib/headgate/wal"


class Cluster:
    """A PostgreSQL that archives, and the copies that were made of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.wal = folder / "wal"
        self._programs = found_programs()
        self._running: dict[Path, subprocess.Popen[bytes]] = {}
        for each in (folder, self.wal):
            each.mkdir(exist_ok=True)
            if os.geteuid() == 0:
                os.chown(each, 65534, 65534)

    def run(self, program: str, *arguments: str) -> None:
        words = [*_prefix(), str(self._programs / program), *arguments]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE)  # noqa: S603 (from the wheel)

    def include(self, data: Path, name: str, **changes: str) -> None:
        """Add a file of deploy/ to the configuration, with our folder in the place of its own."""
        text = (DEPLOY / name).read_text(encoding="utf-8").replace(PLACE, str(self.wal))
        for setting, value in changes.items():
            text, found = re.subn(rf"^{setting} = \S.*$", f"{setting} = '{value}'", text, flags=re.MULTILINE)
            assert found == 1
        with (data / "postgresql.conf").open("a", encoding="utf-8") as file:
            file.write(text)

    def start(self, data: Path) -> None:
        """Start a server on some data, and wait until it takes changes."""
        port = _port(data)
        words = [*_prefix(), str(self._programs / "postgres"), "-D", str(data), "-c", "listen_addresses="]
        with (self.folder / f"{data.name}.log").open("wb") as log:
            self._running[data] = subprocess.Popen(  # noqa: S603 (from the wheel)
                [*words, "-c", f"unix_socket_directories={self.folder}", "-c", f"port={port}"], stdout=log, stderr=log
            )
        wait_until(lambda: self._answers(data))

    def _answers(self, data: Path) -> bool:
        assert self._running[data].poll() is None, (self.folder / f"{data.name}.log").read_text()
        try:
            return execute(_url(data), "SELECT pg_is_in_recovery()") == [(False,)]
        except Exception:  # noqa: BLE001 (not yet)
            return False

    def stop(self) -> None:
        for server in self._running.values():
            server.terminate()
            server.wait(PATIENCE)


def _prefix() -> tuple[str, ...]:
    return AS_UNPRIVILEGED if os.geteuid() == 0 else ()


def _port(data: Path) -> int:
    """Part of the socket's name, which is not in the data: a base backup would copy it."""
    return 5_000 + len(data.name)


def _url(data: Path) -> str:
    return f"postgresql://postgres@/postgres?host={data.parent}&port={_port(data)}"


@pytest.fixture
def cluster(servers_folder: Path) -> Iterator[Cluster]:
    """One that ends with the test."""
    made = Cluster(servers_folder / "pitr")
    yield made
    made.stop()


def test_a_database_returns_to_a_point_in_time(cluster: Cluster) -> None:
    """After a base backup, changes, and a disaster, the database is what it was the moment before the disaster."""
    data, base, again = (cluster.folder / name for name in ("data", "base", "again"))
    cluster.run("initdb", "-D", str(data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale")
    cluster.include(data, "archiving.conf")
    cluster.start(data)
    asyncio.run(migrated(_url(data)))
    options = (f"--pgdata={base}", "--checkpoint=fast", "--wal-method=stream")
    assert set(options[1:]) <= set(PAGE.read_text(encoding="utf-8").split())
    cluster.run("pg_basebackup", "-h", str(cluster.folder), "-p", str(_port(data)), "-U", "postgres", *options)
    fill(_url(data))
    before = contents(_url(data))
    ((moment,),) = execute(_url(data), "SELECT clock_timestamp()::text")
    execute(_url(data), "SELECT pg_sleep(0.05)")
    execute(_url(data), "TRUNCATE rules, tiers, users, api_keys, tokens CASCADE")
    ((segment,),) = execute(_url(data), "SELECT pg_walfile_name(pg_switch_wal())")
    wait_until((cluster.wal / str(segment)).exists)

    shutil.copytree(base, again)
    for path in [again, *again.rglob("*")]:
        if os.geteuid() == 0:
            os.chown(path, 65534, 65534)
    cluster.include(again, "recovery.conf", recovery_target_time=str(moment))
    (again / "recovery.signal").touch()
    if os.geteuid() == 0:
        os.chown(again / "recovery.signal", 65534, 65534)
    cluster.start(again)
    assert contents(_url(again)) == before
    assert contents(_url(data))["rules"] == []
    execute(_url(again), "INSERT INTO users (id) VALUES ('u1')")
