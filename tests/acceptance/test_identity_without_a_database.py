"""Addresses behind proxies and tokens say who calls, also where there is no database."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest
from tests.acceptance.gateways import Upstream, upstream
from tests.acceptance.test_gateways_command import Gateway
from tests.unit.dataplane.signing import SECRET, jwk, private_key, signed

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.service import Run, Service, Start
    from tests.support.valkey import Server

__all__ = ["upstream"]

PER_ADDRESS = "rules: [{name: two, per: [ip], limits: 2/day, algorithm: fixed_window}]"
PER_USER = "rules: [{name: two, per: [user], limits: 2/day, algorithm: fixed_window}]"


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    file = tmp_path / "rules.yaml"
    file.write_text(PER_ADDRESS)
    return file


def forwarded(service: Service, address: str) -> int:
    """The status of a call that a proxy forwards for a caller at `address`."""
    return service.http.get("/v1/forward-auth", headers={"X-Forwarded-For": address}).status_code


def borne(service: Service, token: str) -> int:
    """The status of a call with a token."""
    return service.http.get("/v1/forward-auth", headers={"Authorization": f"Bearer {token}"}).status_code


def claims(user: str) -> dict[str, object]:
    return {"sub": user, "exp": int(time.time()) + 3_600}


def test_one_caller_behind_a_proxy_does_not_lock_out_another(start: Start, rules: Path) -> None:
    """With trusted proxies, callers are counted by the address that the proxy states."""
    service = start("--rules", str(rules), trusted_proxies="127.0.0.0/8")
    assert [forwarded(service, "203.0.113.9") for _ in range(3)] == [200, 200, 429]
    assert forwarded(service, "203.0.113.10") == 200


def test_without_trusted_proxies_no_header_counts(start: Start, rules: Path) -> None:
    """A caller that invents addresses is counted by its own."""
    service = start("--rules", str(rules))
    assert [forwarded(service, f"203.0.113.{number}") for number in range(3)] == [200, 200, 429]


def test_tokens_say_who_calls(start: Start, rules: Path) -> None:
    """A sound token is counted by its user; an unsound one by the address."""
    rules.write_text(PER_USER)
    service = start("--rules", str(rules), jwt_algorithms="HS256", jwt_key=SECRET)
    ann, bob = (signed(claims(user)) for user in ("ann", "bob"))
    assert [borne(service, ann) for _ in range(3)] == [200, 200, 429]
    assert borne(service, bob) == 200
    invented = [signed(claims(f"u{number}"), f"{SECRET}{number}") for number in range(3)]
    assert [borne(service, token) for token in invented] == [200, 200, 429]


def test_every_worker_knows_the_keys_of_tokens(start: Start, rules: Path, tmp_path: Path, valkey: Server) -> None:
    """Keys from a JWKS are fetched in each process, and processes share counters on Redis."""
    rules.write_text(PER_USER)
    keys = tmp_path / "jwks.json"
    keys.write_text(json.dumps({"keys": [jwk("P-256", "ES256", kid="one")]}))
    service = start(
        *("--rules", str(rules), "--workers", "2"),
        redis_url=valkey.url,
        jwt_algorithms="ES256",
        jwt_jwks_url=keys.as_uri(),
    )
    header = {"alg": "ES256", "kid": "one"}
    for user in ("ann", "bob", "cem"):
        token = signed(claims(user), private_key("P-256"), "ES256", header)
        assert sorted(borne(service, token) for _ in range(4)) == [200, 200, 429, 429]


def test_the_gateway_counts_by_the_address_behind_a_proxy(upstream: Upstream, rules: Path) -> None:
    """A proxy in front of the gateway is trusted by the same setting."""
    with (
        Gateway(upstream, "--rules", str(rules), redis_url="memory://", trusted_proxies="127.0.0.0/8") as gateway,
        gateway.client() as client,
    ):

        def called(address: str) -> int:
            return client.get("/", headers={"X-Forwarded-For": address}).status_code

        assert [called("203.0.113.9") for _ in range(3)] == [200, 200, 429]
        assert called("203.0.113.10") == 200


def test_a_caller_of_the_gateway_cannot_choose_its_address(upstream: Upstream, rules: Path) -> None:
    """Without trusted proxies no header counts there either, not even for callers on the same machine."""
    with Gateway(upstream, "--rules", str(rules), redis_url="memory://") as gateway, gateway.client() as client:
        invented = [{"X-Forwarded-For": f"203.0.113.{number}"} for number in range(3)]
        assert [client.get("/", headers=headers).status_code for headers in invented] == [200, 200, 429]


def test_the_gateway_sends_the_service_token(upstream: Upstream, rules: Path) -> None:
    """With a service token the gateway decides as it does without; before, it refused every call with 401."""
    token = "5%to%%ken-of-some-length"  # noqa: S105 (made up)
    with (
        Gateway(upstream, "--rules", str(rules), redis_url="memory://", service_token=token) as gateway,
        gateway.client() as client,
    ):
        sent = {"X-Headgate-Token": "the caller's own"}
        assert [client.get("/", headers=sent).status_code for _ in range(3)] == [200, 200, 429]


def test_the_gateway_refuses_tls_that_it_could_not_speak(headgate: Run, rules: Path) -> None:
    """The service behind the gateway is asked without TLS, so a certificate for it is refused with what to do."""
    options = ("--upstream", "http://127.0.0.1:9", "--rules", str(rules), "--port", "0")
    ended = headgate("gateway", *options, tls_cert="cert.pem", tls_key="key.pem", port="8080")
    assert ended.returncode == 1
    assert "HEADGATE_TLS_CERT and HEADGATE_TLS_KEY would keep Envoy from the service" in ended.stderr


def test_the_gateway_reads_tokens(upstream: Upstream, rules: Path) -> None:
    """Tokens are counted by their users behind the gateway, too."""
    rules.write_text(PER_USER)
    with (
        Gateway(
            upstream, "--rules", str(rules), redis_url="memory://", jwt_algorithms="HS256", jwt_key=SECRET
        ) as gateway,
        gateway.client() as client,
    ):

        def called(user: str) -> int:
            return client.get("/", headers={"Authorization": f"Bearer {signed(claims(user))}"}).status_code

        assert [called("ann") for _ in range(3)] == [200, 200, 429]
        assert called("bob") == 200


@pytest.mark.parametrize(
    ("name", "value"),
    [("api_key_header", "X-Key"), ("on_unknown_identity", "default")],
)
def test_what_needs_a_database_is_refused_without_one(headgate: Run, rules: Path, name: str, value: str) -> None:
    """Keys and users are on record in a database; a setting about them without one stops the start."""
    ended = headgate("serve", "--rules", str(rules), "--port", "0", reader=True, **{"grpc_port": "0", name: value})
    assert ended.returncode == 1
    assert f"HEADGATE_{name.upper()}" in ended.stderr
    assert "HEADGATE_DATABASE_URL" in ended.stderr


def test_tokens_that_could_not_be_verified_stop_the_start(headgate: Run, rules: Path) -> None:
    """A key without its algorithms is refused with a file of rules as it is with a database."""
    ended = headgate("serve", "--rules", str(rules), "--port", "0", grpc_port="0", jwt_key=SECRET)
    assert ended.returncode == 1
    assert "HEADGATE_JWT_ALGORITHMS is not set" in ended.stderr
    assert SECRET not in ended.stderr
