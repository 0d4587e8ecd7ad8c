"""Who may ask the service: by token, by certificate."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from pathlib import Path

    from tests.acceptance.conftest import Run, Start

RULES = "rules: [{name: two, per: [user], limits: 2/minute}]"
TOKEN = "t0ken"  # noqa: S105 (for a test)


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    file = tmp_path / "rules.yaml"
    file.write_text(RULES)
    return file


class Authority:
    """Signs certificates, in files of a folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(self._signed(self.name, self.key).public_bytes(serialization.Encoding.PEM))

    def _signed(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
        now = datetime.now(UTC)
        is_own = subject == self.name
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=is_own, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
            .sign(self.key, hashes.SHA256())
        )

    def certificate(self, name: str) -> tuple[str, str]:
        """The files of a certificate and of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        signed = self._signed(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), key)
        files = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        files[0].write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        files[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return str(files[0]), str(files[1])


def test_a_token_opens_the_service(start: Start, headgate: Run, rules: Path) -> None:
    """Without the token callers get 401 and nothing is counted; the command line sends it by itself."""
    service = start("--rules", str(rules), service_token=TOKEN)
    assert TOKEN not in service.output
    refused = service.check(user="u")
    assert (refused.status_code, refused.json()["error"]) == (401, "unauthorized")
    assert refused.headers["www-authenticate"] == "Bearer"
    assert service.http.get("/readyz").status_code == 200
    service.http.headers["X-Headgate-Token"] = TOKEN
    assert service.check(user="u").json()["remaining"] == 1
    assert headgate("check", "--user", "u", "--url", service.url, service_token=TOKEN).returncode == 0
    assert headgate("check", "--user", "u", "--url", service.url).returncode == 1


@pytest.mark.parametrize("mutual", [False, True])
def test_https(start: Start, rules: Path, tmp_path: Path, *, mutual: bool) -> None:
    """With a certificate the service speaks HTTPS, and with a CA for callers only to those it has signed."""
    ours, other = Authority(tmp_path, "ours"), Authority(tmp_path, "other")
    certificate, key = ours.certificate("service")
    files = {"tls_cert": certificate, "tls_key": key} | ({"tls_client_ca": str(ours.file)} if mutual else {})
    service = start("--rules", str(rules), **files)
    assert service.url.startswith("https://127.0.0.1:")
    answers = []
    for signer in (None, ours, other):
        context = ssl.create_default_context(cafile=str(ours.file))
        if signer is not None:
            context.load_cert_chain(*signer.certificate("caller"))
        with httpx.Client(verify=context, base_url=service.url) as http:
            try:
                answers.append(http.post("/v1/peek", json={"user": "u"}).status_code)
            except httpx.TransportError:
                answers.append(0)
    assert answers == ([0, 200, 0] if mutual else [200, 200, 200])


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"tls_cert": "x.pem"}, "HEADGATE_TLS_CERT and HEADGATE_TLS_KEY go together"),
        ({"tls_client_ca": "x.pem"}, "HEADGATE_TLS_CERT and HEADGATE_TLS_KEY go together"),
        ({"tls_cert": "x.pem", "tls_key": "x.key"}, "cannot be used: No such file or directory"),
    ],
)
def test_certificates_that_cannot_be_used(headgate: Run, rules: Path, settings: dict[str, str], sentence: str) -> None:
    """A start without what HTTPS needs is refused with a sentence."""
    refused = headgate("serve", "--rules", str(rules), "--port", "0", reader=True, **settings)
    assert refused.returncode == 1
    assert sentence in refused.stderr
    assert "Traceback" not in refused.stderr
