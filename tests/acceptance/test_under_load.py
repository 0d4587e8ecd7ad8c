"""The service under load, under slow callers, and told to stop in the midst of it."""

from __future__ import annotations

import resource
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING

import httpx
import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.service import Service, Start
    from tests.support.valkey import Server

PLENTY = "rules: [{name: plenty, per: [user], limits: 1000000/3000 days, algorithm: fixed_window}]"


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    file = tmp_path / "rules.yaml"
    file.write_text(PLENTY)
    return file


def keep_asking(service: Service, user: str, answers: threading.Semaphore) -> int:
    """Ask on one connection, again and again, until the service says that it closes it; how often it was answered."""
    with httpx.Client(base_url=service.url, timeout=20) as http:
        answered = 0
        while True:
            answer = http.post("/v1/check", json={"user": user})
            assert answer.status_code == 200
            answered += 1
            answers.release()
            if answer.headers.get("connection") == "close":
                return answered


@pytest.mark.parametrize("workers", ["1", "2"])
def test_sigterm_under_load_loses_nothing(start: Start, rules: Path, valkey: Server, workers: str) -> None:
    """Callers that keep connections get an answer to everything they sent, and are told to go elsewhere in time."""
    user = f"loaded-{workers}"
    service = start("--rules", str(rules), "--workers", workers, redis_url=valkey.url, notice_seconds="0.5")
    answers = threading.Semaphore(0)
    with ThreadPoolExecutor(8) as callers:
        asking = [callers.submit(keep_asking, service, user, answers) for _ in range(8)]
        for _ in range(100):
            answers.acquire()
        service.signal(signal.SIGTERM)
        answered = sum(caller.result(20) for caller in asking)
    assert service.wait() == 0
    assert service.errors == ""
    after = start("--rules", str(rules), redis_url=valkey.url)
    assert after.http.post("/v1/peek", json={"user": user, "cost": 0}).json()["remaining"] == 1_000_000 - answered


def test_a_thousand_slow_callers_delay_no_other_caller(start: Start, rules: Path) -> None:
    """Callers that send half a head or half a body keep a connection each, and no other caller waits for them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    many = 1_000
    if hard != resource.RLIM_INFINITY and hard < 2 * many:
        pytest.skip("this machine allows too few open files")
    service = start("--rules", str(rules), body_seconds="600")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * many), hard))
    half = b"POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n"
    with ExitStack() as stack:
        slow = [stack.enter_context(service.connect()) for _ in range(many)]
        for number, connection in enumerate(slow):
            connection.sendall(half if number % 2 else half + b"\r\n{")
        for turn in range(100):
            slow[turn].sendall(b" ")
            assert service.check(user="quick").status_code == 200
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_body_that_never_ends_is_given_up(start: Start, rules: Path) -> None:
    """Who does not send all of a body in time is told so, and the connection is closed."""
    service = start("--rules", str(rules), body_seconds="0.05")
    answer = service.raw(b"POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{")
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"timeout: the body was not complete after 0.05 seconds" in answer


def test_a_head_that_never_ends_is_given_up(start: Start, rules: Path) -> None:
    """Who does not send all of a head in time is disconnected."""
    service = start("--rules", str(rules), header_seconds="0.05")
    assert not service.raw(b"POST /v1/check HTTP/1.1\r\nHost:").startswith(b"HTTP/1.1 200")


def test_heads_are_bounded(start: Start, rules: Path) -> None:
    """A head beyond the limit is refused, however it is made up, and one below it is not."""
    service = start("--rules", str(rules), header_limit="16384")
    for size, status in ((8_000, 200), (20_000, 431)):
        head = f"POST /v1/check HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Long: {'x' * size}\r\n\r\n"
        assert service.raw(head.encode()).startswith(f"HTTP/1.1 {status} ".encode())
    many = "".join(f"X-{number}: y\r\n" for number in range(150))
    answer = service.raw(f"POST /v1/check HTTP/1.1\r\nHost: x\r\n{many}\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 431 ")
