"""flask-limiter and slowapi on headgate's storage: real processes, a real Valkey."""

from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import httpx
import limits.storage
import limits.strategies
import pytest
from limits import RateLimitItemPerHour
from tests.support.valkey import free_port
from tests.support.waiting import wait_until

import headgate.limits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.cluster import ClusterSetup
    from tests.support.sentinel import SentinelSetup
    from tests.support.valkey import Server

EXAMPLES: Final = Path(__file__).parents[2] / "examples"
_PATIENT: Final = "deadline_ms=5000"
"""A server beside many other tests is slower than one that serves."""
_WORKERS: Final = 4


@contextmanager
def _serving(module: str, interface: str, storage: str) -> Iterator[str]:
    """An example, served by four processes; gives its address."""
    port = free_port()
    command = [sys.executable, "-m", "granian", "--interface", interface, "--workers", str(_WORKERS)]
    command += ["--port", str(port), "--no-access-log", f"{module}:app"]
    # Measuring what is covered would keep granian's processes from ending in time.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    environment["STORAGE"] = storage
    process = subprocess.Popen(command, cwd=EXAMPLES, env=environment)  # noqa: S603 (our own words)

    def answers() -> bool:
        with socket.create_connection(("127.0.0.1", port), 1):
            return True

    seen: set[int] = set()

    def several_answer() -> bool:
        # From another address each time, so that no limit is reached.
        transport = httpx.HTTPTransport(local_address=f"127.0.1.{len(asked) % 250 + 1}")
        asked.append(transport)
        with httpx.Client(transport=transport, timeout=20) as client:
            seen.add(client.get(f"http://127.0.0.1:{port}/search").json()["process"])
        return len(seen) > 1

    asked: list[httpx.HTTPTransport] = []
    try:
        wait_until(answers, f"{module} answers")
        wait_until(several_answer, f"several processes of {module} answer")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


@pytest.mark.parametrize(("module", "interface"), [("flask_limiter_app", "wsgi"), ("slowapi_app", "asgi")])
def test_limits_hold_under_four_workers(module: str, interface: str, valkey: Server) -> None:
    """Of 60 calls to four processes at once exactly 20 an hour pass, and the headers tell the truth."""
    apart = httpx.Limits(max_keepalive_connections=0)  # a connection for each, so that all processes are asked
    with (
        _serving(module, interface, f"headgate+{valkey.url}?{_PATIENT}") as url,
        httpx.Client(base_url=url, timeout=20, limits=apart) as client,
    ):

        def call(path: str) -> httpx.Response:
            return client.get(path)

        with ThreadPoolExecutor(8) as threads:
            responses = list(threads.map(call, ["/search"] * 60))
        assert Counter(response.status_code for response in responses) == {200: 20, 429: 40}
        passed = [response for response in responses if response.status_code == 200]
        assert {response.headers["X-RateLimit-Limit"] for response in responses} == {"20"}
        assert {response.headers["X-RateLimit-Remaining"] for response in responses if response not in passed} == {"0"}
        assert all(3_500 < int(response.headers["Retry-After"]) <= 3_600 for response in responses[-5:])
        assert [call("/report").status_code for _ in range(3)] == [200, 200, 429]


@pytest.mark.parametrize("name", sorted(limits.strategies.STRATEGIES))
def test_strategies_on_one_server(name: str, valkey: Server) -> None:
    """Every strategy of limits counts on a real server, and two storages count together."""
    storages = [limits.storage.storage_from_string(f"headgate+{valkey.url}?{_PATIENT}") for _ in range(2)]
    one, other = (limits.strategies.STRATEGIES[name](storage) for storage in storages)
    item = RateLimitItemPerHour(10)
    assert one.hit(item, "a", cost=6)
    assert other.get_window_stats(item, "a").remaining == 4
    assert other.hit(item, "a", cost=4)
    assert not one.test(item, "a")
    assert not one.hit(item, "a")
    one.clear(item, "a")  # what the other clears it would see a second after it was refused
    assert one.hit(item, "a", cost=10)
    assert all(isinstance(storage, headgate.limits.HeadgateStorage) and storage.check() for storage in storages)


def test_a_storage_that_is_dropped_leaves_no_connection(cluster_setup: ClusterSetup) -> None:
    """Also while the map of a cluster was just read, and connections to nodes without slots are being closed."""
    others = threading.enumerate()
    for number in range(5):
        storage = limits.storage.storage_from_string(f"headgate+{cluster_setup.url}?{_PATIENT}")
        limits.strategies.FixedWindowRateLimiter(storage).hit(RateLimitItemPerHour(3), f"dropped-{number}")
        (thread,) = [each for each in threading.enumerate() if each.name == "headgate" and each not in others]
        del storage
        gc.collect()
        thread.join(60)
        assert not thread.is_alive()
        del thread
    gc.collect()  # which would warn of a connection that is still open


def test_cluster_and_sentinel(cluster_setup: ClusterSetup, sentinel_setup: SentinelSetup) -> None:
    """The same on a cluster and behind sentinels."""
    item = RateLimitItemPerHour(3)
    for url in (cluster_setup.url, sentinel_setup.url):
        storage = limits.storage.storage_from_string(f"headgate+{url}?{_PATIENT}")
        for name, kind in limits.strategies.STRATEGIES.items():
            assert [kind(storage).hit(item, name) for _ in range(4)] == [True, True, True, False]
