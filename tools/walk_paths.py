"""Walk four paths through the product and count them: calls, files, switches from one file to another.

    .venv/bin/python tools/walk_paths.py [--list PATH]

A call is a Python function of `headgate` that is entered, or a coroutine that is resumed. A file is one of its
modules. A switch is a call in another file than the call before. The paths are driven through public interfaces
only (an HTTP port, the admin API, `Limiter.open`), so the script measures any revision: set PYTHONPATH to its
`src`. Background work adds calls at random, so the shortest of several walks counts. The rule change and the event
need a second or two in which background work runs too; they count what an idle second does not.
`--list http` (or records, memory, rule, event) prints the files of one path in the order in which they are entered.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType

import headgate

_SOURCE: Final = str(Path(headgate.__file__).parent)
_TOKEN: Final = "walk-walk-walk-walk-walk"  # noqa: S105 (of a service that lives for a few seconds)
_PATIENCE: Final = 60.0
_WALKS: Final = 15
_RULE: Final[dict[str, Any]] = {
    "name": "search",
    "match": {"endpoints": ["/search"]},
    "per": ["user"],
    "limits": "1000000/hour",
}
_CHECK: Final = {"user": "u1", "method": "GET", "path": "/search"}


_TITLES: Final = {
    "http": "check on Redis by HTTP",
    "records": "the same with a database",
    "memory": "check in memory",
    "rule": "rule change",
    "event": "event of a denial",
}


class Walk(NamedTuple):
    """The calls of one path, in order: each as file and function."""

    calls: Sequence[tuple[str, str]]

    @property
    def files(self) -> Sequence[str]:
        """The files entered, in the order of their first call."""
        return list(dict.fromkeys(file for file, _ in self.calls))

    @property
    def switches(self) -> int:
        """How often a call is in another file than the one before it."""
        return sum(before[0] != after[0] for before, after in zip(self.calls, self.calls[1:], strict=False))

    def without(self, idle: Walk) -> Walk:
        """What is not in `idle`: functions that background work calls too do not count."""
        known = set(idle.calls)
        return Walk([call for call in self.calls if call not in known])


class Recorder:
    """Writes down every call in `headgate`, on all threads, while it is on."""

    def __init__(self) -> None:
        """Hook into this thread and all that start later."""
        self.calls: list[tuple[str, str]] = []
        self.is_on = False
        sys.setprofile(self._on_event)
        threading.setprofile(self._on_event)

    def _on_event(self, frame: FrameType, event: str, _arg: object) -> None:
        if self.is_on and event == "call" and frame.f_code.co_filename.startswith(_SOURCE):
            self.calls.append((frame.f_code.co_filename[len(_SOURCE) + 1 :], frame.f_code.co_name))


def serve(records: Path, arguments: Sequence[str]) -> None:
    """`headgate serve` with a recorder: SIGUSR1 starts it, SIGUSR2 stops it and writes what it has."""
    recorder = Recorder()

    def start(*_args: object) -> None:
        recorder.calls.clear()
        recorder.is_on = True

    def stop(*_args: object) -> None:
        recorder.is_on = False
        part = records.with_suffix(".part")
        part.write_text(json.dumps(recorder.calls), encoding="utf-8")
        part.rename(records)

    signal.signal(signal.SIGUSR1, start)
    signal.signal(signal.SIGUSR2, stop)
    from headgate.cli.main import main  # noqa: PLC0415 (only in the child)

    sys.argv = ["headgate", "serve", *arguments]
    main()


class Service:
    """A running service in a child process, and what it records."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path, ports: Sequence[int]) -> None:
        """`ports`: of decisions and of the admin API."""
        self._process, self._records = process, folder / "calls.json"
        self.folder, self.ports = folder, ports

    def walk(self, act: Callable[[], object]) -> Walk:
        """The calls that something brings about."""
        self._records.unlink(missing_ok=True)
        main = self._main()
        os.kill(main, signal.SIGUSR1)
        time.sleep(0.02)  # a signal has no answer
        act()
        os.kill(main, signal.SIGUSR2)
        _until(self._records.exists)
        return Walk([(file, name) for file, name in json.loads(self._records.read_text(encoding="utf-8"))])

    def _main(self) -> int:
        """The process that answers: a child of the supervisor, with the recorder that it was forked with."""
        listed = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text(encoding="ascii")
        named = {Path(f"/proc/{pid}/comm").read_text(encoding="ascii").strip(): int(pid) for pid in listed.split()}
        return named["headgate-main"]

    def admin(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 (JSON)
        """What the admin API answers."""
        return _answer(f"http://127.0.0.1:{self.ports[1]}{path}", method, body)

    def is_ready(self) -> bool:
        """Whether it answers."""
        return bool(_answer(f"http://127.0.0.1:{self.ports[0]}/readyz", "GET", None))

    def check(self, path: str) -> Any:  # noqa: ANN401 (JSON)
        """The verdict on one request."""
        return _answer(f"http://127.0.0.1:{self.ports[0]}/v1/check", "POST", {**_CHECK, "path": path})


@contextmanager
def running_service(*arguments: str, **settings: str) -> Iterator[Service]:
    """A service in a child process and a temporary folder; on embedded servers if nothing else is said."""
    with tempfile.TemporaryDirectory() as name:
        folder, ports = Path(name), _free_ports(3)
        environment = {
            **os.environ,
            "HEADGATE_DATA_DIR": str(folder / "data"),
            "HEADGATE_ADMIN_TOKEN": _TOKEN,
            "HEADGATE_PORT": str(ports[0]),
            "HEADGATE_ADMIN_PORT": str(ports[1]),
            "HEADGATE_GRPC_PORT": str(ports[2]),
            **settings,
        }
        log = folder / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(  # noqa: S603 (this very script)
                [sys.executable, __file__, "--serve", str(folder / "calls.json"), *arguments],
                env=environment,
                stdout=output,
                stderr=output,
            )
        service = Service(process, folder, ports)
        try:
            _until(service.is_ready)
            yield service
        except TimeoutError:
            sys.stderr.write(log.read_text(encoding="utf-8"))
            raise
        finally:
            process.terminate()
            process.wait()


def walk_memory() -> Walk:
    """One check in this process."""
    limiter = headgate.Limiter.open("memory://", rules={"rules": [_RULE]})
    request = headgate.Request(user="u1", method="GET", path="/search")
    recorder = Recorder()

    async def checks() -> list[Walk]:
        walks = []
        for _ in range(_WALKS):
            recorder.calls = []
            recorder.is_on = True
            await limiter.check(request)
            recorder.is_on = False
            walks.append(Walk(recorder.calls))
        return walks

    walks = asyncio.run(checks())
    sys.setprofile(None)
    threading.setprofile(None)
    return _shortest(walks)


def walk_services() -> dict[str, Walk]:
    """A check on Redis, a change of a rule, and an event, in running services."""
    with running_service("--database", "embedded://") as service:
        server = next(service.folder.glob("data/**/*.sock"))
        rules = service.folder / "rules.yaml"
        rules.write_text(json.dumps({"rules": [_RULE]}), encoding="utf-8")
        with (
            running_service("--rules", str(rules), HEADGATE_REDIS_URL=f"unix://{server}") as on_redis,
            _connection(on_redis.ports[0]) as send,
        ):
            for _ in range(50):  # the first ones connect and load scripts
                send()
            check = _shortest([on_redis.walk(send) for _ in range(_WALKS)])

        service.admin("POST", "/v1/rules", _RULE)
        strict = {**_RULE, "name": "strict", "match": {"endpoints": ["/strict"]}, "limits": "1/hour"}
        service.admin("POST", "/v1/rules", strict)
        with _connection(service.ports[0]) as send:
            for _ in range(50):  # the first ones look up records too
                send()
            check_with_records = _shortest([service.walk(send) for _ in range(_WALKS)])
        idle = service.walk(lambda: time.sleep(5.0))

        def change() -> None:
            service.admin("PUT", "/v1/rules/search", {**_RULE, "limits": "999999/hour"})
            time.sleep(1.0)

        changed = service.walk(change).without(idle)

        with _connection(service.ports[0], "/strict", status=429) as send:
            service.check("/strict")
            for _ in range(2):
                time.sleep(1.5)  # so that each is confirmed by the store, and the first pays for what only it needs
                send()
            time.sleep(1.5)

            def deny() -> None:
                send()
                time.sleep(3.0)

            event = service.walk(deny).without(idle)
        return {"http": check, "records": check_with_records, "rule": changed, "event": event}


@contextmanager
def _connection(port: int, path: str = "/search", *, status: int = 200) -> Iterator[Callable[[], None]]:
    """A call that sends one check on a kept connection and reads its answer."""
    body = json.dumps({**_CHECK, "path": path}).encode()
    head = f"POST /v1/check HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", port), _PATIENCE) as connection:

        def send() -> None:
            connection.sendall(head + body)
            answer = connection.recv(65_536)
            if not answer.startswith(b"HTTP/1.1 %d" % status):
                msg = f"this is not the answer expected: {answer!r}"
                raise RuntimeError(msg)

        yield send


def _shortest(walks: Sequence[Walk]) -> Walk:
    return min(walks, key=lambda walk: len(walk.calls))


def _answer(url: str, method: str, body: object) -> Any:  # noqa: ANN401 (JSON)
    request = urllib.request.Request(  # noqa: S310 (a loopback address)
        url,
        None if body is None else json.dumps(body).encode(),
        {"authorization": f"Bearer {_TOKEN}", "content-type": "application/json"},
        method=method,
    )
    try:
        with urllib.request.urlopen(request, timeout=_PATIENCE) as answer:  # noqa: S310 (a loopback address)
            return json.load(answer)
    except urllib.error.HTTPError as error:
        if error.code == 429:  # noqa: PLR2004 (a denial is an answer)
            return json.load(error)
        raise RuntimeError(method + " " + url + ": " + error.read().decode()) from error


def _until(happened: Callable[[], object]) -> None:
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        try:
            if happened():
                return
        except OSError:
            pass
        time.sleep(0.05)
    raise TimeoutError


def _free_ports(many: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(many)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def main() -> None:
    """Print the table, or the files of one path."""
    arguments = argparse.ArgumentParser(description="Count calls, files and switches of four paths.")
    arguments.add_argument("--list", choices=list(_TITLES), help="print the files of one path")
    arguments.add_argument("--calls", action="store_true", help="with --list: every call, not only files")
    arguments.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    chosen, others = arguments.parse_known_args()
    if chosen.serve:
        serve(chosen.serve, others)
        return
    walks = {"memory": walk_memory(), **walk_services()}
    if chosen.list:
        walk = walks[chosen.list]
        lines = [f"{file} {name}" for file, name in walk.calls] if chosen.calls else walk.files
        sys.stdout.write("\n".join(lines) + "\n")
        return
    sys.stdout.write("| path | calls | files | of these outside core | switches |\n|---|---|---|---|---|\n")
    for key, title in _TITLES.items():
        walk = walks[key]
        outside = sum(not file.startswith("core/") for file in walk.files)
        sys.stdout.write(f"| {title} | {len(walk.calls)} | {len(walk.files)} | {outside} | {walk.switches} |\n")


if __name__ == "__main__":
    main()
