"""Commands find the service on their data directory, and only that one."""

from __future__ import annotations

import os
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, ClassVar

import pytest

from headgate.cli.running_service import of_running_service
from headgate.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class _Answers(BaseHTTPRequestHandler):
    """GET /v1/me, for one token."""

    asked: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        self.asked.append(self.headers["Authorization"])
        self.send_response(200 if self.asked[-1] == "Bearer right" else 401)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def _service(folder: Path, *, process: int, kept: str = "right") -> Iterator[str]:
    """An admin API, and the files of a service that has it."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Answers)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}"
    (folder / "serve-admin.lock").write_text(f"process {process} at http://127.0.0.1:1 and {url}")
    (folder / "admin-token").write_text(f"{kept}\n")
    _Answers.asked.clear()
    try:
        yield url
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_the_service_of_the_data_directory_is_asked_with_its_token(tmp_path: Path) -> None:
    """Without an address, that of the service on the data directory is used, with the token that is kept there."""
    with _service(tmp_path, process=os.getpid()) as url:
        found = of_running_service(Settings(data_dir=tmp_path))
        assert (found.admin_url, found.admin_token) == (url, "right")
        given = of_running_service(Settings(data_dir=tmp_path, admin_token="another"))  # noqa: S106 (made up)
        assert (given.admin_url, given.admin_token) == (None, "another")


@pytest.mark.parametrize(
    "settings", [{"admin_url": "http://127.0.0.1:9"}, {"database_url": "postgresql://elsewhere/headgate"}]
)
def test_another_place_that_was_named_is_left_as_it_is(settings: dict[str, str], tmp_path: Path) -> None:
    """An address or a database of the settings may be that of another service."""
    with _service(tmp_path, process=os.getpid()):
        chosen = Settings(data_dir=tmp_path, **settings)  # type: ignore[arg-type]
        assert of_running_service(chosen) == chosen
        assert _Answers.asked == []


def test_a_service_that_is_gone_gets_no_token(tmp_path: Path) -> None:
    """Another program may have its port."""
    gone = os.fork()
    if gone == 0:
        os._exit(0)
    os.waitpid(gone, 0)
    with _service(tmp_path, process=gone):
        chosen = Settings(data_dir=tmp_path)
        assert of_running_service(chosen) == chosen
        assert _Answers.asked == []


def test_without_a_token_that_it_takes_there_is_no_service(tmp_path: Path) -> None:
    """A service with a token of its own is found by the settings alone."""
    chosen = Settings(data_dir=tmp_path)
    assert of_running_service(chosen) == chosen
    with _service(tmp_path, process=os.getpid(), kept="old"):
        assert of_running_service(chosen) == chosen
    (tmp_path / "admin-token").unlink()
    assert of_running_service(chosen) == chosen
