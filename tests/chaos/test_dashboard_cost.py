"""Ten people with the overview open: what they take from decisions, in pairs of runs with and without them."""

from __future__ import annotations

import http.client
import json
import multiprocessing
import os
import socket
import statistics
import threading
import time
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

import pytest
from tests.support.service import EXAMPLE_RULES, Service

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.queues import Queue
    from multiprocessing.synchronize import Event

    from tests.chaos.figures import Figures
    from tests.support.postgres import Postgres
    from tests.support.valkey import Server

VIEWERS: Final = 10
PAIRS: Final = 8
SECONDS: Final = 4.0
CONNECTIONS: Final = 8
TOGETHER: Final = 32
"""Requests that a connection sends at once, so that the service has more to do than the client."""
MAX_PERCENT: Final = 2.0
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class Run(NamedTuple):
    """Decisions of some seconds, and the processor time that the service took."""

    decisions: int
    seconds: float
    processor: float


@pytest.fixture
def service(postgres: Postgres, valkey: Server, tmp_path: Path) -> Iterator[Service]:
    """A whole service, with the example rules."""
    urls = {"database_url": postgres.new_database(), "redis_url": valkey.url}
    running = Service("--rules", str(EXAMPLE_RULES), data_dir=str(tmp_path), **urls)
    try:
        yield running
    finally:
        running.close()


def _processor_seconds(pid: int) -> float:
    """Of the process and of those that it started: one of them decides."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    tasks = Path(f"/proc/{pid}/task").iterdir()
    children = [int(child) for task in tasks for child in (task / "children").read_text(encoding="ascii").split()]
    return (int(fields[11]) + int(fields[12])) / _TICKS + sum(map(_processor_seconds, children))


def _ask(url: str, ends: threading.Event, counts: list[int]) -> None:
    """Send checks of many users, so many at once, until it ends."""
    place = urlsplit(url)
    number = made = 0
    with socket.create_connection((place.hostname, place.port)) as connection:
        while not ends.is_set():
            batch = b""
            for _ in range(TOGETHER):
                number += 1
                body = b'{"user":"u%d","method":"GET","path":"/api/search","tier":"premium"}' % (number % 5_000)
                batch += b"POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
            connection.sendall(batch)
            there, tail = 0, b""
            while there < TOGETHER:
                tail += connection.recv(65_536)
                # The last answer is there when its body ends, and every body ends so; no head does.
                there = tail.count(b"HTTP/1.1 ") if tail.endswith(b"}\n") else 0
            made += TOGETHER
    counts.append(made)


def _run(service: Service) -> Run:
    ends, counts = threading.Event(), list[int]()
    threads = [threading.Thread(target=_ask, args=(service.url, ends, counts)) for _ in range(CONNECTIONS)]
    began, before = time.perf_counter(), _processor_seconds(service.process.pid)
    for thread in threads:
        thread.start()
    ends.wait(SECONDS)
    ends.set()
    for thread in threads:
        thread.join()
    return Run(sum(counts), time.perf_counter() - began, _processor_seconds(service.process.pid) - before)


def _view(url: str, token: str, ends: Event, failed: Queue[int]) -> None:
    """What the page does: once a second what happens now, every ten seconds the hottest counters."""
    connections = [http.client.HTTPConnection(urlsplit(url).netloc, timeout=30) for _ in range(VIEWERS)]
    turn = 0
    while not ends.is_set():
        for path in ("/v1/overview?history=1", *(("/v1/hot",) if turn % 10 == 0 else ())):
            for connection in connections:
                connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
                answer = connection.getresponse()
                json.loads(answer.read())
                if answer.status != HTTPStatus.OK:
                    failed.put(answer.status)
        turn += 1
        ends.wait(1.0)
    for connection in connections:
        connection.close()


@contextmanager
def _viewers(service: Service, failed: Queue[int]) -> Iterator[None]:
    """Ten, in a process of their own, so that they take nothing from the load but through the service."""
    spawn = multiprocessing.get_context("spawn")
    ends = spawn.Event()
    process = spawn.Process(target=_view, args=(service.admin_url, service.admin_token, ends, failed))
    process.start()
    try:
        yield
    finally:
        ends.set()
        process.join()


def test_ten_viewers_take_less_than_two_percent(service: Service, figures: Figures) -> None:
    """By processor time: what the service needs for the same decisions with ten viewers, as a share of one core."""
    case = "dashboard, ten viewers"
    failed: Queue[int] = multiprocessing.get_context("spawn").Queue()
    _run(service)  # until it is warm
    shares, ratios = [], []
    for pair in range(PAIRS):
        runs: dict[bool, Run] = {}
        for watched in (False, True) if pair % 2 else (True, False):
            if watched:
                with _viewers(service, failed):
                    runs[True] = _run(service)
            else:
                runs[False] = _run(service)
        alone, beside = runs[False], runs[True]
        extra = beside.processor - alone.processor * beside.decisions / alone.decisions
        shares.append(100 * extra / beside.seconds)
        ratios.append(100 - 100 * (beside.decisions / beside.seconds) / (alone.decisions / alone.seconds))
        figures.note(case, f"pair {pair + 1}, decisions/s alone", alone.decisions / alone.seconds, "")
    assert failed.empty()
    failed.close()
    figures.note(case, "fewer decisions/s, median of pairs", statistics.median(ratios), "%")
    figures.check(case, "of a core, median of pairs", statistics.median(shares), "%", MAX_PERCENT)
