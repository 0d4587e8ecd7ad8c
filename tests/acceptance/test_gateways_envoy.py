"""A real Envoy asks before it lets a call through, with the configurations that are shipped in deploy/envoy."""

from __future__ import annotations

import re
import socket
from typing import TYPE_CHECKING

import httpx
import pytest
from tests.acceptance.gateways import (
    MANY_A_MINUTE,
    TWO_A_DAY,
    Upstream,
    envoy,
    everything_passes,
    upstream,
)
from tests.support.service import PATIENCE
from tests.support.valkey import free_port

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.service import Service, Start

__all__ = ["upstream"]

BOTH = pytest.mark.parametrize("config", ["rls.yaml", "ext_authz.yaml"])


def ports_of(service: Service, application: Upstream) -> dict[int, int]:
    found = re.search(r"^  grpc +\S+:(\d+)", service.output, re.MULTILINE)
    assert found is not None
    http = httpx.URL(service.url).port or 0
    return {8000: free_port(), 8080: http, 8082: int(found[1]), 9000: application.port}


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    file = tmp_path / "rules.yaml"
    file.write_text(TWO_A_DAY)
    return file


@BOTH
def test_envoy_passes_a_refusal_on_with_status_headers_and_body(
    start: Start, rules: Path, tmp_path: Path, upstream: Upstream, config: str
) -> None:
    """Calls that pass carry the headers; the one too many gets 429, the headers, Retry-After and the problem."""
    service = start("--rules", str(rules))
    with envoy(tmp_path, config, ports_of(service, upstream)) as client:
        passed = [client.get("/api/search?q=1") for _ in range(2)]
        assert [(answer.status_code, answer.text) for answer in passed] == [(200, "hello\n")] * 2
        assert [answer.headers["X-RateLimit-Remaining"] for answer in passed] == ["1", "0"]
        assert passed[0].headers["RateLimit-Policy"] == '"two";q=2;w=86400'
        refused = client.get("/api/search")
        assert refused.status_code == 429
        assert refused.headers["Content-Type"] == "application/problem+json"
        assert 1 <= int(refused.headers["Retry-After"]) <= 86_400
        assert refused.headers["X-RateLimit-Remaining"] == "0"
        assert refused.json()["violated-policies"] == ["two"]


@BOTH
def test_through_envoy_upgrades_streams_and_large_bodies_pass(
    start: Start, rules: Path, tmp_path: Path, upstream: Upstream, config: str
) -> None:
    """Asking before every call changes nothing about what the call may carry."""
    rules.write_text(MANY_A_MINUTE)
    service = start("--rules", str(rules))
    with envoy(tmp_path, config, ports_of(service, upstream)) as client:
        everything_passes(client, upstream)


@pytest.mark.parametrize(
    ("config", "changes", "status"),
    [
        ("rls.yaml", {}, 200),
        ("rls.yaml", {"failure_mode_deny: false": "failure_mode_deny: true"}, 500),
        ("ext_authz.yaml", {}, 200),
        ("ext_authz.yaml", {"failure_mode_allow: true": "failure_mode_allow: false"}, 403),
    ],
)
def test_envoy_lets_calls_pass_or_not_while_headgate_is_unavailable(
    start: Start, rules: Path, tmp_path: Path, upstream: Upstream, config: str, changes: dict[str, str], status: int
) -> None:
    """While headgate is unavailable all calls pass, or none does, as Envoy's configuration says."""
    service = start("--rules", str(rules))
    with envoy(tmp_path, config, ports_of(service, upstream), **changes) as client:
        assert client.get("/").status_code == 200
        service.process.kill()
        service.process.wait()
        assert [client.get("/").status_code for _ in range(3)] == [status] * 3


def test_envoys_failure_mode_holds_while_the_store_is_unavailable(
    start: Start, rules: Path, tmp_path: Path, upstream: Upstream
) -> None:
    """With failure_mode_deny no call passes while the store is unreachable, although the rule would admit it."""
    service = start("--rules", str(rules), redis_url=f"unix://{tmp_path}/no-server")
    changes = {"failure_mode_deny: false": "failure_mode_deny: true"}
    with envoy(tmp_path, "rls.yaml", ports_of(service, upstream), **changes) as client:
        assert client.get("/").status_code == 500


@BOTH
def test_an_encoded_slash_is_no_way_around_a_rule(
    start: Start, rules: Path, tmp_path: Path, upstream: Upstream, config: str
) -> None:
    """Envoy passes one on as it came, and to many applications it is a part of its segment."""
    rules.write_text(TWO_A_DAY.replace("name: two,", "name: two, match: {endpoints: ['/search/{term}']},"))
    service = start("--rules", str(rules))
    with envoy(tmp_path, config, ports_of(service, upstream)) as client:
        assert [client.get(f"/search/a%2F{word}").status_code for word in "bcd"] == [200, 200, 429]


METHOD_ACTION = '- request_headers: { header_name: ":method", descriptor_key: method }\n'
MORE_ACTIONS = """- request_headers: { header_name: x-user, descriptor_key: note, skip_if_absent: true }
                            - request_headers: { header_name: x-real-ip, descriptor_key: ip, skip_if_absent: true }
                        - actions:
                            - remote_address: {}
                            - request_headers: { header_name: ":path", descriptor_key: path }
                            - request_headers: { header_name: x-user, descriptor_key: note, skip_if_absent: true }
"""


@pytest.mark.parametrize(
    "line",
    [
        b"GET /a HTTP/1.1\r\nx-user: \xff\xfe\r\n",
        b"GET /a\xff HTTP/1.1\r\n",
        b"GET /a HTTP/1.1\r\nx-user: " + b"x" * 50_000 + b"\r\n",
        b"GET /" + b"x" * 50_000 + b" HTTP/1.1\r\n",
        b"GET /a HTTP/1.1\r\nx-real-ip: not an address\r\n",
        b"GET /a%00 HTTP/1.1\r\n",
        b"G'T /a HTTP/1.1\r\n",
    ],
    ids=["header-bytes", "path-bytes", "long-header", "long-path", "address", "nul", "method"],
)
def test_nothing_that_a_caller_sends_makes_envoy_let_it_pass(
    start: Start, rules: Path, tmp_path: Path, upstream: Upstream, line: bytes
) -> None:
    """Envoy admits a call on an error, so what a caller can put into a descriptor never is one."""
    service = start("--rules", str(rules))
    ports = ports_of(service, upstream)
    with envoy(tmp_path, "rls.yaml", ports, **{METHOD_ACTION: METHOD_ACTION + 28 * " " + MORE_ACTIONS}) as client:
        assert [client.get("/a").status_code for _ in range(3)] == [200, 200, 429]
        with socket.create_connection(("127.0.0.1", ports[8000]), PATIENCE) as connection:
            connection.sendall(line + b"Host: a\r\nConnection: close\r\n\r\n")
            status = connection.recv(65_536).split()[1]
        assert status in {b"400", b"429"}


@pytest.mark.parametrize(
    "line",
    [
        b"GET /a\xff HTTP/1.1\r\nauthorization: Bearer \xff\xfe\r\nx-api-key: \xff\r\n",
        b"GET /a HTTP/1.1\r\nauthorization: Bearer " + b"x" * 50_000 + b"\r\n",
        b"GET /a HTTP/1.1\r\nx-api-key: " + b"x" * 30_000 + b"\r\ncookie: " + b"x" * 25_000 + b"\r\n",
        b"GET /" + b"x" * 50_000 + b" HTTP/1.1\r\n",
        b"GET /a HTTP/1.1\r\n" + b"".join(b"authorization: x%d\r\n" % number for number in range(90)),
        b"GET /a%00 HTTP/1.1\r\n",
        b"G'T /a HTTP/1.1\r\n",
    ],
    ids=["bytes", "long-token", "long-headers", "long-path", "many-headers", "nul", "method"],
)
def test_nothing_that_a_caller_sends_makes_forward_auth_an_error(
    start: Start, rules: Path, tmp_path: Path, upstream: Upstream, line: bytes
) -> None:
    """The same over HTTP, where Envoy admits a call on a 5xx, or on a connection that ends without an answer."""
    service = start("--rules", str(rules))
    ports = ports_of(service, upstream)
    with envoy(tmp_path, "ext_authz.yaml", ports) as client:
        assert [client.get("/a").status_code for _ in range(3)] == [200, 200, 429]
        with socket.create_connection(("127.0.0.1", ports[8000]), PATIENCE) as connection:
            connection.sendall(line + b"Host: a\r\nConnection: close\r\n\r\n")
            status = int(connection.recv(65_536).split()[1])
        assert 400 <= status < 500
