from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from headgate import Limiter, Request, StoreError
from headgate.edge.http.application import HttpRequest
from headgate.edge.http.service import DecisionService
from headgate.protocols.http1.messages import Head, header_lines

if TYPE_CHECKING:
    from headgate import Verdict

RULES = [{"name": "one", "per": ["user"], "limits": "1/minute"}]


class BrokenLimiter(Limiter):
    failure: Exception

    async def check(self, request: Request, cost: int | None = None) -> Verdict:  # noqa: ARG002 (it fails before)
        raise self.failure


def answered(
    service: DecisionService, body: bytes = b"", method: str = "POST", path: str = "/v1/check", **headers: str
) -> tuple[int, dict[str, str], Any]:
    """The answer to one request; its headers have underscores for hyphens."""
    lines = [(name.replace("_", "-"), value) for name, value in headers.items()]
    status, answer_headers, answer = asyncio.run(service.answer(HttpRequest(Head(method, path, "", lines), body)))
    return status, headers_of(answer_headers), json.loads(answer)


def headers_of(lines: str) -> dict[str, str]:
    """The headers of an answer."""
    return dict(line.split(": ", 1) for line in lines.splitlines())


def new_service(**more: Any) -> DecisionService:  # noqa: ANN401 (parts of a service)
    return DecisionService(Limiter.open(rules=RULES), **more)


def test_a_verdict_is_a_body_and_headers() -> None:
    """An admission is 200 with the verdict, a denial its status with the verdict inside a problem document."""
    service = new_service()
    status, headers, body = answered(service, b'{"user":"u"}')
    assert (status, body["allowed"], body["remaining"]) == (200, True, 0)
    assert (headers["content-type"], headers["X-RateLimit-Limit"]) == ("application/json", "1")
    status, headers, body = answered(service, b'{"user":"u"}')
    assert (status, body["allowed"], body["status"]) == (429, False, 429)
    assert headers["content-type"] == "application/problem+json"
    assert int(headers["Retry-After"]) > 0


@pytest.mark.parametrize("path", ["check", "check:batch", "peek", "reserve", "settle", "release"])
def test_a_query_is_refused(path: str) -> None:
    """What stands in a query would be ignored, and the request be counted for an unknown caller."""
    head = Head("POST", f"/v1/{path}", "user=u1")
    status, _, body = asyncio.run(new_service().answer(HttpRequest(head, b"{}")))
    assert (status, json.loads(body)["detail"]) == (
        400,
        f"/v1/{path} takes no query; write it into the body, which is JSON",
    )


def test_a_peek_counts_nothing() -> None:
    """However often it is asked, a peek leaves what there was."""
    service = new_service()
    for _ in range(3):
        assert answered(service, b'{"user":"u"}', path="/v1/peek")[0] == 200


def test_readiness_is_what_the_service_says_of_itself() -> None:
    """A service that is about to stop says 503 on /readyz and still lives."""
    service = new_service()
    assert answered(service, method="GET", path="/readyz")[::2] == (200, {"status": "ready", "snapshot": 1})
    service.ready = False
    assert answered(service, method="GET", path="/readyz")[::2] == (503, {"status": "stopping", "snapshot": 1})
    assert answered(service, method="GET", path="/livez")[0] == 200


@pytest.mark.parametrize(
    ("failure", "status", "logged"),
    [
        (
            StoreError("the server is unavailable", transient=True),
            503,
            "no decision, the counter store failed: the server is unavailable",
        ),
        (ZeroDivisionError("a bug"), 500, "HTTP request failed: POST '/v1/check'"),
    ],
)
def test_what_breaks_inside_is_logged_and_not_told(
    failure: Exception, status: int, logged: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A failure becomes a problem document that keeps the reason for the log."""
    limiter = BrokenLimiter.open(rules=RULES)
    assert isinstance(limiter, BrokenLimiter)
    limiter.failure = failure
    service = DecisionService(limiter)
    given, headers, body = answered(service, b"{}")
    assert (given, headers["content-type"]) == (status, "application/problem+json")
    assert str(failure) not in body["detail"]
    assert logged in caplog.text


def test_long_paths_and_methods_come_back_at_a_glance() -> None:
    """What a caller sends is shown in a problem only as far as one can read it."""
    assert len(answered(new_service(), method="GET", path="/" + "x" * 50_000)[2]["detail"]) < 300
    assert len(answered(new_service(), method="X" * 5_000, path="/livez")[2]["detail"]) < 200


def batch(*checks: dict[str, Any], service: DecisionService | None = None) -> tuple[int, Any]:
    service = service or new_service()
    body = json.dumps({"checks": checks}).encode()
    status, _, answer = answered(service, body, path="/v1/check:batch")
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
    service = new_service()
    status, problem = batch(*checks, service=service)
    assert (status, sentence in problem["detail"]) == (400, True)
    assert answered(service, b'{"user":"a"}')[0] == 200


TOKEN = "s3cret"  # noqa: S105 (for a test)


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/v1/check", {}, 401),
        ("/v1/check", {"authorization": "Bearer s3cret"}, 200),
        ("/v1/check", {"authorization": "bearer  s3cret "}, 200),
        ("/v1/check", {"x-headgate-token": "s3cret"}, 200),
        ("/v1/check", {"x-headgate-token": "s3cre"}, 401),
        ("/v1/check", {"x-headgate-token": "s3cret\xff"}, 401),
        ("/v1/check", {"x-headgate-token": "wrong", "authorization": "Bearer s3cret"}, 401),
        ("/v1/check", {"authorization": "Basic s3cret"}, 401),
        ("/v1/check", {"authorization": "Bearer"}, 401),
        ("/v1/forward-auth", {"authorization": "Bearer s3cret"}, 401),
        ("/v1/forward-auth/x", {"authorization": "Bearer s3cret"}, 401),
        ("/livez", {}, 405),
    ],
)
def test_with_a_token_only_who_sends_it_is_answered(path: str, headers: dict[str, str], status: int) -> None:
    """The token comes in a header of its own or as a bearer's; behind a gateway, the bearer token is the caller's."""
    service = new_service(token=TOKEN)
    given, answer_headers, _ = answered(service, b"{}", path=path, **headers)
    assert given == status
    assert ("www-authenticate" in answer_headers) == (status == 401)


def test_probes_need_no_token() -> None:
    """Liveness and readiness are answered without a token."""
    service = new_service(token=TOKEN)
    assert answered(service, method="GET", path="/readyz")[0] == 200


@pytest.mark.parametrize("value", ["one\r\ntwo: three", "é", "\n", "\r"])
def test_no_header_says_more_than_its_line(value: str) -> None:
    """A value that would begin a line of its own, or is no ASCII, is a fault of ours and is not sent."""
    with pytest.raises(ValueError, match="the value of x does not fit on a line of ASCII"):
        header_lines([("x", value)])


# Answers without a task


@pytest.mark.parametrize("body", [b'{"user":"u"}', b'{"user":"u","cost":2}', b'{"user":', b'{"path":"//[","ip":"x"}'])
def test_a_check_in_memory_is_answered_at_once_as_by_a_task(body: bytes) -> None:
    """The same status, headers and body, counted in the same way, whatever comes."""
    asked = HttpRequest(Head("POST", "/v1/check"), body)
    at_once, by_task = new_service(), new_service()
    for _ in range(3):
        response = at_once.answer_now(asked)
        assert response is not None
        expected = asyncio.run(by_task.answer(asked))
        assert (response[0], response[1].split("X-RateLimit-Reset")[0]) == (
            expected[0],
            expected[1].split("X-RateLimit-Reset")[0],
        )
        assert json.loads(response[2])["allowed" if response[0] in {200, 429} else "detail"] is not None
    assert sum(at_once.answered.values()) == sum(by_task.answered.values()) == 3
    assert {status for _, status in at_once.answered} == {status for _, status in by_task.answered}


def test_what_has_to_wait_is_left_to_a_task() -> None:
    """Other endpoints and methods, and a service that is about to stop; nothing is counted."""
    service = new_service()
    for head in (Head("GET", "/v1/check"), Head("POST", "/v1/peek"), Head("GET", "/livez")):
        assert service.answer_now(HttpRequest(head, b'{"user":"u"}')) is None
    service.ready = False
    assert service.answer_now(HttpRequest(Head("POST", "/v1/check"), b'{"user":"u"}')) is None
    assert not service.answered
    assert answered(service, b'{"user":"u"}')[0] == 200


def test_a_token_is_needed_for_an_answer_at_once() -> None:
    """A caller without it is refused, and counted as one."""
    service = new_service(token="a-token-of-16-characters")  # noqa: S106 (of this test)
    refused = service.answer_now(HttpRequest(Head("POST", "/v1/check"), b"{}"))
    assert refused is not None
    assert refused[0] == 401
    sent = Head("POST", "/v1/check", "", [("authorization", "Bearer a-token-of-16-characters")])
    admitted = service.answer_now(HttpRequest(sent, b"{}"))
    assert admitted is not None
    assert admitted[0] == 200
