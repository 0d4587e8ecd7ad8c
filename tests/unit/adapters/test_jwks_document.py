"""Fetching the keys of tokens."""

from __future__ import annotations

import asyncio
import ssl
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from ipaddress import ip_address
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from headgate.adapters import jwks_document
from headgate.adapters.jwks_document import jwks_at
from headgate.errors import HeadgateError, InvalidSettings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Issuer(BaseHTTPRequestHandler):
    """Answers by path."""

    def do_GET(self) -> None:
        status, body = {"/keys": (200, b'{"keys": []}'), "/huge": (200, b" " * 2_000_000)}.get(self.path, (404, b""))
        if self.path == "/elsewhere":
            status = 302
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "/keys")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        """Nothing."""


@pytest.fixture
def issuer(tmp_path: Path) -> Iterator[tuple[str, ssl.SSLContext]]:
    """An issuer with a certificate of its own: its address, and who believes in it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "issuer")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, now - timedelta(days=1), now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path / "certificate.pem"
    file.write_bytes(
        certificate.public_bytes(Encoding.PEM) + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    server = HTTPServer(("127.0.0.1", 0), Issuer)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    serving.start()
    yield f"https://127.0.0.1:{server.server_port}", ssl.create_default_context(cafile=str(file))
    server.shutdown()
    serving.join()
    server.server_close()


async def _fetch(url: str, tls: ssl.SSLContext | None = None) -> bytes:
    return await jwks_at(url, tls)()


def test_keys_come_from_https(issuer: tuple[str, ssl.SSLContext]) -> None:
    """From an issuer whose certificate is believed, and from where it was asked for; no more than is reasonable."""
    url, tls = issuer
    assert asyncio.run(_fetch(f"{url}/keys", tls)) == b'{"keys": []}'
    with pytest.raises(OSError, match="certificate verify failed"):
        asyncio.run(_fetch(f"{url}/keys"))
    with pytest.raises(HeadgateError, match="answered 404"):
        asyncio.run(_fetch(f"{url}/none", tls))
    with pytest.raises(HeadgateError, match="answered 302"):
        asyncio.run(_fetch(f"{url}/elsewhere", tls))
    with pytest.raises(HeadgateError, match="more than"):
        asyncio.run(_fetch(f"{url}/huge", tls))


def test_keys_come_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read anew each time."""
    file = tmp_path / "a key.json"
    file.write_bytes(b"{}")
    url = file.as_uri()
    assert asyncio.run(_fetch(url)) == b"{}"
    monkeypatch.setattr(jwks_document, "_MAX_BYTES", 1)
    with pytest.raises(HeadgateError, match="more than 1 bytes"):
        asyncio.run(_fetch(url))
    file.unlink()
    with pytest.raises(OSError, match="No such file"):
        asyncio.run(_fetch(url))


@pytest.mark.parametrize(
    "url",
    [
        "http://idp.example/keys",
        "HTTPS:///keys",
        "https://",
        "file://elsewhere/keys.json",
        "file://",
        "ftp://x/y",
        "data:application/json,{}",
        "/keys.json",
        "",
        "https://[",
    ],
)
def test_other_places_are_refused(url: str) -> None:
    """Keys fetched without TLS could be forged."""
    with pytest.raises(InvalidSettings, match="https"):
        jwks_at(url)
