"""A server in a child process: started, shared, taken over from the dead, and stopped in order.

Two locks in the folder say who is who. `owner.lock` is held by the process that started the
server and will stop it, as long as both live; all others only connect, and look now and then
whether somebody holds it. If not, the next of them who is asked takes over. `server.lock` is
held by the server itself, through a descriptor that it inherits without knowing. So a server
whose owner is dead shows as a server without an owner, and never do two servers write in one
folder.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from headgate.adapters.clock import monotonic
from headgate.adapters.embedded.folder import take_lock
from headgate.errors import HeadgateError

if TYPE_CHECKING:
    from pathlib import Path

    from headgate.adapters.embedded.folder import Lock
    from headgate.adapters.embedded.program import Program

_LONGEST_SOCKET_PATH: Final = 103  # bytes, on macOS; Linux takes four more
_SECONDS_TO_START: Final = 60.0
_SECONDS_TO_STOP: Final = 10.0
_SECONDS_BETWEEN_TRIES: Final = 0.01
_SECONDS_BETWEEN_LOOKS: Final = 0.25
_ELSEWHERE: Final = "set HEADGATE_DATA_DIR, or write embedded:///path/to/folder"


class EmbeddedServer:
    """The server that keeps its data in a folder, whoever started it."""

    def __init__(self, folder: Path, program: Program) -> None:
        """Nothing is started yet, and no folder made."""
        self.folder = folder
        self._program = program
        self._folder = folder.absolute()  # the working directory may change
        self._log = self._folder / f"{program.name.lower()}.log"
        self.socket = self._folder / program.socket
        self._owner_lock: Lock | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._keeper: threading.Thread | None = None
        self._answered = False
        self._next_look = 0.0

    @property
    def serving(self) -> bool:
        """Whether it answered once, and somebody keeps it running: this process, or another when last looked."""
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

    def start(self) -> None:
        """Return when the server answers, starting it if nobody has; raise its kind of error with what to do."""
        program = self._program
        if sys.platform == "win32":
            msg = f"embedded:// does not work on Windows; {program.instead}"
            raise program.error(msg, transient=False)
        if len(os.fsencode(self.socket)) > _LONGEST_SOCKET_PATH:
            most = _LONGEST_SOCKET_PATH - len(program.socket) - 1
            msg = f"the path {self._folder} is too long for a socket, which can have {most} bytes; {_ELSEWHERE}"
            raise program.error(msg, transient=False)
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._start()
        except OSError as error:
            self.stop()
            msg = f"{program.keeps} cannot be kept in {self._folder}: {error.strerror or error}; {_ELSEWHERE}"
            raise program.error(msg, transient=False) from error
        except HeadgateError:
            self.stop()
            raise

    def _start(self) -> None:
        deadline = monotonic() + _SECONDS_TO_START
        program = self._program
        launched = False
        while True:
            # The owner may be just starting or just stopping, so each turn looks anew who that is.
            if not self._is_owner:
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
        """Start the server, stay until it ends, and then let whoever is asked first start another.

        Linux ends it with the thread that started it (see `program.py`), and a thread of a pool, or of
        whoever came first, may end long before the process does. So it has a thread of its own.
        """
        try:
            with self._log.open("ab") as log:
                process = subprocess.Popen(  # noqa: S603 (our own server)
                    self._program.command(self._folder),
                    cwd=self._folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=[server_lock.descriptor],  # type: ignore[list-item] # it is held
                    start_new_session=True,  # or ctrl-c would end it before the requests under way
                )
        except (OSError, HeadgateError) as error:
            launched.set_exception(error)
            return
        launched.set_result(process)
        process.wait()
        self._let_go()

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
        self._let_go()

    def _let_go(self) -> None:
        if self._owner_lock is not None:
            self._owner_lock.release()

    def _wait(self, deadline: float, trouble: str) -> None:
        """Pause before the next try, or give up if there was time enough."""
        if monotonic() > deadline:
            raise self._program.error(trouble, transient=True)
        threading.Event().wait(_SECONDS_BETWEEN_TRIES)
