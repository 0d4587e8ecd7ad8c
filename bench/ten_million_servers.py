"""The servers of `bench.ten_million`: a Valkey that keeps its data, the whole service, and what all of them use.

They are in process groups of their own: a signal to the group of the benchmark leaves it to the benchmark to stop them.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bench.server import Server, connected, free_port, programs

if TYPE_CHECKING:
    from collections.abc import Iterator

_SECONDS = 120.0


@contextmanager
def open_valkey(folder: Path) -> Iterator[Server]:
    """A server on what was saved in the folder."""
    port = free_port()
    options = {"bind": "127.0.0.1", "port": port, "dir": folder, "logfile": folder / "valkey.log", "save": ""}
    command = [programs()[0], *(f"{part}" for name, value in options.items() for part in (f"--{name}", value))]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, process_group=0)  # noqa: S603 (our own server)
    try:
        server = connected(port, folder / "valkey.log")
        while server.info("persistence")["loading"] == "1":
            time.sleep(0.1)  # until it has read what was saved; nothing else tells
        yield server
        server.close()
    finally:
        process.kill()
        process.wait()


class Service:
    """A running `headgate serve`."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.pid = process.pid
        self.port = port

    def samples(self) -> dict[str, float]:
        """Its metrics, summed up over their labels."""
        found: dict[str, float] = {}
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=_SECONDS) as answer:
            for line in answer.read().decode().splitlines():
                if not line.startswith("#"):
                    name, _, value = line.rpartition(" ")
                    name = name.partition("{")[0]
                    found[name] = found.get(name, 0.0) + float(value)
        return found

    def record_use(self) -> tuple[float, float]:
        """How many records were in memory so far, and how many were not."""
        samples = self.samples()
        return samples["headgate_record_cache_hits_total"], samples["headgate_record_cache_misses_total"]

    def cpu_seconds(self) -> tuple[float, float]:
        """What all its processes have worked so far: its own, and those of PostgreSQL."""
        worked = [0.0, 0.0]
        for each in _processes(self.pid):
            worked[each.is_postgres] += each.cpu_seconds
        return worked[0], worked[1]


@contextmanager
def open_service(folder: Path, redis_url: str, settings: dict[str, str]) -> Iterator[Service]:
    """The product as people run it, with the rules and the database of the folder."""
    port = free_port()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HEADGATE_")}
    mine = {
        "RULES_FILE": f"{folder}/rules.yaml",
        "DATABASE_URL": f"embedded://{folder}/postgres",
        "DATA_DIR": f"{folder}",
        "REDIS_URL": redis_url,
        "PORT": f"{port}",
        "ADMIN_PORT": "0",
        "GRPC_PORT": "0",
        "NOTICE_SECONDS": "0",
        **settings,
    }
    environment |= {f"HEADGATE_{name}": value for name, value in mine.items()}
    command = [Path(sys.executable).with_name("headgate"), "serve"]
    with (
        (folder / "service.log").open("wb") as log,
        subprocess.Popen(  # noqa: S603 (our own)
            command, stdout=subprocess.PIPE, stderr=log, env=environment, process_group=0
        ) as process,
    ):
        assert process.stdout is not None
        try:
            while line := process.stdout.readline():
                if re.search(rb"ctrl-c", line):
                    break
            else:
                raise RuntimeError((folder / "service.log").read_text(encoding="utf-8"))
            yield Service(process, port)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(_SECONDS)


class _Process(NamedTuple):
    """One process below the service, or the service itself."""

    pid: int
    name: str
    cpu_seconds: float
    """What it has worked, with those of its children that have ended."""

    @property
    def is_postgres(self) -> bool:
        return "postgres" in self.name


def _processes(service: int) -> Iterator[_Process]:
    """All processes of a service: the supervisor, those that it started, and those that they started."""
    found: dict[int, list[_Process]] = {}
    tick = os.sysconf("SC_CLK_TCK")
    for each in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, tail = each.read_text(encoding="utf-8").rpartition(")")
        except OSError:  # it has just ended
            continue
        pid, _, name = head.partition(" (")
        fields = tail.split()
        process = _Process(int(pid), name, sum(map(int, fields[11:15])) / tick)
        found.setdefault(int(fields[1]), []).append(process)
        if process.pid == service:
            yield process
    todo = [service]
    while todo:
        children = found.get(todo.pop(), [])
        yield from children
        todo += [child.pid for child in children]


def process_megabytes(service: int, server: Server) -> dict[str, float]:
    """The memory of each process below the service and of Valkey, by what it is; what several share counts in parts."""
    found: dict[str, float] = {}
    for each in _processes(service):
        name = "postgres, all processes" if each.is_postgres else f"{each.name}, of headgate serve"
        found[name] = found.get(name, 0.0) + _megabytes(each.pid)
    found["valkey"] = _megabytes(int(server.info("server")["process_id"]))
    found["load generator"] = _megabytes(os.getpid())
    return {name: round(value, 1) for name, value in found.items()}


def _megabytes(pid: int) -> float:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    except OSError:
        return 0.0
    found = re.search(r"^Pss: +(\d+) kB", text, re.MULTILINE)
    return int(found[1]) * 1024 / 1e6 if found is not None else 0.0
