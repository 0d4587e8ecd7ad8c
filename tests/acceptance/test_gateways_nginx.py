"""A real nginx asks before it lets a call through, with the configuration that is shipped in deploy/nginx."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest
from tests.acceptance.gateways import (
    MANY_A_MINUTE,
    TWO_A_DAY,
    Upstream,
    everything_passes,
    nginx,
    upstream,
)
from tests.support.valkey import free_port

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.service import Start

__all__ = ["upstream"]
pytestmark = pytest.mark.needs("nginx")


def _ports(service_url: str, application: Upstream) -> dict[int, int]:
    return {8000: free_port(), 8080: httpx.URL(service_url).port or 0, 9000: application.port}


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    file = tmp_path / "rules.yaml"
    file.write_text(TWO_A_DAY)
    return file


def test_nginx_passes_a_refusal_on_as_429_with_headers_and_body(
    start: Start, rules: Path, tmp_path: Path, upstream: Upstream
) -> None:
    """Calls that pass carry the headers; the one too many gets 429, the headers, Retry-After and the problem."""
    service = start("--rules", str(rules))
    with nginx(tmp_path, _ports(service.url, upstream)) as client:
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
        assert refused.json()["status"] == 429


def test_nginx_passes_a_block_on_as_403(start: Start, rules: Path, tmp_path: Path, upstream: Upstream) -> None:
    """A caller who is blocked gets 403 and the reason, in any language."""
    message = "Bitte außerhalb"
    rules.write_text(
        f'rules: [{{name: shut, action: block, match: {{endpoints: ["/closed/*"]}}, response: {{message: {message}}}}}]'
    )
    service = start("--rules", str(rules))
    with nginx(tmp_path, _ports(service.url, upstream)) as client:
        assert client.get("/open").status_code == 200
        refused = client.get("/closed/path")
        assert (refused.status_code, refused.json()["message"]) == (403, message)


def test_nginx_passes_on_that_a_path_cannot_be_matched(
    start: Start, rules: Path, tmp_path: Path, upstream: Upstream
) -> None:
    """A path with a control character is answered with 400 and the reason, and does not reach the application."""
    service = start("--rules", str(rules))
    with nginx(tmp_path, _ports(service.url, upstream)) as client:
        refused = client.get("/api/search%0a")
        assert (refused.status_code, "control character" in refused.json()["detail"]) == (400, True)


def test_through_nginx_upgrades_streams_and_large_bodies_pass(
    start: Start, rules: Path, tmp_path: Path, upstream: Upstream
) -> None:
    """Asking before every call changes nothing about what the call may carry."""
    rules.write_text(MANY_A_MINUTE)
    service = start("--rules", str(rules))
    with nginx(tmp_path, _ports(service.url, upstream)) as client:
        everything_passes(client, upstream)


@pytest.mark.parametrize(("line", "status"), [("as shipped", 200), ("error_page 500 502 503 504", 500)])
def test_nginx_lets_calls_pass_or_not_while_headgate_is_unavailable(
    start: Start, rules: Path, tmp_path: Path, upstream: Upstream, line: str, status: int
) -> None:
    """While headgate is unavailable, all calls pass with the shipped snippet; without its two lines none does."""
    service = start("--rules", str(rules))
    with nginx(tmp_path, _ports(service.url, upstream), **{line: "error_page 599"}) as client:
        assert client.get("/").status_code == 200
        service.process.kill()
        service.process.wait()
        assert [client.get("/").status_code for _ in range(3)] == [status] * 3


def test_the_second_line_holds_while_headgate_is_unavailable(
    start: Start, rules: Path, tmp_path: Path, upstream: Upstream
) -> None:
    """With the shipped second line nginx refuses by itself what is far too much, and says 429."""
    service = start("--rules", str(rules))
    changes = {
        "upstream headgate {": "include second-line.conf; upstream headgate {",
        "rate=50r/s": "rate=1r/m",
        "burst=100": "burst=3",
    }
    with nginx(tmp_path, _ports(service.url, upstream), **changes) as client:
        service.process.kill()
        service.process.wait()
        statuses = [client.get("/").status_code for _ in range(8)]
        assert statuses.count(429) >= 4
        assert set(statuses) == {200, 429}
        assert statuses == sorted(statuses)
