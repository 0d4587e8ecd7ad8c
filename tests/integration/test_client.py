"""The client library against a real server, over real sockets: httpx with and without await, and requests."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import httpx
import pytest
import requests

from headgate.client import AsyncRateLimitTransport, RateLimitAdapter, RateLimitTransport
from headgate.sync import Limiter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class LimitedServer(ThreadingHTTPServer):
    """Answers fifty calls a second."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        self.limiter = Limiter.open("memory://")
        self.answers: list[int] = []
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        assert isinstance(self.server, LimitedServer)
        verdict = self.server.limiter.hit("all", "50/second")
        self.server.answers.append(200 if verdict.allowed else 429)
        self.send_response(self.server.answers[-1])
        for name, value in verdict.headers().items():
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def server() -> Iterator[LimitedServer]:
    """A limited server in a thread."""
    with LimitedServer() as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def _by_httpx_async(url: str) -> list[int]:
    async def run() -> list[int]:
        async with httpx.AsyncClient(transport=AsyncRateLimitTransport()) as client:
            return [answer.status_code for answer in await asyncio.gather(*[client.get(url) for _ in range(100)])]

    return asyncio.run(run())


def _in_threads(get: Callable[[str], int], url: str) -> list[int]:
    with ThreadPoolExecutor(10) as threads:
        return list(threads.map(get, [url] * 100))


def _by_httpx(url: str) -> list[int]:
    with httpx.Client(transport=RateLimitTransport()) as client:
        return _in_threads(lambda url: client.get(url).status_code, url)


def _by_requests(url: str) -> list[int]:
    with requests.Session() as session:
        session.mount("http://", RateLimitAdapter(pool_maxsize=10))
        return _in_threads(lambda url: session.get(url).status_code, url)


@pytest.mark.parametrize("calls", [_by_httpx_async, _by_httpx, _by_requests])
def test_a_limited_server_is_called_within_its_limit(calls: Callable[[str], list[int]], server: LimitedServer) -> None:
    """A hundred calls by tasks or threads are all answered, though the server admits only fifty a second."""
    assert calls(server.url) == [200] * 100
    assert server.answers.count(429) < 20  # of a naive client's, half
