"""The example applications, each on a real server with four workers, counting on one Valkey."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import httpx
import pytest
from tests.support.valkey import free_port
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.valkey import Server

_EXAMPLES: Final = Path(__file__).parents[2] / "examples"
_UVICORN: Final = ("uvicorn", "--no-proxy-headers", "--no-access-log", "--port", "{port}", "--workers", "{workers}")
_GRANIAN: Final = ("granian", "--interface", "asgi", "--port", "{port}", "--workers", "{workers}")
_GUNICORN: Final = ("gunicorn", "--preload", "--threads", "2", "--bind", "127.0.0.1:{port}", "--workers", "{workers}")
_AIOHTTP: Final = (
    *(
        "gunicorn",
        "--worker-class",
        "aiohttp.GunicornWebWorker",
        "--bind",
        "127.0.0.1:{port}",
        "--workers",
        "{workers}",
    ),
)
SERVERS: Final = {
    "fastapi": (*_UVICORN, "fastapi_app:app"),
    "starlette": (*_GRANIAN, "starlette_app:app"),
    "flask": (*_GUNICORN, "flask_app:app"),
    "django": (*_GUNICORN, "django_app:app"),
    "litestar": (*_UVICORN, "litestar_app:app"),
    "aiohttp": (*_AIOHTTP, "aiohttp_app:app"),
    "daphne": ("daphne", "--port", "{port}", "django_app:asgi"),
}
each = pytest.mark.parametrize("name", SERVERS)
_THROTTLES: Final = (*_GUNICORN, "rest_framework_app:app")


@contextmanager
def _running(name: str, store: str) -> Iterator[list[str]]:
    """A server with four workers; two servers where one has no workers."""
    with ExitStack() as stack:
        yield [stack.enter_context(_serving(name, store)) for _ in range(2 if name == "daphne" else 1)]


def _serving(name: str, store: str) -> AbstractContextManager[str]:
    return _started(name, SERVERS[name], store, _EXAMPLES)


@contextmanager
def _started(name: str, server: tuple[str, ...], store: str, folder: Path) -> Iterator[str]:
    port = free_port()
    words = [word.format(port=port, workers=4) for word in server]
    environment = {**os.environ, "REDIS_URL": store, "PYTHONWARNINGS": "default"}
    command = [sys.executable, "-m", *words]
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL) as process:  # noqa: S603 (ours)
        try:
            address = f"http://127.0.0.1:{port}"
            wait_until(lambda: _answers(address), f"{name} answers")
            yield address
        finally:
            process.terminate()
            process.wait(timeout=20)


def _answers(address: str) -> bool:
    try:
        return _get(address, "/health").status_code == 200
    except httpx.TransportError:
        return False


def _get(address: str, path: str, **headers: str) -> httpx.Response:
    """GET on a new connection, so that any worker may answer."""
    with httpx.Client(verify=False, timeout=30, trust_env=False) as client:  # noqa: S501 (no TLS here, so nothing to load)
        return client.get(address + path, headers=headers)


def _raw(address: str, request: str) -> int:
    """The status of a request that is sent unchanged; 0 if the server closes the connection."""
    with socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), timeout=10) as connection:
        connection.sendall(request.encode("latin-1"))
        try:
            answer = http.client.HTTPResponse(connection)
            answer.begin()
        except http.client.HTTPException:
            return 0
        return answer.status


@each
def test_limits_hold_with_four_workers(name: str, valkey: Server) -> None:
    """Of forty searches by one user exactly ten pass, whichever workers answer; other users are not affected."""
    # A long deadline for busy machines: without the server every request would be admitted.
    with _running(name, f"{valkey.url}?deadline_ms=10000") as addresses:
        address = addresses[0]

        def ask(number: int) -> httpx.Response:
            return _get(addresses[number % len(addresses)], f"/search/{number}", **{"x-user": "ann"})

        with ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(ask, range(40)))
        assert Counter(answer.status_code for answer in answers) == {200: 10, 429: 30}
        allowed = [answer for answer in answers if answer.status_code == 200]
        assert {answer.headers["x-ratelimit-remaining"] for answer in allowed} == {str(left) for left in range(10)}
        assert all("ratelimit" in answer.headers for answer in answers)
        refused = next(answer for answer in answers if answer.status_code == 429)
        assert refused.headers["content-type"] == "application/problem+json"
        assert refused.json()["violated-policies"] == ["10-hour"]
        assert int(refused.headers["retry-after"]) >= 1
        assert _get(address, "/search/1", **{"x-user": "bob"}).status_code == 200

        # 1 of 100 is reserved, and 60 are settled: so two reports pass, and a third does not. What a call has cost is
        # booked when it is over, which may be after its answer; until then one that costs nothing passes.
        pages = [_get(address, "/report?pages=60", **{"x-user": "ann"}).status_code for _ in range(2)]
        assert pages == [200, 200]
        wait_until(
            lambda: _get(address, "/report?pages=0", **{"x-user": "ann"}).status_code == 429, "a report is refused"
        )
        assert _get(address, "/report?pages=60", **{"x-user": "ann"}).status_code == 429
        assert "ratelimit" not in _get(address, "/health").headers

        if name != "litestar":  # it asks no middleware about calls without a route
            _spellings(address)


def test_throttles_hold_with_four_workers(valkey: Server) -> None:
    """Of forty calls to a view of Django REST framework exactly ten pass; all answers have headers."""
    store = f"{valkey.url}?deadline_ms=10000"
    folder = Path(__file__).parents[1] / "support"
    with _started("rest_framework", _THROTTLES, store, folder) as address, ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda number: _get(address, f"/search/{number}", **{"x-user": "ann"}), range(40)))
        assert Counter(answer.status_code for answer in answers) == {200: 10, 429: 30}
        left = {answer.headers["x-ratelimit-remaining"] for answer in answers if answer.status_code == 200}
        assert left == {str(number) for number in range(10)}
        assert all(int(answer.headers["retry-after"]) >= 1 for answer in answers if answer.status_code == 429)
        assert _get(address, "/search/1", **{"x-user": "bob"}).status_code == 200


def _spellings(address: str) -> None:
    """Another spelling is the same caller at the same endpoint, or is refused."""
    paths = ["/login", "/login/", "//login", "/lo%67in", "/%6cogin?a=1", "/./login", "/x/../login", "/x/%2e%2e/login"]
    spoofed = ["", "X-Forwarded-For: 1.2.3.4\r\n", "X-Forwarded-For: 5.6.7.8\r\nX-Forwarded-For: 9.9.9.9\r\n"]
    spoofed += ["Forwarded: for=1.2.3.4\r\n", "X-Real-IP: 1.2.3.4\r\nX-User: \r\n", "X-User: a\r\nX-User: b\r\n"]
    spoofed += ["X-User: \xff\xfe\r\n", "Authorization: Bearer x\r\nAuthorization: Bearer y\r\n"]
    statuses = [
        _raw(address, f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nConnection: close\r\n{lines}\r\n")
        for path in paths
        for lines in spoofed
    ]
    counts = Counter(statuses)
    assert counts[429] >= 20, counts
    passed = counts[404] + counts[405] + counts[307] + counts[308]  # there is no login, so whatever passes ends here
    assert passed == 5, counts
    assert set(counts) <= {0, 307, 308, 400, 404, 405, 429}, counts


def test_memory_for_several_workers_is_refused() -> None:
    """Four workers with memory:// would multiply every limit, so the server does not start."""
    words = [word.format(port=free_port(), workers=4) for word in SERVERS["flask"]]
    environment = {**os.environ, "REDIS_URL": "memory://"}
    server = subprocess.Popen(  # noqa: S603 (ours)
        [sys.executable, "-m", *words], cwd=_EXAMPLES, env=environment, stderr=subprocess.PIPE, text=True
    )
    try:
        assert server.stderr is not None
        assert any("every limit would be multiplied" in line for line in server.stderr)
    finally:
        server.terminate()
        server.communicate(timeout=20)
