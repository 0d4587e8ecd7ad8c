"""Killing the processes of a running service, one after another, while clients call it."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import threading
import time
from collections import Counter
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.service import Service

_PAUSE = 0.005
_SERVERS = {"valkey": "/valkey-server", "postgres": "/postgres -D", "checkpointer of postgres": ": checkpointer"}


class Clients:
    """Clients that call a service until the block ends, and try again on a new connection when one breaks."""

    def __init__(self, url: str, count: int = 4) -> None:
        self._url = urlsplit(url)
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._call, args=(f"u{number}",)) for number in range(count)]
        self._lock = threading.Lock()
        self.statuses: Counter[int | str] = Counter()
        self.last_answer = time.monotonic()
        self.longest_gap = 0.0

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _call(self, user: str) -> None:
        connection: HTTPConnection | None = None
        body = json.dumps({"user": user})
        while not self._ended.wait(_PAUSE):
            try:
                if connection is None:
                    connection = HTTPConnection(self._url.hostname or "", self._url.port, timeout=20)
                connection.request("POST", "/v1/check", body)
                answer = connection.getresponse()
                answer.read()
                outcome: int | str = answer.status
                if answer.will_close:
                    connection.close()
                    connection = None
            except (OSError, HTTPException) as error:
                outcome = type(error).__name__
                if connection is not None:
                    connection.close()
                connection = None
            with self._lock:
                self.statuses[outcome] += 1
                if outcome in {200, 429}:
                    now = time.monotonic()
                    self.longest_gap = max(self.longest_gap, now - self.last_answer)
                    self.last_answer = now
        if connection is not None:
            connection.close()

    def take_gap(self) -> float:
        """The longest time without any answer since the last look."""
        with self._lock:
            now = time.monotonic()
            gap, self.longest_gap = max(self.longest_gap, now - self.last_answer), 0.0
            return gap


def descendants(pid: int) -> Iterator[tuple[int, str]]:
    """All processes below one, with their commands."""
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text(encoding="ascii").split():
            try:
                command = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:  # it has just ended
                continue
            yield int(child), command
            yield from descendants(int(child))


def named(service: Service) -> dict[str, int]:
    """The processes of a service that can be killed, but the supervisor."""
    found = dict(service.pids)
    for pid, command in descendants(service.process.pid):
        if "prctl" in command:  # about to become one of these
            continue
        for name, word in _SERVERS.items():
            if word in command:
                found[name] = pid
    return found


def kill(pid: int) -> None:
    """As the kernel does when memory runs out."""
    os.kill(pid, signal.SIGKILL)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def left_in_tmp() -> set[Path]:
    """What services leave beside their data directory."""
    return {*Path(tempfile.gettempdir()).glob("headgate-metrics-*"), *Path(tempfile.gettempdir()).glob(".headgate-*")}


def files_of(pid: int) -> int:
    """How many files a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 (names are enough)


def figures(kind: str, gap: float, statuses: Counter[int | str]) -> dict[str, Any]:
    """What clients have noticed."""
    return {"killed": kind, "longest_gap_seconds": round(gap, 2), "outcomes": dict(statuses)}
