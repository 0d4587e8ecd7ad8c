"""Who may ask Envoy's rate-limit service: by token, by certificate, as of the decision service."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest
import yaml
from tests.acceptance.gateways import DEPLOY, Upstream, envoy, upstream
from tests.support.authority import Authority
from tests.support.envoy_messages import answer, question
from tests.support.service import PATIENCE
from tests.support.valkey import free_port

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.service import Service, Start

__all__ = ["upstream"]

RULES = "rules: [{name: two, per: [ip], limits: 2/day}]"
TOKEN = "the-token-of-this-test"  # noqa: S105 (for a test)
METHOD = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
HEALTH = "/grpc.health.v1.Health/Check"
QUESTION = question("web", {"entries": {"remote_address": "203.0.113.9"}})
PLAIN = "grpc_service: { envoy_grpc: { cluster_name: headgate } }"


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    file = tmp_path / "rules.yaml"
    file.write_text(RULES)
    return file


@pytest.fixture
def ours(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ours")


def address_of(service: Service) -> str:
    found = re.search(r"^  grpc +(\S+)", service.output, re.MULTILINE)
    assert found is not None, service.output
    return found[1]


def asked(channel: grpc.Channel, metadata: Sequence[tuple[str, str]] = (), method: str = METHOD) -> bytes | str:
    """The answer to a call, or the name of the status it ends with."""
    made: Any = channel.unary_unary(method)
    try:
        message: bytes = made(QUESTION if method == METHOD else b"", timeout=PATIENCE, metadata=metadata)
    except grpc.RpcError as error:
        return str(error.code().name)
    return message


def test_a_token_opens_the_rate_limit_service(start: Start, rules: Path) -> None:
    """Without the token calls end with UNAUTHENTICATED and nothing is counted; health is open, as /readyz is."""
    service = start("--rules", str(rules), service_token=TOKEN)
    with grpc.insecure_channel(address_of(service)) as channel:
        for wrong in ([], [("authorization", f"Bearer {TOKEN}x")], [("authorization", TOKEN)]):
            assert asked(channel, wrong) == "UNAUTHENTICATED"
        assert asked(channel, method=HEALTH) == b"\x08\x01"
        for left, right in ((1, ("authorization", f"Bearer {TOKEN}")), (0, ("x-headgate-token", TOKEN))):
            message = asked(channel, [right])
            assert isinstance(message, bytes)
            assert answer(message).statuses[0].limit_remaining == left
        assert asked(channel) == "UNAUTHENTICATED"  # on a connection that has shown it before


@pytest.mark.parametrize("mutual", [False, True])
def test_the_rate_limit_service_over_tls(
    start: Start, rules: Path, ours: Authority, tmp_path: Path, *, mutual: bool
) -> None:
    """By the same certificates as HTTPS; with a CA for callers only for those it has signed, and never in the clear."""
    other = Authority(tmp_path, "other")
    certificate, key = ours.certificate("service")
    files = {"tls_cert": certificate, "tls_key": key} | ({"tls_client_ca": str(ours.file)} if mutual else {})
    service = start("--rules", str(rules), service_token=TOKEN, **files)
    token = grpc.access_token_call_credentials(TOKEN)
    answers = []
    for signer in (None, ours, other):
        signed = [] if signer is None else [Path(file).read_bytes() for file in signer.certificate("caller")]
        tls = grpc.ssl_channel_credentials(ours.file.read_bytes(), *reversed(signed))
        with grpc.secure_channel(address_of(service), grpc.composite_channel_credentials(tls, token)) as channel:
            answers.append(isinstance(asked(channel), bytes))
        if signer is ours:
            with grpc.secure_channel(address_of(service), tls) as channel:
                assert asked(channel) == "UNAUTHENTICATED"
                assert asked(channel, method=HEALTH) == b"\x08\x01"
    with grpc.insecure_channel(address_of(service)) as channel:
        answers.append(isinstance(asked(channel, [("authorization", f"Bearer {TOKEN}")]), bytes))
    assert answers == ([False, True, False, False] if mutual else [True, True, True, False])


@pytest.mark.parametrize("token", [TOKEN, "wrong"])
def test_envoy_shows_token_and_certificate(
    start: Start,
    rules: Path,
    ours: Authority,
    tmp_path: Path,
    upstream: Upstream,
    monkeypatch: pytest.MonkeyPatch,
    token: str,
) -> None:
    """With what is shipped for it a real Envoy is answered over mutual TLS; with another token it is not."""
    certificate, key = ours.certificate("service")
    files = {"tls_cert": certificate, "tls_key": key, "tls_client_ca": str(ours.file)}
    service = start("--rules", str(rules), service_token=TOKEN, **files)
    ours.certificate("caller")
    monkeypatch.setenv("HEADGATE_SERVICE_TOKEN", token)
    changed = (DEPLOY / "envoy" / "rls_protected.yaml").read_text().replace("/etc/envoy", str(tmp_path))
    grpc_service, socket = yaml.safe_load(changed).values()
    changes = {
        PLAIN: f"grpc_service: {json.dumps(grpc_service)}",
        "connect_timeout: 0.2s": f"connect_timeout: 5s\n      transport_socket: {json.dumps(socket)}",
        "failure_mode_deny: false": "failure_mode_deny: true",
        "timeout: 2.5s": f"timeout: {PATIENCE}s",
    }
    ports = {8000: free_port(), 8082: int(address_of(service).rpartition(":")[2]), 9000: upstream.port}
    with envoy(tmp_path, "rls.yaml", ports, **changes) as client:
        codes = [client.get("/").status_code for _ in range(3)]
    assert codes == ([200, 200, 429] if token == TOKEN else [500] * 3)
