"""The dashboard when something happens to its session, its service or its connections while a page is open."""

from __future__ import annotations

import re
import socket
from typing import TYPE_CHECKING, Final

import httpx
import pytest
from playwright.sync_api import expect
from tests.support.browser import Watched, chromium
from tests.support.service import Service
from tests.support.valkey import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser
    from tests.support.postgres import Postgres
    from tests.support.valkey import Server

TOKEN: Final = "the-admin-token-of-this-test-0123456789"  # noqa: S105 (used only here)
PATIENCE: Final = 60_000
"""In milliseconds; a busy machine is slow."""


class _Restartable:
    """A service that can be started again on the same ports."""

    def __init__(self, **settings: str) -> None:
        self._settings = {"admin_port": str(free_port()), "admin_token": TOKEN, **settings}
        self.service = self._start()

    def _start(self) -> Service:
        return Service("--admin-port", self._settings["admin_port"], **self._settings)

    def restart(self) -> None:
        self.service = self._start()


@pytest.fixture(scope="module")
def running(postgres: Postgres, _valkey: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Restartable]:
    """One for all tests here."""
    _valkey.revive()
    folder: Path = tmp_path_factory.mktemp("interrupted")
    found = _Restartable(database_url=postgres.new_database(), redis_url=_valkey.url, data_dir=str(folder))
    yield found
    found.service.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for all tests here."""
    with chromium() as opened:
        yield opened


def _raw(service: Service) -> socket.socket:
    url = httpx.URL(service.admin_url)
    return socket.create_connection((url.host, url.port or 80), PATIENCE / 1_000)


@pytest.mark.parametrize("path", ["/v1/overview", "/ui/", "/ui/session", "/"])
@pytest.mark.parametrize("origin", ["http://evil.example", "null"])
def test_no_socket_opens(path: str, origin: str, running: _Restartable) -> None:
    """There are no WebSockets: nothing is upgraded, whatever site asks for it."""
    head = (
        f"GET {path} HTTP/1.1\r\nHost: {httpx.URL(running.service.admin_url).netloc.decode()}\r\nOrigin: {origin}\r\n"
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    with _raw(running.service) as connection:
        connection.sendall(head.encode())
        status = connection.recv(65_536).split(b" ", 2)[1]
    assert status.isdigit()
    assert status != b"101"


def test_a_viewer_that_never_reads_stops_no_other(running: _Restartable) -> None:
    """Twenty connections that send many requests and read nothing: another viewer and a check are answered."""
    service = running.service
    large = f"GET /v1/overview?history=300 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    asking = f"GET /ui/app.js HTTP/1.1\r\nHost: x\r\n\r\n{large}"
    stuck = [_raw(service) for _ in range(20)]
    try:
        for connection in stuck:
            connection.settimeout(0)
            for _ in range(200):
                try:
                    connection.send(asking.encode())
                except BlockingIOError:
                    break
        for _ in range(5):
            assert service.admin.get("/v1/overview").status_code == 200
            assert service.check(user="u", path="/").status_code == 200
    finally:
        for connection in stuck:
            connection.close()


def test_a_token_that_is_revoked_ends_its_open_pages(browser: Browser, running: _Restartable) -> None:
    """The overview asks once a second, so it turns into the sign-in within moments, and shows no more figures."""
    service = running.service
    made = service.admin.post("/v1/tokens", json={"name": "leaving", "role": "viewer"}).json()
    watched = Watched(browser, service.admin_url).sign_in(made["secret"])
    page = watched.go("overview", "Overview")
    page.locator(".rate-denied").wait_for()
    assert service.admin.delete(f"/v1/tokens/{made['token']['id']}").is_success
    page.get_by_text("The session has ended").wait_for(timeout=PATIENCE)
    assert page.locator(".rate-denied").count() == 0
    page.fill("input[name=token]", made["secret"])
    page.click("button[type=submit]")
    page.get_by_text("unknown, expired or revoked").wait_for()
    watched.errors.clear()  # the browser names refused calls
    watched.close()


def test_a_restart_is_seen_and_asks_to_sign_in_again(browser: Browser, running: _Restartable) -> None:
    """While the service is down the page says so and keeps its figures; a new one does not know the session."""
    watched = Watched(browser, running.service.admin_url).sign_in(TOKEN)
    page = watched.go("overview", "Overview")
    page.locator(".rate-denied").wait_for()
    running.service.close()
    expect(page.locator(".live.stale")).to_contain_text(re.compile("Not updated: .*does not answer"), timeout=PATIENCE)
    assert page.locator(".rate-denied").count() == 1
    running.restart()
    page.get_by_text("The session has ended").wait_for(timeout=PATIENCE)
    watched.sign_in(TOKEN)
    page.locator(".rate-denied").wait_for()
    watched.errors.clear()  # the browser names calls that failed
    watched.close()
