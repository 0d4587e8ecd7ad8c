from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from headgate import Limiter, Request, StoreError
from headgate.edge.http.rsgi import ProtocolClosed
from headgate.edge.http.service import DecisionService

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from headgate import Verdict

RULES = [{"name": "one", "per": ["user"], "limits": "1/minute"}]


class Headers:
    def __init__(self, headers: dict[str, str]) -> None:
        self.headers = headers

    def get(self, key: str) -> str | None:
        return self.headers.get(key)

    def get_all(self, key: str) -> list[str]:
        return [self.headers[key]] if key in self.headers else []


class Scope:
    def __init__(self, method: str, path: str, headers: Headers) -> None:
        self.method, self.path, self.headers = method, path, headers
        self.query_string, self.client = "", "127.0.0.1:50000"


class Exchange:
    """A request's body, and what is answered."""

    def __init__(self, *parts: bytes, gone: bool = False, slow: bool = False) -> None:
        self.parts, self.gone, self.slow = parts, gone, slow
        self.answers: list[tuple[int, dict[str, str], Any]] = []

    async def __call__(self) -> bytes:
        if self.slow:
            await asyncio.Event().wait()
        if self.gone:
            raise ProtocolClosed
        return b"".join(self.parts)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self.parts:
            yield part

    def response_bytes(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.answers.append((status, dict(headers), json.loads(body)))


class BrokenLimiter(Limiter):
    failure: Exception

    async def check(self, request: Request, cost: int | None = None) -> Verdict:  # noqa: ARG002 (it fails before)
        raise self.failure


def ask(
    exchange: Exchange,
    method: str = "POST",
    path: str = "/v1/check",
    *,
    service: DecisionService | None = None,
    headers: dict[str, str] | None = None,
) -> tuple[int, dict[str, str], Any]:
    """The one answer to one request."""
    service = service or DecisionService(Limiter.open(rules=RULES), body_limit=100, body_seconds=0.01)
    headers = headers or {"content-length": str(sum(map(len, exchange.parts)))}
    asyncio.run(service.__rsgi__(Scope(method, path, Headers(headers)), exchange))
    (answer,) = exchange.answers
    return answer


def test_a_verdict_is_a_body_and_headers() -> None:
    """An admission is 200 with the verdict, a denial its status with the verdict inside a problem document."""
    service = DecisionService(Limiter.open(rules=RULES), body_limit=100, body_seconds=1)
    status, headers, body = ask(Exchange(b'{"user":"u"}'), service=service)
    assert (status, body["allowed"], body["remaining"]) == (200, True, 0)
    assert (headers["content-type"], headers["X-RateLimit-Limit"]) == ("application/json", "1")
    status, headers, body = ask(Exchange(b'{"user":"u"}'), service=service)
    assert (status, body["allowed"], body["status"]) == (429, False, 429)
    assert headers["content-type"] == "application/problem+json"
    assert int(headers["Retry-After"]) > 0


def test_a_peek_counts_nothing() -> None:
    """However often it is asked, a peek leaves what there was."""
    service = DecisionService(Limiter.open(rules=RULES), body_limit=100, body_seconds=1)
    for _ in range(3):
        assert ask(Exchange(b'{"user":"u"}'), path="/v1/peek", service=service)[0] == 200


def test_readiness_is_what_the_service_says_of_itself() -> None:
    """A service that is about to stop says 503 on /readyz and still lives."""
    service = DecisionService(Limiter.open(rules=RULES), body_limit=100, body_seconds=1)
    assert ask(Exchange(), "GET", "/readyz", service=service)[::2] == (200, {"status": "ready", "snapshot": 1})
    service.ready = False
    assert ask(Exchange(), "GET", "/readyz", service=service)[::2] == (503, {"status": "stopping", "snapshot": 1})
    assert ask(Exchange(), "GET", "/livez", service=service)[0] == 200


@pytest.mark.parametrize(
    ("exchange", "headers", "status"),
    [
        (Exchange(b"x" * 101), {}, 413),
        (Exchange(b"{}", b" " * 99), {"transfer-encoding": "chunked"}, 413),
        (Exchange(b'{"us', b'er":"u"}'), {"transfer-encoding": "chunked"}, 200),
        (Exchange(b"", b""), {"transfer-encoding": "chunked"}, 400),
        (Exchange(b'{"us', b""), {"transfer-encoding": "chunked"}, 400),
        (Exchange(b"unread"), {"host": "neither length nor encoding"}, 200),
        (Exchange(b"", slow=True), {}, 408),
    ],
)
def test_bodies_are_bounded_in_size_and_time(exchange: Exchange, headers: dict[str, str], status: int) -> None:
    """A body is read to its end if it is small and prompt enough, and refused otherwise."""
    assert ask(exchange, headers=headers)[0] == status


def test_a_caller_that_has_gone_gets_no_answer() -> None:
    """Where the body breaks off because the caller left, nothing is answered."""
    exchange = Exchange(gone=True)
    service = DecisionService(Limiter.open(rules=RULES), body_limit=100, body_seconds=1)
    asyncio.run(service.__rsgi__(Scope("POST", "/v1/check", Headers({"content-length": "2"})), exchange))
    assert exchange.answers == []


@pytest.mark.parametrize(
    ("failure", "status", "logged"),
    [
        (StoreError("the server is away", transient=True), 503, "no decision: the server is away"),
        (ZeroDivisionError("a bug"), 500, "POST '/v1/check' failed"),
    ],
)
def test_what_breaks_inside_is_logged_and_not_told(
    failure: Exception, status: int, logged: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A failure becomes a problem document that keeps the reason for the log."""
    limiter = BrokenLimiter.open(rules=RULES)
    assert isinstance(limiter, BrokenLimiter)
    limiter.failure = failure
    service = DecisionService(limiter, body_limit=100, body_seconds=1)
    answered, headers, body = ask(Exchange(b"{}"), service=service)
    assert (answered, headers["content-type"]) == (status, "application/problem+json")
    assert str(failure) not in body["detail"]
    assert logged in caplog.text


def test_long_paths_and_methods_come_back_at_a_glance() -> None:
    """What a stranger sends is shown in a problem only as far as one can read it."""
    assert len(ask(Exchange(), "GET", "/" + "x" * 50_000)[2]["detail"]) < 300
    assert len(ask(Exchange(), "X" * 5_000, "/livez")[2]["detail"]) < 200


def batch(*checks: dict[str, Any], service: DecisionService | None = None) -> tuple[int, Any]:
    service = service or DecisionService(Limiter.open(rules=RULES), body_limit=100_000, body_seconds=1)
    body = json.dumps({"checks": checks}).encode()
    status, _, answer = ask(Exchange(body), path="/v1/check:batch", service=service)
    return status, answer


def test_a_batch_is_answered_in_its_order() -> None:
    """Each check of a batch is decided by itself, one after the other, and its verdict stands in its place."""
    status, answer = batch({"user": "a"}, {"user": "b", "cost": 2}, {"user": "a"}, {"user": "b"})
    assert status == 200
    assert [verdict["allowed"] for verdict in answer["verdicts"]] == [True, False, False, True]
    assert answer["verdicts"][2]["error"] == "rate_limit_exceeded"
    assert batch() == (200, {"verdicts": []})


@pytest.mark.parametrize(
    ("checks", "sentence"),
    [
        ([{"user": "a"}, {"user": 1}], "user is a text"),
        ([{"user": "a"}, {"usr": "b"}], "unknown member 'usr'; did you mean 'user'?"),
        ([{"user": "a"}, {"cost": -1}], "cost is a whole number"),
        ([{"user": "a"}, {"ip": "here"}], "here"),
        ([{"user": "a"}, {"user": "\0"}], "user must not contain the character NUL"),
        ([{"user": "a"}] * 1_001, "1001 checks are too many for one batch, which has at most 1000; send several"),
        ([[]], "checks are a list of objects"),
    ],
)
def test_a_bad_batch_counts_nothing(checks: list[Any], sentence: str) -> None:
    """Where one check of a batch has no meaning, none is counted."""
    service = DecisionService(Limiter.open(rules=RULES), body_limit=100_000, body_seconds=1)
    status, problem = batch(*checks, service=service)
    assert (status, sentence in problem["detail"]) == (400, True)
    assert ask(Exchange(b'{"user":"a"}'), service=service)[0] == 200


TOKEN = "s3cret"  # noqa: S105 (for a test)


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/v1/check", {}, 401),
        ("/v1/check", {"authorization": "Bearer s3cret"}, 200),
        ("/v1/check", {"authorization": "bearer  s3cret "}, 200),
        ("/v1/check", {"x-headgate-token": "s3cret"}, 200),
        ("/v1/check", {"x-headgate-token": "s3cre"}, 401),
        ("/v1/check", {"x-headgate-token": "s3cret\udcff"}, 401),
        ("/v1/check", {"x-headgate-token": "wrong", "authorization": "Bearer s3cret"}, 401),
        ("/v1/check", {"authorization": "Basic s3cret"}, 401),
        ("/v1/check", {"authorization": "Bearer"}, 401),
        ("/v1/forward-auth", {"authorization": "Bearer s3cret"}, 401),
        ("/v1/forward-auth/x", {"authorization": "Bearer s3cret"}, 401),
        ("/livez", {}, 405),
    ],
)
def test_with_a_token_only_who_sends_it_is_answered(path: str, headers: dict[str, str], status: int) -> None:
    """The token comes in a header of its own or as a bearer's; behind a gateway, the bearer is somebody else."""
    service = DecisionService(Limiter.open(rules=RULES), body_limit=100, body_seconds=1, token=TOKEN)
    answered, answer_headers, _ = ask(
        Exchange(b"{}"), path=path, service=service, headers={"content-length": "2"} | headers
    )
    assert answered == status
    assert ("www-authenticate" in answer_headers) == (status == 401)


def test_probes_need_no_token() -> None:
    """Whether the service lives and is ready is told to everybody."""
    service = DecisionService(Limiter.open(rules=RULES), body_limit=100, body_seconds=1, token=TOKEN)
    assert ask(Exchange(), "GET", "/readyz", service=service)[0] == 200
