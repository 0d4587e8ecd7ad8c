"""Who may ask the service: by token, by certificate."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import httpx
import pytest
from tests.support.authority import Authority

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.service import Run, Start

RULES = "rules: [{name: two, per: [user], limits: 2/minute}]"
TOKEN = "the-token-of-this-test"  # noqa: S105 (for a test)


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    file = tmp_path / "rules.yaml"
    file.write_text(RULES)
    return file


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
