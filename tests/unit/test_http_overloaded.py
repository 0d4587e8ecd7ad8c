"""The decision service where checks are not decided because too many are in flight."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.test_http_service import headers_of

from headgate import Limiter
from headgate.edge.http.application import HttpRequest
from headgate.edge.http.service import DecisionService
from headgate.errors import Overloaded
from headgate.protocols.http1.messages import Head

if TYPE_CHECKING:
    from headgate import Request
    from headgate.core.matching import Plan

RULES = [{"name": "one", "per": ["user"], "limits": "1/minute"}]


def _full(limiter: Limiter) -> Limiter:
    """Decides nothing about some users."""
    plan = limiter.plan

    def full_plan(request: Request, cost: int | None = None) -> Plan:
        if (request.user or "shed").startswith("shed"):
            raise Overloaded(retry_after=2.5)
        return plan(request, cost)

    limiter.plan = full_plan
    return limiter


def _respond(service: DecisionService, path: str, body: object, query: str = "") -> tuple[int, dict[str, str], Any]:
    head = Head("POST", path, query, [("x-original-uri", "/a")])
    status, lines, answer = asyncio.run(service.answer(HttpRequest(head, json.dumps(body).encode(), "192.0.2.1:1")))
    return status, headers_of(lines), json.loads(answer)


def _service() -> DecisionService:
    return DecisionService(_full(Limiter.open(rules=RULES)))


@pytest.mark.parametrize(
    ("path", "body", "query"),
    [
        ("/v1/check", {}, ""),
        ("/v1/check:batch", {"checks": [{}, {}]}, ""),
        ("/v1/peek", {}, ""),
        ("/v1/reserve", {"user": "shed"}, ""),
        ("/v1/forward-auth", None, ""),
        ("/v1/forward-auth", None, "mode=nginx"),
        ("/json", {"domain": "d", "descriptors": [{"entries": [{"key": "user", "value": "shed"}]}]}, ""),
    ],
)
def test_overload_is_503_with_retry_after(
    path: str, body: object, query: str, caplog: pytest.LogCaptureFixture
) -> None:
    """On every endpoint; never 500 or 429, and without a line in the log for each."""
    service = _service()
    status, headers, document = _respond(service, path, body, query)
    assert (status, headers["retry-after"], headers["content-type"]) == (503, "3", "application/problem+json")
    assert (document["status"], document["detail"]) == (503, "too many checks are in flight")
    assert caplog.text == ""


def test_a_batch_that_was_partly_shed_says_which() -> None:
    """Those that were decided are counted and told; the others are not allowed, and say when to come back."""
    service = _service()
    status, _, answer = _respond(
        service, "/v1/check:batch", {"checks": [{"user": "a"}, {"user": "shed"}, {"user": "a"}]}
    )
    assert status == 200
    first, shed, last = answer["verdicts"]
    assert (first["allowed"], last["allowed"], last["error"]) == (True, False, "rate_limit_exceeded")
    assert (shed["allowed"], shed["status"], shed["retry_after"]) == (False, 503, 2.5)
    assert shed["error"] == "service_unavailable"
    assert "source" not in shed


def test_a_batch_that_was_shed_counted_nothing() -> None:
    """So it may be sent again as it was."""
    limiter = Limiter.open(rules=RULES)
    plan, service = limiter.plan, DecisionService(_full(limiter))
    assert _respond(service, "/v1/check:batch", {"checks": [{"user": "shed1"}]})[0] == 503
    limiter.plan = plan
    assert _respond(service, "/v1/check", {"user": "shed1"})[0] == 200


def test_a_large_batch_leaves_time_to_others() -> None:
    """It is decided a piece at a time, and the loop does its other work in between."""

    async def run() -> tuple[int, int]:
        service, turns, is_over = DecisionService(Limiter.open(rules=RULES)), 0, False

        async def others() -> None:
            nonlocal turns
            while not is_over:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(others())
        body = json.dumps({"checks": [{"user": str(number)} for number in range(1_000)]}).encode()
        _, _, answer = await service.answer(HttpRequest(Head("POST", "/v1/check:batch"), body))
        is_over = True
        await counting
        return turns, sum(verdict["allowed"] for verdict in json.loads(answer)["verdicts"])

    turns, allowed = asyncio.run(run())
    assert allowed == 1_000
    assert turns >= 1_000 // 64
