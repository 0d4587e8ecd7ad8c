"""The product as people run it: the installed `headgate` command, in processes of its own."""

from __future__ import annotations

import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

import httpx
import pytest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

HEADGATE = str(Path(sys.executable).with_name("headgate"))
EXAMPLE_RULES = Path(__file__).parents[2] / "examples" / "rules.yaml"
_NAMED = "headgate-"
PATIENCE = 60.0
"""Seconds after which something that should have happened has not."""


def environment(**settings: str) -> dict[str, str]:
    """This process's environment, with these settings and no others."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("HEADGATE_")}
    return inherited | {f"HEADGATE_{name.upper()}": value for name, value in settings.items()}


def _admin_port(options: Collection[str], settings: Mapping[str, str]) -> tuple[str, ...]:
    """Any free port for the admin API, where there is one: where there is a database."""
    has_file = "--rules" in options or "rules_file" in settings
    has_database = "--database" in options or "database_url" in settings or "database_url_file" in settings
    return ("--admin-port", "0") if has_database or not has_file else ()


class Service:
    """A running `headgate serve`."""

    program: ClassVar[Sequence[str]] = (HEADGATE,)
    """The command; another version of the product has another one."""

    def __init__(self, *options: str, **settings: str) -> None:
        self.process = subprocess.Popen(  # noqa: S603 (our own command)
            [*self.program, "serve", *_admin_port(options, settings), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(
                **{"notice_seconds": "0", "port": "0", "grpc_port": "0", "flush_seconds": "0.05"} | settings
            ),
            start_new_session=True,
        )
        self.errors = ""
        self.output = ""
        try:
            self.url = self.wait_for_output(r"(?:listens|administers) on (https?://\S+)\n")[1]
            self.wait_for_output("ctrl-c")
        except BaseException:
            self.close()
            raise
        self.http = httpx.Client(base_url=self.url, timeout=PATIENCE)
        self.admin_url = found[1] if (found := re.search(r"^  admin +(\S+)$", self.output, re.MULTILINE)) else ""
        file = re.search(r"^  token +in (.+); ", self.output, re.MULTILINE)
        token = "" if file is None else Path(file[1]).read_text(encoding="ascii").strip()
        self.admin_token = settings.get("admin_token", token)
        self.admin = httpx.Client(
            base_url=self.admin_url, timeout=PATIENCE, headers={"Authorization": f"Bearer {self.admin_token}"}
        )

    @property
    def pids(self) -> dict[str, int]:
        """The processes that the supervisor runs now, by name: ``main``, ``keeper``, ``1``, ``2``."""
        listed = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text(encoding="ascii").split()
        found = {}
        for pid in listed:
            with suppress(OSError):  # it has just ended
                name = Path(f"/proc/{pid}/comm").read_text(encoding="ascii").strip()
                state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
                if name.startswith(_NAMED) and state != "Z":
                    found[name.removeprefix(_NAMED)] = int(pid)
        return found

    @property
    def main(self) -> int:
        """The main process, which answers unless there are workers."""
        return self.pids["main"]

    @property
    def workers(self) -> list[int]:
        """The processes that only answer."""
        return [pid for name, pid in self.pids.items() if name.isdigit()]

    def check(self, **members: object) -> httpx.Response:
        return self.http.post("/v1/check", json=members)

    def connect(self) -> socket.socket:
        url = httpx.URL(self.url)
        return socket.create_connection((url.host, url.port or 80), PATIENCE)

    def raw(self, *parts: bytes) -> bytes:
        """Everything that comes back for bytes on the wire, until the service closes the connection."""
        with self.connect() as connection:
            for part in parts:
                connection.sendall(part)
            answer = b""
            while got := connection.recv(65_536):
                answer += got
            return answer

    def wait_for_output(self, pattern: str) -> re.Match[str]:
        return self._wait(pattern, "output")

    def wait_for_error(self, pattern: str) -> re.Match[str]:
        return self._wait(pattern, "errors")

    def _wait(self, pattern: str, where: str) -> re.Match[str]:
        """Read what the process writes until the pattern is there."""
        stream = self.process.stdout if where == "output" else self.process.stderr
        assert stream is not None
        deadline = time.monotonic() + PATIENCE
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            while True:
                if found := re.search(pattern, getattr(self, where)):
                    return found
                read = b""
                if selector.select(max(0, deadline - time.monotonic())):
                    read = os.read(stream.fileno(), 65_536)
                if not read:
                    self.close()
                    pytest.fail(f"{pattern!r} never came: {self.output}{self.errors}")
                setattr(self, where, getattr(self, where) + read.decode())

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        """Its exit code, once it has ended."""
        output, errors = self.process.communicate(timeout=PATIENCE)
        self.output += output.decode()
        self.errors += errors.decode()
        return self.process.returncode

    def close(self) -> None:
        if hasattr(self, "admin"):
            self.http.close()
            self.admin.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            self.wait()
        except (subprocess.TimeoutExpired, ValueError):  # it hangs, or was read to its end before
            self.process.kill()
            self.process.wait()


class Start(Protocol):
    def __call__(self, *options: str, **settings: str) -> Service: ...


@pytest.fixture
def start() -> Iterator[Start]:
    """Start services; they are stopped when the test ends."""
    started: list[Service] = []

    def begin(*options: str, **settings: str) -> Service:
        service = Service(*options, **settings)
        started.append(service)
        return service

    yield begin
    for service in started:
        service.close()


@pytest.fixture(scope="session")
def service() -> Iterator[Service]:
    """One service with the example rules, for tests that leave it as it was. Users of their own keep them apart."""
    running = Service("--rules", str(EXAMPLE_RULES))
    yield running
    running.close()


class Run(Protocol):
    def __call__(self, *arguments: str, reader: bool = True, **settings: str) -> subprocess.CompletedProcess[str]: ...


@pytest.fixture(scope="session")
def headgate() -> Run:
    """Run the command to its end, in no one's way on the usual ports; without a reader its output is not read."""

    def run(*arguments: str, reader: bool = True, **settings: str) -> subprocess.CompletedProcess[str]:
        command = [HEADGATE, *arguments]
        ports = {"port": "0", "grpc_port": "0"} if arguments[0] == "serve" else {}
        process = subprocess.Popen(  # noqa: S603 (our own command)
            command, env=environment(**ports | settings), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        with process:
            assert process.stdout is not None
            assert process.stderr is not None
            if reader:
                output, errors = process.communicate(timeout=PATIENCE)
            else:
                process.stdout.close()
                output, errors = "", process.stderr.read()
        return subprocess.CompletedProcess(command, process.returncode, output, errors)

    return run
