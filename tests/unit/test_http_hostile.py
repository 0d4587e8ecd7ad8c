"""Requests that are made to be expensive to read are refused before they are read, whatever is expensive about them."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import suppress
from http import HTTPStatus

import pytest
from tests.support.http_attacks import PARSING

from headgate import Limiter
from headgate.core.path import MAX_PATH
from headgate.edge.http.application import HttpRequest
from headgate.edge.http.bodies import MAX_ATTRIBUTES, read_check, read_checks
from headgate.edge.http.service import DecisionService
from headgate.edge.rls.decisions import MAX_DESCRIPTORS, MAX_ENTRIES, RateLimits, prepare
from headgate.edge.rls.messages import Code, read_json
from headgate.errors import InvalidRequest
from headgate.protocols.http1.messages import Head, Http1Error, read_head
from headgate.protocols.http1.parser import ChunkedBody

_HOST = b"Host: x\r\n"


def _service() -> DecisionService:
    return DecisionService(Limiter.open(rules=[{"name": "each", "per": ["user"], "limits": "1000000000/minute"}]))


@pytest.mark.parametrize(
    ("raw", "status", "sentence"),
    [
        (b"GET /%b HTTP/1.1\r\n%b" % (b"%" * MAX_PATH, _HOST), 414, "a path has at most 8192 characters"),
        (b"GET http://x/%b HTTP/1.1\r\n%b" % (b"a" * MAX_PATH, _HOST), 414, "a path has at most 8192 characters"),
        (b"GET / HTTP/1.1\r\n%b%b" % (_HOST, b"a:\r\n" * 15_000), 431, "at most 100 headers"),
        (b"GET / HTTP/1.1\r\n%bConnection: %b\r\n" % (_HOST, b"," * 1_025), 431, "all Connection headers"),
        (b"GET / HTTP/1.1\r\n%b%b" % (_HOST, b"Expect: %b\r\n" % (b"a," * 300) * 2), 431, "all Expect headers"),
    ],
)
def test_heads_are_bounded(raw: bytes, status: int, sentence: str) -> None:
    """A long path is not decoded, a long list not taken apart, and of too many headers the rest is not looked at."""
    with pytest.raises(Http1Error, match=sentence) as raised:
        read_head(raw)
    assert raised.value.status == status


def test_a_path_may_be_long_and_a_query_longer() -> None:
    """Up to the bound, and the query up to that of the whole head."""
    head = read_head(b"GET /%b?%b HTTP/1.1\r\n%b" % (b"%41" * 2_730, b"&" * 50_000, _HOST))
    assert (head.path, len(head.query)) == ("/" + "A" * 2_730, 50_000)


def test_chunks_are_bounded_in_number() -> None:
    """A body comes in at most 512, and has at most 100 headers behind it."""
    received = bytearray(b"1\r\nx\r\n" * 511 + b"0\r\n" + b"a:\r\n" * 100 + b"\r\n")
    assert ChunkedBody().receive(received)
    with pytest.raises(Http1Error, match="at most 512 chunks") as raised:
        ChunkedBody().receive(bytearray(b"1\r\nx\r\n" * 513))
    assert raised.value.status is HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    with pytest.raises(Http1Error, match="malformed chunked body"):
        ChunkedBody().receive(bytearray(b"0\r\n" + b"a:\r\n" * 101))


def test_attributes_are_bounded_in_number() -> None:
    """Of one check, alone or in a batch."""
    attributes = {str(number): "" for number in range(MAX_ATTRIBUTES)}
    assert len(read_check(json.dumps({"attributes": attributes}).encode())[0].attributes) == MAX_ATTRIBUTES
    too_many = {"attributes": attributes | {"one": "more"}}
    with pytest.raises(InvalidRequest, match="257 attributes are too many"):
        read_check(json.dumps(too_many).encode())
    with pytest.raises(InvalidRequest, match="257 attributes are too many"):
        read_checks(json.dumps({"checks": [{}, too_many]}).encode())


def test_an_unknown_name_is_compared_with_known_ones_only_if_it_is_short() -> None:
    """A slip of the finger gets a hint, sixty kilobytes do not."""
    with pytest.raises(InvalidRequest, match="did you mean 'user'"):
        read_check(b'{"usr":1}')
    with pytest.raises(InvalidRequest, match="known are user, tenant"):
        read_check(b'{"%b":1}' % (b"user" * 17))


def _asked(service: DecisionService, head: Head, body: bytes = b"") -> tuple[int, str]:
    status, _, answer = asyncio.run(service.answer(HttpRequest(head, body, "192.0.2.1:1")))
    return int(status), answer.decode()


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (Head("GET", "/v1/forward-auth", "a&" * 600), 414),
        (Head("GET", "/v1/forward-auth", "a&" * 400), 400),
        (Head("GET", "/v1/forward-auth", "a&" * 400, [("x-forwarded-uri", "/a")]), 200),
        (Head("GET", "/v1/forward-auth", "", [("x-original-uri", "/" + "%" * MAX_PATH)]), 414),
        (Head("GET", "/v1/forward-auth", "", [("x-forwarded-uri", "/a?" + "%" * MAX_PATH)]), 200),
        (Head("GET", "/v1/forward-auth/" + "%" * MAX_PATH), 414),
    ],
)
def test_calls_of_gateways_are_bounded(head: Head, status: int) -> None:
    """A long path is refused, not cut short: that could pass by its rule. The query of the call does not count."""
    assert _asked(_service(), head)[0] == status


def test_a_path_in_a_body_is_bounded() -> None:
    """In a check, and in a batch before anything is counted."""
    path = json.dumps("/." * MAX_PATH)
    service = DecisionService(Limiter.open(rules=[{"name": "one", "per": ["user"], "limits": "1/minute"}]))
    for endpoint, body in (
        ("/v1/check", f'{{"path":{path}}}'),
        ("/v1/peek", f'{{"path":{path}}}'),
        ("/v1/check:batch", f'{{"checks":[{{"user":"u"}},{{"path":{path}}}]}}'),
    ):
        status, answer = _asked(service, Head("POST", endpoint), body.encode())
        assert (status, "a path has at most 8192 characters" in answer) == (400, True)
    assert _asked(service, Head("POST", "/v1/check"), b'{"user":"u"}')[0] == 200


@pytest.mark.parametrize("member", ['"path":"/api/search\\n"', '"path":"/api/search%0a"', '"method":" GET"'])
def test_what_no_rule_can_match_is_refused(member: str) -> None:
    """A control character in a path, and a method that is no token: with 400, and in a batch before all is counted."""
    service = DecisionService(Limiter.open(rules=[{"name": "one", "per": ["user"], "limits": "1/minute"}]))
    for endpoint, body in (
        ("/v1/check", f"{{{member}}}"),
        ("/v1/peek", f"{{{member}}}"),
        ("/v1/reserve", f"{{{member}}}"),
        ("/v1/check:batch", f'{{"checks":[{{"user":"u"}},{{{member}}}]}}'),
    ):
        status, answer = _asked(service, Head("POST", endpoint), body.encode())
        assert (status, "control character" in answer or "is not a token" in answer) == (400, True)
    assert _asked(service, Head("POST", "/v1/check"), b'{"user":"u"}')[0] == 200


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (Head("GET", "/v1/forward-auth", "", [("x-forwarded-uri", "/api/search%0a")]), 400),
        (Head("GET", "/v1/forward-auth/api/search\n"), 400),
        (Head("GET", "/v1/forward-auth", "", [("x-forwarded-method", "G ET"), ("x-forwarded-uri", "/")]), 400),
        (Head("GET", "/v1/forward-auth", "mode=nginx", [("x-original-uri", "/api/search%0a")]), 403),
        (Head("GET", "/v1/forward-auth", "", [("x-forwarded-uri", "/api/search?q=%0a")]), 200),
    ],
)
def test_calls_of_gateways_that_no_rule_can_match_are_refused(head: Head, status: int) -> None:
    """Nginx passes only 401 and 403 on, so it gets the status for its caller in a header."""
    answered, lines, _ = asyncio.run(_service().answer(HttpRequest(head, b"", "192.0.2.1:1")))
    assert (answered, "x-headgate-status: 400" in lines) == (status, status == 403)


@pytest.mark.parametrize(
    "entry",
    [
        {"key": "path", "value": "/." * MAX_PATH},
        {"key": "path", "value": "/api/search%0a"},
        {"key": "path", "value": "/api/search\n"},
        {"key": "method", "value": " GET"},
    ],
    ids=["long", "encoded", "line-feed", "method"],
)
def test_envoy_does_not_let_pass_what_no_rule_can_match(entry: dict[str, str]) -> None:
    """It admits what it gets an error for, so the answer is OVER_LIMIT."""
    entries = [entry]
    question = read_json(json.dumps({"domain": "d", "descriptors": [{"entries": entries}]}).encode())
    answer = asyncio.run(RateLimits(Limiter.open(rules=[])).decide(prepare(question)))
    assert answer.overall_code is Code.OVER_LIMIT


@pytest.mark.parametrize(
    ("descriptors", "entries", "sentence"),
    [
        (MAX_DESCRIPTORS + 1, 1, "101 descriptors are too many"),
        (1, MAX_ENTRIES + 1, "257 entries are too many"),
        (1, 2_000, "more than 1024 parts"),
    ],
)
def test_questions_of_envoy_are_bounded(descriptors: int, entries: int, sentence: str) -> None:
    """In descriptors, in entries, and in parts of their JSON."""
    descriptor = {"entries": [{"key": f"k{number}"} for number in range(entries)]}
    with pytest.raises(InvalidRequest, match=sentence):
        prepare(read_json(json.dumps({"domain": "d", "descriptors": [descriptor] * descriptors}).encode()))


@pytest.mark.serial
@pytest.mark.parametrize("name", PARSING)
def test_no_request_takes_long(name: str) -> None:
    """At most as much processor time as 120 plain checks (3 ms); a batch of a thousand, as 2,000."""
    plain = b"POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
    with asyncio.Runner() as runner:
        service = _service()
        usual = min(_spent(runner, service, plain) for _ in range(50))
        longest = min(_spent(runner, service, PARSING[name]) for _ in range(30))
    assert longest < (2_000 if name == "1,000 checks" else 120) * usual


def _spent(runner: asyncio.Runner, service: DecisionService, raw: bytes) -> float:
    """Seconds of processor time for one request."""
    started = time.thread_time()
    end = raw.find(b"\r\n\r\n")
    with suppress(Http1Error):
        head, body = read_head(raw[: end + 2]), raw[end + 4 :]
        if head.length < 0:
            chunks = ChunkedBody()
            chunks.receive(bytearray(body))
            body = bytes(chunks.body)
        runner.run(service.answer(HttpRequest(head, body, "192.0.2.1:1")))
    return time.thread_time() - started
