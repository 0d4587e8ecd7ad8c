"""Clients of the decision service: what is sent, what is returned, and what applies without an answer."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from headgate import Forbidden, InvalidRequest, NotFound, Request, StoreError
from headgate.client import AsyncDecisionClient, DecisionClient, OnFailure, RemoteVerdict

if TYPE_CHECKING:
    from collections.abc import Callable

DECISION = {"rule": "r", "layer": "l", "shadow": False, "allowed": True, "limit": 5, "window": 60.0, "remaining": 4}
DECISION |= {"reset_after": 60.0, "retry_after": 0.0, "cost": 1}
VERDICT = {"allowed": True, "id": "v1", "snapshot": 3, "source": "store", "action": "reject", "delay": 0.0}
VERDICT |= {"policy": "r", "limit": 5, "remaining": 4, "reset_after": 60.0, "retry_after": 0.0, "cost": 1}
VERDICT |= {"decisions": [DECISION], "some_newer_member": 1}
REFUSAL = VERDICT | {"allowed": False, "retry_after": None, "status": 403, "message": "no", "title": "Refused"}


class Service:
    """Gives every request the same answer, and records the requests."""

    def __init__(self, status: int, body: object, headers: dict[str, str] | None = None) -> None:
        self.status, self.body, self.headers = status, body, headers
        self.requests: list[tuple[str, Any]] = []
        self.tokens: list[str | None] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append((request.url.path, json.loads(request.content)))
        self.tokens.append(request.headers.get("x-headgate-token"))
        content = self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()
        return httpx.Response(self.status, headers=self.headers, content=content)


def _client(service: Callable[[httpx.Request], httpx.Response], **options: Any) -> DecisionClient:  # noqa: ANN401 (those of the client)
    return DecisionClient(transport=httpx.MockTransport(service), **options)


def test_a_verdict_is_typed() -> None:
    """An admission has all members of a verdict, and the rate-limit headers for the caller."""
    service = Service(200, VERDICT, {"X-RateLimit-Limit": "5", "RateLimit": '"r";r=4;t=60', "Server": "granian"})
    with _client(service, token="secret") as client:  # noqa: S106 (not one)
        verdict = client.check(Request(user="u", path="/a", attributes={"k": "v"}), cost=2)
    assert verdict
    assert (verdict.snapshot, verdict.remaining, verdict.decisions[0].window) == (3, 4, 60.0)
    assert set(verdict.headers) == {"x-ratelimit-limit", "ratelimit"}
    assert service.requests == [("/v1/check", {"user": "u", "path": "/a", "cost": 2, "attributes": {"k": "v"}})]
    assert service.tokens == ["secret"]


def test_a_refusal_is_a_value() -> None:
    """A refusal has its reason, a status and a time to retry."""
    verdict = _client(Service(429, REFUSAL)).peek(Request())
    assert not verdict
    assert (verdict.status, verdict.message, verdict.retry_after) == (403, "no", None)


@pytest.mark.parametrize(
    ("status", "error"),
    [(400, InvalidRequest), (401, Forbidden), (404, NotFound), (413, InvalidRequest), (500, StoreError)],
)
def test_what_is_wrong_is_raised(status: int, error: type[Exception]) -> None:
    """An invalid request raises an error with the service's own message."""
    client = _client(Service(status, {"detail": "because"}), on_failure="raise")
    with pytest.raises(error, match="because"):
        client.check(Request())


@pytest.mark.parametrize("service", [Service(503, {}), Service(200, b"<html>"), Service(200, [1]), Service(200, {})])
@pytest.mark.parametrize("on_failure", OnFailure)
def test_without_an_answer_the_caller_decides(service: Service, on_failure: OnFailure) -> None:
    """If the service does not answer, the request passes, is refused, or an error is raised, as `on_failure` says."""
    client = _client(service, on_failure=on_failure)
    if on_failure is OnFailure.RAISE:
        with pytest.raises(StoreError):
            client.check(Request())
        return
    verdict = client.check(Request())
    assert (verdict.allowed, verdict.source) == (on_failure is OnFailure.ALLOW, f"degraded_{on_failure}")


def test_a_lost_connection_is_no_answer() -> None:
    """An unreachable service counts as one that does not answer; settling raises."""

    def lost(_request: httpx.Request) -> httpx.Response:
        msg = "connection refused"
        raise httpx.ConnectError(msg)

    client = _client(lost, on_failure="deny")
    assert not client.check(Request())
    assert client.check_many([Request(), Request()]) == [client.check(Request())] * 2
    with pytest.raises(StoreError, match="connection refused"):
        client.settle("r", 1)
    with pytest.raises(StoreError):
        _client(lost, on_failure="raise").check_many([Request()])


def test_batches() -> None:
    """Several requests are decided in one call."""
    service = Service(200, {"verdicts": [VERDICT, REFUSAL]})
    verdicts = _client(service).check_many([Request(user="a"), Request(user="b")])
    assert [verdict.allowed for verdict in verdicts] == [True, False]
    assert service.requests == [("/v1/check:batch", {"checks": [{"user": "a"}, {"user": "b"}]})]


def test_reservations() -> None:
    """A reservation, by key or for a request, is settled or released by the token in the verdict."""
    service = Service(200, VERDICT | {"reservation": "text", "reserved": 4000, "settled": True, "released": False})
    with _client(service) as client:
        taken = client.reserve("tokens:u", "100000/hour", 4000)
        assert (taken.reservation, taken.reserved) == ("text", 4000)
        assert client.reserve(Request(user="u"), ttl=5)
        assert client.settle("text", 1730)
        assert client.settle("text")
        assert not client.release("text")
    assert service.requests == [
        ("/v1/reserve", {"key": "tokens:u", "limit": "100000/hour", "cost": 4000, "ttl": 60.0}),
        ("/v1/reserve", {"user": "u", "ttl": 5}),
        ("/v1/settle", {"reservation": "text", "actual": 1730}),
        ("/v1/settle", {"reservation": "text"}),
        ("/v1/release", {"reservation": "text"}),
    ]


def test_only_requests_are_checked() -> None:
    """A value that is not a Request is refused before anything is sent."""
    with pytest.raises(InvalidRequest, match=r"headgate\.Request"):
        _client(Service(200, VERDICT)).check("u")  # type: ignore[arg-type] # wrong on purpose


def test_the_same_with_await() -> None:
    """Every method has an asynchronous twin, and the deadline covers the whole answer."""
    service = Service(200, VERDICT | {"reservation": "text", "settled": True, "released": True, "verdicts": [VERDICT]})

    async def never(_request: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async def run() -> RemoteVerdict:
        async with AsyncDecisionClient(transport=httpx.MockTransport(service)) as client:
            assert await client.check(Request())
            assert await client.peek(Request())
            assert await client.check_many([Request()])
            assert (await client.reserve("k", "1/minute")).reservation == "text"
            assert await client.settle("text", 1)
            assert await client.release("text")
        for on_failure in (OnFailure.RAISE, OnFailure.DENY):
            waiting = AsyncDecisionClient(transport=httpx.MockTransport(never), deadline=0.01, on_failure=on_failure)
            if on_failure is OnFailure.RAISE:
                with pytest.raises(StoreError, match="Timeout"):
                    await waiting.check(Request())
                with pytest.raises(StoreError):
                    await waiting.check_many([Request()])
        assert len(await waiting.check_many([Request()])) == 1
        return await waiting.check(Request())

    assert not asyncio.run(run()).allowed
