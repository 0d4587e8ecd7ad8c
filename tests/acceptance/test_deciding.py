"""What a caller of the decision service sees."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.service import Service


def _paste(command: str) -> str:
    shell = ["/bin/sh", "-c", command]
    return subprocess.run(shell, capture_output=True, text=True, check=True, timeout=20).stdout  # noqa: S603 (our own)


SEARCH = {"tier": "free", "method": "GET", "path": "/api/search"}


def test_a_check_passes_with_headers_and_is_refused_after_the_limit(service: Service) -> None:
    """The example's free tier gets ten searches with 200, then 429 with Retry-After and a problem document."""
    passed = [service.check(user="must-show", **SEARCH) for _ in range(10)]
    assert [answer.status_code for answer in passed] == [200] * 10
    assert [answer.headers["x-ratelimit-remaining"] for answer in passed] == [str(left) for left in range(9, -1, -1)]
    first = passed[0]
    assert first.headers["content-type"] == "application/json"
    assert first.headers["x-ratelimit-limit"] == "10"
    assert first.headers["x-ratelimit-cost"] == "1"
    assert first.headers["x-ratelimit-reset"].isdigit()
    assert first.headers["ratelimit-policy"].startswith('"search";q=10;w=60')
    assert first.headers["ratelimit"].startswith('"search";r=9;t=')
    assert "retry-after" not in first.headers
    verdict = first.json()
    assert verdict["allowed"] is True
    assert (verdict["policy"], verdict["limit"], verdict["remaining"]) == ("search", 10, 9)
    assert {decision["rule"] for decision in verdict["decisions"]} >= {"search", "api", "everything"}

    refused = service.check(user="must-show", **SEARCH)
    assert refused.status_code == 429
    assert refused.headers["content-type"] == "application/problem+json"
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert refused.headers["x-ratelimit-remaining"] == "0"
    problem = refused.json()
    assert problem["status"] == 429
    assert problem["violated-policies"] == ["search"]
    assert problem["error"] == "rate_limit_exceeded"
    assert problem["message"] == "Too many searches. Premium has thirty times as many."
    assert problem["allowed"] is False
    assert int(refused.headers["retry-after"]) >= problem["retry_after"] > 0


@pytest.mark.needs("curl")
def test_the_printed_curl_lines_work(service: Service) -> None:
    """Each command that `serve` prints can be pasted into a shell, and the second one reaches 429."""
    lines = [line.strip() for line in service.output.replace("\\\n", "").splitlines()]
    commands = [line for line in lines if line.startswith(("curl", "for"))]
    assert len(commands) == 3
    once, until_refused, look = (_paste(command) for command in commands)
    assert "HTTP/1.1 200 OK" in once
    assert "X-RateLimit-Remaining: 9" in once
    assert until_refused.split() == ["200"] * 9 + ["429"] * 3
    assert '"allowed":false' in look


def test_a_peek_answers_what_a_check_would_and_counts_nothing(service: Service) -> None:
    """Peeking twenty times leaves the whole limit, and a cost is weighed as a check would weigh it."""
    asked = {"user": "peeking", **SEARCH}
    for _ in range(20):
        assert service.http.post("/v1/peek", json=asked).json()["remaining"] == 9
    assert service.http.post("/v1/peek", json={**asked, "cost": 11}).status_code == 429
    assert service.check(**asked).json()["remaining"] == 9


def test_a_cost_counts_as_that_many(service: Service) -> None:
    """A check with cost 4 leaves 6 of 10, and one that can never pass has no Retry-After."""
    assert service.check(user="spender", cost=4, **SEARCH).json()["remaining"] == 6
    refused = service.check(user="spender", cost=11, **SEARCH)
    assert refused.status_code == 429
    assert refused.json()["retry_after"] is None
    assert "retry-after" not in refused.headers


def test_allow_and_block_rules_answer_by_themselves(service: Service) -> None:
    """The example's health check is exempt, and its banned network is denied with the rule's status and message."""
    exempt = service.check(user="probe", path="/health")
    assert (exempt.status_code, exempt.json()["source"]) == (200, "exempt")
    blocked = service.check(ip="198.51.100.77", path="/health2")
    assert (blocked.status_code, blocked.json()["status"]) == (429, 403)
    assert blocked.headers["content-type"] == "application/problem+json"
    assert blocked.json()["message"] == "Your network is blocked. Write to abuse@example.com."


def test_an_early_upload_is_admitted_with_a_delay(service: Service) -> None:
    """After its burst of ten the example's upload rule admits into the future and says how long to hold."""
    answers = [service.check(user="uploader", method="PUT", path="/files/a") for _ in range(11)]
    assert [answer.status_code for answer in answers] == [200] * 11
    assert answers[9].json()["delay"] == 0
    assert 0 < answers[10].json()["delay"] <= 2


def test_an_empty_body_names_no_caller(service: Service) -> None:
    """A check without a body is decided by the rules that apply to every request."""
    assert service.http.post("/v1/check").status_code == 200
    assert service.http.post("/v1/check", content=b"{}").status_code == 200


@pytest.mark.parametrize("kind", ["application/json", "application/x-www-form-urlencoded", "text/plain", "nonsense"])
def test_any_content_type_is_read_as_json(service: Service, kind: str) -> None:
    """The body is JSON whatever the content type says, since curl -d says it is a form."""
    answer = service.http.post("/v1/check", content=b'{"user":"kind"}', headers={"content-type": kind})
    assert answer.status_code == 200


def test_the_service_tells_whether_it_lives_and_is_ready(service: Service) -> None:
    """/livez and /readyz answer GET and HEAD with 200, and readiness names the active snapshot."""
    assert service.http.get("/livez").json() == {"status": "alive"}
    assert service.http.get("/readyz").json() == {"status": "ready", "snapshot": 1, "rules": "file"}
    assert service.http.head("/livez").status_code == 200
    assert service.http.head("/readyz").headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/check/", "/v2/check", "/metric", "/%ff", "/..%2f..%2fetc/passwd"])
def test_another_path_is_not_found(service: Service, path: str) -> None:
    """An unknown path gets 404 as a problem document."""
    answer = service.http.post(path)
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["error"] == "not_found"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/check", "POST"),
        ("DELETE", "/v1/peek", "POST"),
        ("POST", "/livez", "GET, HEAD"),
        ("BREW", "/readyz", "GET, HEAD"),
    ],
)
def test_another_method_is_not_allowed(service: Service, method: str, path: str, allowed: str) -> None:
    """A wrong method gets 405 as a problem document, with the right ones in Allow."""
    answer = service.http.request(method, path)
    assert answer.status_code == 405
    assert answer.headers["allow"] == allowed
    assert answer.json()["error"] == "method_not_allowed"
