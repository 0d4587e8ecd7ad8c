"""A server in a child process: started, shared with other processes, taken over after a crash, stopped in order.

Three locks in its folder say who does what. `owner.lock` is held by the process that started the server and will stop
it. Other processes only connect, and check now and then that an owner exists; if not, the next one that needs the
server takes over. `keeper.lock` is held by a process that does nothing else than keep the server running (`keep`);
while there is one, others leave it a few seconds to do so. `server.lock` is held by the server itself, through an
inherited descriptor. So a server whose owner died is seen as a server without an owner, and two servers never write in
one folder.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from headgate.adapters.clock import monotonic
from headgate.adapters.file_lock import take_lock
from headgate.adapters.private_files import make_private_folder, open_private
from headgate.errors import HeadgateError, InvalidSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from signal import Signals
    from urllib.parse import SplitResult

    from headgate.adapters.file_lock import Lock
    from headgate.errors import DatabaseError, StoreError


def named_folder(address: SplitResult, data_dir: Path, name: str) -> Path:
    """The folder that ``embedded:///path/to/folder`` names; ``embedded://`` means `name` in the data directory."""
    path = unquote(address.path)
    if address.netloc or address.query or address.fragment or "\0" in path or path[:1] not in {"", "/"}:
        # The URL is not repeated in the message: it may hold a password.
        msg = "embedded:// names a folder or nothing; write embedded:// or embedded:///path/to/folder"
        raise InvalidSettings(msg)
    return Path(path) if path.strip("/") else data_dir / name


@dataclass(frozen=True, slots=True)
class Program:
    """A kind of server, as `EmbeddedServer` runs it."""

    name: str
    keeps: str
    """What is in its folder, in a word."""
    socket: str
    """The file in its folder that it listens on."""
    end: Signals
    """What ends it in order."""
    instead: str
    """What to do where it does not run at all."""
    error: type[StoreError | DatabaseError]
    command: Callable[[Path], list[str]]
    """Make what the server needs in a folder, and return the command that runs it there."""
    answers: Callable[[Path], bool]
    """Whether a server in that folder does its work."""
    end_orphan: Callable[[Path], None]
    """Ask the server in a folder to end, if there is one."""


# Linux ends the server when the thread that started it is gone, however its process died. The wish has to
# be made in the child, and after a change of user, which forgets it. Between fork and exec no Python may run in a
# program with threads, so the child is an interpreter that makes it and then becomes the server. Its parent may be
# gone by then.
_UNTIL_THE_PARENT_DIES: Final = """\
import ctypes, os, sys
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(sys.argv[2]))
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[3], sys.argv[3:])
"""


def until_the_parent_dies(command: Sequence[str], end: Signals) -> list[str]:
    """This command, for a child that gets the signal `end` when the thread that starts it ends, if that can be had."""
    if sys.platform != "linux":
        return list(command)  # what outlives its parent there is ended by the next one to start
    return [sys.executable, "-I", "-S", "-c", _UNTIL_THE_PARENT_DIES, str(os.getpid()), str(int(end)), *command]


_MAX_SOCKET_PATH: Final = 103  # bytes, on macOS; Linux takes four more
_SECONDS_TO_START: Final = 60.0
_SECONDS_TO_STOP: Final = 10.0
_SECONDS_FOR_KEEPER: Final = 5.0
_SECONDS_BETWEEN_TRIES: Final = 0.01
_SECONDS_BETWEEN_LOOKS: Final = 0.25
_ELSEWHERE: Final = "set HEADGATE_DATA_DIR, or write embedded:///path/to/folder"


class EmbeddedServer:
    """The server of a folder, started by this process or by another."""

    def __init__(self, folder: Path, program: Program) -> None:
        """Nothing is started yet, and no folder made."""
        self.folder = folder
        self._program = program
        self._folder = folder.absolute()  # the working directory may change
        self._log = self._folder / f"{program.name.lower()}.log"
        self.socket = self._folder / program.socket
        self._owner_lock: Lock | None = None
        self._keeper_lock: Lock | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._keeper: threading.Thread | None = None
        self._answered = False
        self._next_look = 0.0

    @property
    def serving(self) -> bool:
        """Whether it answered once and has an owner: this process, or another one at the last check."""
        return self._answered and (self._is_owner or self._has_owner())

    @property
    def _is_owner(self) -> bool:
        return self._owner_lock is not None and self._owner_lock.descriptor is not None

    def _has_owner(self) -> bool:
        now = monotonic()
        if now >= self._next_look:
            self._next_look = now + _SECONDS_BETWEEN_LOOKS
            with suppress(OSError):  # it cannot be found out just now
                lock = take_lock(self._folder / "owner.lock")
                if lock is not None:
                    lock.release()
                    self._answered = False
        return self._answered

    def keep(self) -> None:
        """As `start`, in a process that is there to keep it running: others do not start it while this one may."""
        if self._keeper_lock is None or self._keeper_lock.descriptor is None:
            with suppress(OSError):  # `start` says what is wrong
                make_private_folder(self._folder)
                self._keeper_lock = take_lock(self._folder / "keeper.lock")
        self.start()

    def _is_kept(self) -> bool:
        """Whether another process is there to start it."""
        if self._keeper_lock is not None:
            return False
        lock = take_lock(self._folder / "keeper.lock")
        if lock is not None:
            lock.release()
        return lock is None

    def start(self) -> None:
        """Start the server unless another process has, and wait until it answers; the error says what to do."""
        program = self._program
        if sys.platform == "win32":
            msg = f"embedded:// does not work on Windows; {program.instead}"
            raise program.error(msg, transient=False)
        if len(os.fsencode(self.socket)) > _MAX_SOCKET_PATH:
            most = _MAX_SOCKET_PATH - len(program.socket) - 1
            msg = f"the path {self._folder} is too long for a socket, which can have {most} bytes; {_ELSEWHERE}"
            raise program.error(msg, transient=False)
        try:
            make_private_folder(self._folder)
            self._start()
        except OSError as error:
            self.stop()
            msg = f"{program.keeps} cannot be kept in {self._folder}: {error.strerror or error}; {_ELSEWHERE}"
            raise program.error(msg, transient=False) from error
        except HeadgateError:
            self.stop()
            raise

    def _start(self) -> None:
        begun = monotonic()
        deadline = begun + _SECONDS_TO_START
        program = self._program
        launched = False
        while True:
            # The owner may be just starting or just stopping, so each turn checks again which process that is.
            if not self._is_owner and (monotonic() > begun + _SECONDS_FOR_KEEPER or not self._is_kept()):
                self._owner_lock = take_lock(self._folder / "owner.lock")
            if self._is_owner and not self._running():
                if launched:
                    msg = f"the {program.name} server ended at once: {self._last_words()}; its log is {self._log}"
                    raise program.error(msg, transient=False)
                self._launch(deadline)
                launched = True
            if program.answers(self._folder):
                self._answered = True
                return
            self._wait(deadline, f"the {program.name} server in {self._folder} does not answer; its log is {self._log}")

    def _launch(self, deadline: float) -> None:
        server_lock = take_lock(self._folder / "server.lock")
        while server_lock is None:
            self._program.end_orphan(self._folder)  # a dead owner left it behind
            self._wait(
                deadline, f"a {self._program.name} server in {self._folder} has no owner and does not end; kill it"
            )
            server_lock = take_lock(self._folder / "server.lock")
        launched: Future[subprocess.Popen[bytes]] = Future()
        self._keeper = threading.Thread(target=self._keep, args=(server_lock, launched), daemon=True)
        self._keeper.start()
        try:
            self._process = launched.result()
        finally:
            server_lock.release()  # the server has its copy

    def _keep(self, server_lock: Lock, launched: Future[subprocess.Popen[bytes]]) -> None:
        """Start the server and wait until it ends; then release the owner lock, so that any process can start another.

        Linux ends the server with the thread that started it (see `until_the_parent_dies`), and a thread of a pool,
        or of the first caller, may end long before the process does. So the server has a thread of its own.
        """
        try:
            with open_private(self._log, "ab") as log:
                process = subprocess.Popen(  # noqa: S603 (our own server)
                    self._program.command(self._folder),
                    cwd=self._folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=[server_lock.descriptor],  # type: ignore[list-item] # it is held
                    start_new_session=True,  # or ctrl-c would end it before the requests in flight
                )
        except (OSError, HeadgateError) as error:
            launched.set_exception(error)
            return
        launched.set_result(process)
        process.wait()
        self._release_owner_lock()

    def _running(self) -> bool:
        """Whether a child of this process runs; false also in a process that was forked from it."""
        return self._keeper is not None and self._keeper.is_alive()

    def _last_words(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")

    def stop(self) -> None:
        """Stop the server if this process started it, and return when everything is on disk."""
        self._answered = False
        if self._keeper is not None and self._process is not None and self._running():
            self._process.send_signal(self._program.end)
            self._keeper.join(_SECONDS_TO_STOP)
            if self._keeper.is_alive():
                self._process.kill()
                self._keeper.join()
        self._process = None
        self._release_owner_lock()
        if self._keeper_lock is not None:
            self._keeper_lock.release()

    def _release_owner_lock(self) -> None:
        if self._owner_lock is not None:
            self._owner_lock.release()

    def _wait(self, deadline: float, trouble: str) -> None:
        """Pause before the next try, or give up if there was time enough."""
        if monotonic() > deadline:
            raise self._program.error(trouble, transient=True)
        threading.Event().wait(_SECONDS_BETWEEN_TRIES)


class ServerStarter:
    """The starts of a server, one at a time, for programs with an event loop."""

    def __init__(self, server: EmbeddedServer) -> None:
        """Nothing is started yet."""
        self._server = server
        self._starting: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the server, unless it runs. Concurrent calls wait for the same start."""
        if self._server.serving:
            return
        if self._starting is None:
            self._starting = asyncio.get_running_loop().create_task(asyncio.to_thread(self._server.start))
            self._starting.add_done_callback(self._on_start)
        await asyncio.shield(self._starting)

    def _on_start(self, task: asyncio.Task[None]) -> None:
        self._starting = None
        if not task.cancelled():
            task.exception()  # retrieved, or Python warns of it when no caller waits any more

    async def settled(self) -> None:
        """Wait for a running start, so that closing afterwards leaves nothing behind."""
        if self._starting is not None:
            with suppress(HeadgateError):
                await self._starting

    async def stop(self) -> None:
        """Stop the server, if this process started it."""
        await asyncio.to_thread(self._server.stop)
