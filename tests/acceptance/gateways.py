"""What stands around headgate in the tests of gateways: an application behind, and a real proxy in front."""

from __future__ import annotations

import hashlib
import json
import re
import socket
import subprocess
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from tests.support.optional_servers import find_server
from tests.support.service import PATIENCE
from tests.support.valkey import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

DEPLOY = Path(__file__).parents[2] / "deploy"
TWO_A_DAY = "rules: [{name: two, per: [ip], limits: 2/day, algorithm: fixed_window}]"
MANY_A_MINUTE = "rules: [{name: many, per: [ip], limits: 1000/minute}]"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Upstream

    def do_GET(self) -> None:
        if self.headers.get("Upgrade"):
            self._echo()
        elif self.path == "/stream":
            self._stream()
        elif self.path == "/told":
            self._answer(json.dumps({name.lower(): value for name, value in self.headers.items()}).encode())
        else:
            self._answer(b"hello\n")

    def do_POST(self) -> None:
        digest = hashlib.sha256()
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                digest.update(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
        else:
            digest.update(self.rfile.read(int(self.headers["Content-Length"])))
        self._answer(digest.hexdigest().encode())

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self) -> None:
        """Send the first part, and the second only once the client has received the first."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"5\r\nfirst\r\n")
        self.wfile.flush()
        self.server.first_was_seen.wait(PATIENCE)
        self.wfile.write(b"6\r\nsecond\r\n0\r\n\r\n")

    def _echo(self) -> None:
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.end_headers()
        self.wfile.flush()
        while got := self.connection.recv(65_536):
            self.connection.sendall(got)
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (its name there)
        pass


class Upstream(ThreadingHTTPServer):
    """An application that knows nothing of limits."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.first_was_seen = threading.Event()
        self.port: int = self.server_address[1]


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield server
        server.shutdown()


def with_ports(text: str, ports: dict[int, int]) -> str:
    """A shipped configuration, for other ports than the ones that stand in it."""
    return re.sub(r"\b\d{4}\b", lambda found: str(ports.get(int(found[0]), found[0])), text)


@contextmanager
def running(command: list[str], port: int, log: Path) -> Iterator[httpx.Client]:
    """A proxy until the end of the block, and a client of it."""
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)  # noqa: S603 (found on PATH)
    try:
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port), 0.2).close()
                break
            except OSError:
                time.sleep(0.02)
        else:
            pytest.fail(f"{command[0]} did not start:\n{log.read_text()[-3000:]}")
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE, trust_env=False) as client:
            yield client
    finally:
        process.terminate()
        process.wait(PATIENCE)


@contextmanager
def nginx(folder: Path, ports: dict[int, int], **changes: str) -> Iterator[httpx.Client]:
    """The shipped nginx configuration, on other ports; `changes` are texts to replace in its files."""
    program = str(find_server("nginx"))
    for file in (DEPLOY / "nginx").glob("*.conf"):
        text = with_ports(file.read_text(), ports)
        for old, new in changes.items():
            text = text.replace(old, new)
        (folder / file.name).write_text(text)
    config = folder / "nginx.conf"
    places = "".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    config.write_text(
        f"daemon off; master_process off; pid {folder}/pid; error_log stderr;"
        + config.read_text().replace("http {", f"http {{ access_log off; {places}", 1)
    )
    command = [program, "-c", str(config), "-p", str(folder), "-e", "stderr"]
    with running(command, ports[8000], folder / "nginx.log") as client:
        yield client


@contextmanager
def caddy(folder: Path, ports: dict[int, int]) -> Iterator[httpx.Client]:
    """The shipped Caddyfile, on other ports, with nothing to administer it and nothing left behind."""
    program = str(find_server("caddy"))
    config = folder / "Caddyfile"
    shipped = with_ports((DEPLOY / "caddy" / "Caddyfile").read_text(), ports)
    config.write_text(f"{{\n\tadmin off\n}}\n{shipped}")
    places = [f"XDG_CONFIG_HOME={folder}", f"XDG_DATA_HOME={folder}"]
    command = ["env", *places, program, "run", "--config", str(config), "--adapter", "caddyfile"]
    with running(command, ports[8000], folder / "caddy.log") as client:
        yield client


@contextmanager
def traefik(folder: Path, ports: dict[int, int]) -> Iterator[httpx.Client]:
    """The shipped configuration for Traefik, on other ports."""
    program = str(find_server("traefik"))
    config = folder / "dynamic.yaml"
    config.write_text(with_ports((DEPLOY / "traefik" / "dynamic.yaml").read_text(), ports))
    own = free_port()
    command = [
        program,
        "--global.checkNewVersion=false",
        "--global.sendAnonymousUsage=false",
        f"--entryPoints.web.address=127.0.0.1:{ports[8000]}",
        f"--providers.file.filename={config}",
        "--api.insecure=true",
        f"--entryPoints.traefik.address=127.0.0.1:{own}",
    ]
    with running(command, ports[8000], folder / "traefik.log") as client:
        until = time.monotonic() + PATIENCE
        # It listens before it has read its routes.
        while not httpx.get(f"http://127.0.0.1:{own}/api/http/routers/application@file", trust_env=False).is_success:
            assert time.monotonic() < until
            time.sleep(0.02)
        yield client


def everything_passes(client: httpx.Client, upstream: Upstream) -> None:
    """Upgrades, streams and large bodies get through, both ways."""
    body = b"0123456789abcdef" * 65_536 * 4  # 4 MiB
    expected = hashlib.sha256(body).hexdigest()
    assert client.post("/upload", content=body).text == expected
    assert client.post("/upload", content=iter([body[: 2**20], body[2**20 :]])).text == expected
    with client.stream("GET", "/stream") as answer:
        parts = answer.iter_raw()
        assert next(parts) == b"first"
        upstream.first_was_seen.set()
        assert b"".join(parts) == b"second"
    with socket.create_connection((client.base_url.host, client.base_url.port or 80), PATIENCE) as connection:
        connection.sendall(
            b"GET /socket HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        connection.settimeout(PATIENCE)
        head = b""
        while b"\r\n\r\n" not in head:
            head += connection.recv(65_536)
        assert head.startswith(b"HTTP/1.1 101 ")
        for word in (b"ping", b"pong"):
            connection.sendall(word)
            assert connection.recv(65_536) == word


@contextmanager
def envoy(folder: Path, name: str, ports: dict[int, int], **changes: str) -> Iterator[httpx.Client]:
    """A shipped Envoy configuration, on other ports; `changes` are texts to replace in it."""
    program = str(find_server("envoy"))
    text = with_ports((DEPLOY / "envoy" / name).read_text(), ports)
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    config = folder / name
    config.write_text(text)
    command = [program, "-c", str(config), "--concurrency", "1", "--use-dynamic-base-id", "--log-level", "warn"]
    with running(command, ports[8000], folder / "envoy.log") as client:
        yield client
