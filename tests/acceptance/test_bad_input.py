"""Whatever arrives, the service answers with a clean 4xx and goes on."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.service import Service, Start

EXAMPLE_RULES = Path(__file__).parents[2] / "examples" / "rules.yaml"
BODY_LIMIT = 65_536
HOST = b"Host: headgate\r\nConnection: close\r\n"

BAD_BODIES = {
    "not JSON": (b"user=u1&tier=free", "not valid JSON"),
    "only blanks": (b"   ", "not valid JSON"),
    "cut off": (b'{"user":"u1"', "not valid JSON"),
    "something behind": (b'{"user":"u1"}}', "not valid JSON"),
    "a byte order mark": (b"\xef\xbb\xbf{}", "not valid JSON"),
    "not a number": (b'{"cost":NaN}', "not valid JSON"),
    "a list": (b"[]", "a JSON object"),
    "null": (b"null", "a JSON object"),
    "a text": (b'"user"', "a JSON object"),
    "unknown member": (b'{"usr":"u1"}', "unknown member 'usr'; did you mean 'user'?"),
    "unknown member, unlike any": (b'{"zzz":"u1"}', "known are user, tenant, api_key"),
    "a number for a text": (b'{"user":42}', "user is a text"),
    "a list for a text": (b'{"path":["/"]}', "path is a text"),
    "a negative cost": (b'{"cost":-1}', "cost is a whole number"),
    "a huge cost": (b'{"cost":1000000000001}', "cost is a whole number"),
    "a cost of thousands of digits": (b'{"cost":' + b"9" * 5_000 + b"}", "cost is a whole number"),
    "an infinite cost": (b'{"cost":1e400}', "cost is a whole number"),
    "a fractional cost": (b'{"cost":1.5}', "cost is a whole number"),
    "a cost with a point": (b'{"cost":1.0}', "cost is a whole number"),
    "a cost that is true": (b'{"cost":true}', "cost is a whole number"),
    "a cost that is text": (b'{"cost":"1"}', "cost is a whole number"),
    "an attribute that is a number": (b'{"attributes":{"region":1}}', "attributes are an object of texts"),
    "attributes that are a list": (b'{"attributes":[]}', "attributes are an object of texts"),
    "deep nesting": (b'{"attributes":' + b"[" * 30_000 + b"]" * 30_000 + b"}", "attributes are an object of texts"),
    "deep nesting of what is unknown": (b'{"x":' + b'{"x":' * 10_000, "unknown member 'x'"),
    "a member twice": (b'{"user":"u1","user":"u2"}', "'user' appears twice"),
    "a member twice, once escaped": (b'{"user":"u1","us\\u0065r":"u2"}', "'user' appears twice"),
    "a member twice, once null": (b'{"user":"u1","user":null}', "'user' appears twice"),
    "an attribute twice": (b'{"attributes":{"a":"1","a":"2"}}', "'a' appears twice"),
    "a raw NUL": (b'{"user":"a\x00b"}', "not valid JSON"),
    "an escaped NUL": (b'{"user":"a\\u0000b"}', "user must not contain the character NUL"),
    "an escaped NUL in an attribute": (b'{"attributes":{"a":"\\u0000"}}', "attributes must not contain"),
    "bytes that are not UTF-8": (b'{"user":"\xff\xfe"}', "not UTF-8"),
    "a name that is not UTF-8": (b'{"\xff":"u1"}', "not UTF-8"),
    "half of a surrogate pair": (b'{"user":"\\ud800"}', "half of a surrogate pair"),
    "a surrogate pair the wrong way round": (b'{"user":"\\udc00\\ud800"}', "half of a surrogate pair"),
    "a surrogate in UTF-8": (b'{"user":"\xed\xa0\x80"}', "not UTF-8"),
    "an address that is none": (b'{"ip":"300.1.2.3"}', "ip"),
    "a path with NUL": (b'{"path":"/a%00/b"}', "the path has a control character"),
    "a path with a line feed": (b'{"path":"/a\\n"}', "the path has a control character"),
    "a method that is no token": (b'{"method":" GET"}', "the method ' GET' is not a token"),
    "an enormous address": (b'{"ip":"' + b"1" * 10_000 + b'"}', "ip"),
}


@pytest.mark.parametrize("path", ["/v1/check", "/v1/peek", "/v1/reserve"])
@pytest.mark.parametrize("name", BAD_BODIES)
def test_a_bad_body_gets_a_sentence(service: Service, path: str, name: str) -> None:
    """A body that has no meaning is refused with 400 and a problem document that says what is wrong."""
    body, expected = BAD_BODIES[name]
    answer = service.http.post(path, content=body)
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert expected in problem["detail"]
    assert problem["message"] == problem["detail"]
    assert problem["status"] == 400
    assert len(problem["detail"]) < 300


@pytest.mark.parametrize(
    "members",
    [
        {"user": ""},
        {"user": None, "cost": None, "attributes": None},
        {"user": "x" * 60_000},
        {"user": 'quote " and \\ and {}|%'},
        {"user": "\\u0000"},
        {"user": "žluťoučký 🐎"},
        {"path": "/%20/%ff/../..//a\\b?q=%00#f"},
        {"path": "no slash"},
        {"method": "get"},
        {"tier": "no such tier"},
        {"ip": "::ffff:203.0.113.9"},
        {"cost": 0},
        {"attributes": {"": ""}},
        {"attributes": {"region": "eu", "plan": 'with "quotes"'}},
    ],
    ids=str,
)
def test_an_unusual_body_has_a_meaning(service: Service, members: dict[str, object]) -> None:
    """Odd but well-formed values are decided, and never without a limit."""
    answer = service.http.post("/v1/peek", content=json.dumps(members).encode())
    assert answer.status_code == 200
    assert {decision["rule"] for decision in answer.json()["decisions"]} == {"api", "everything"}


def test_a_body_as_large_as_the_limit_is_read(service: Service) -> None:
    """A body of exactly the limit is decided; one byte more gets 413."""
    rest = BODY_LIMIT - len('{"user":""}')
    assert service.http.post("/v1/check", content=f'{{"user":"{"x" * rest}"}}').status_code == 200
    answer = service.http.post("/v1/check", content=f'{{"user":"{"x" * (rest + 1)}"}}')
    assert answer.status_code == 413
    assert answer.json()["detail"] == "a body has at most 65536 bytes here"


def test_a_body_without_a_length_is_cut_at_the_limit(service: Service) -> None:
    """A chunked body is decided while it is small, and gets 413 as soon as it is too large."""
    chunk = b'd\r\n{"user":"u1"}\r\n0\r\n\r\n'
    start = b"POST /v1/check HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"
    assert service.raw(start, chunk).startswith(b"HTTP/1.1 200")
    endless = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    answer = service.raw(start, endless, b"1\r\nx\r\n")
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"at most 65536 bytes" in answer


def test_an_announced_huge_body_is_refused_before_it_comes(service: Service) -> None:
    """A length of a terabyte gets 413 at once."""
    answer = service.raw(b"POST /v1/check HTTP/1.1\r\n" + HOST + b"Content-Length: 1000000000000\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"\x00\x01\x02\x03\r\n\r\n", b"400"),
        (b"POST\r\n\r\n", b"400"),
        (b"POST /v1/check HTTP/9.9\r\n\r\n", b"400"),
        (b"POST /v1/\xff HTTP/1.1\r\n" + HOST + b"\r\n", b"400"),
        (b"POST /v1/check HTTP/1.1\r\nbad header\r\n\r\n", b"400"),
        (b"POST /v1/check HTTP/1.1\r\n" + HOST + b"Content-Length: abc\r\n\r\n", b"400"),
        (b"POST /v1/check HTTP/1.1\r\n" + HOST + b"Content-Length: -1\r\n\r\n", b"400"),
        (b"POST /v1/check HTTP/1.1\r\n" + HOST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n{}", b"400"),
        (b"POST /v1/check HTTP/1.1\r\n" + HOST + b"Content-Length: " + b"9" * 40 + b"\r\n\r\n", b"400"),
        (b"POST /v1/check HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\nnonsense\r\n", b"400"),
        (b"POST /v1/check HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", b"400"),
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", b"414"),
        (b"GET /livez HTTP/1.1\r\n" + HOST + b"X: " + b"y" * 600_000 + b"\r\n\r\n", b"431"),
        (b"GET /livez HTTP/1.1\r\n" + HOST + b"X: \xff\xfe\r\n\r\n", b"200"),
        (b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n", b"404"),
        (b"CONNECT example.com:80 HTTP/1.1\r\n" + HOST + b"\r\n", b"404"),
    ],
)
def test_malformed_http_gets_a_status(service: Service, request_bytes: bytes, status: bytes) -> None:
    """Bytes that are not quite HTTP get a 4xx, or are read for what they mean, and never a 5xx."""
    answer = service.raw(request_bytes)
    assert answer.split(b" ", 2)[1] == status


def test_callers_that_leave_are_forgotten(start: Start) -> None:
    """Connections closed in the middle of a body do not affect other callers and leave nothing in the log."""
    service = start("--rules", str(EXAMPLE_RULES))
    for rest in (b'Content-Length: 50\r\n\r\n{"user":', b'Transfer-Encoding: chunked\r\n\r\n9\r\n{"user"'):
        for _ in range(20):
            with service.connect() as connection:
                connection.sendall(b"POST /v1/check HTTP/1.1\r\n" + HOST + rest)
    assert service.http.get("/livez").status_code == 200
    service.signal(signal.SIGTERM)
    assert service.wait() == 0
    assert service.errors == ""


def test_a_body_that_does_not_come_in_time_is_refused(start: Start) -> None:
    """A caller that announces a body and keeps it back gets 408 once the service has lost patience."""
    service = start("--rules", str(EXAMPLE_RULES), body_seconds="0.2")
    answer = service.raw(b"POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{")
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"timeout: the body was not complete after 0.2 seconds" in answer


def test_pipelined_requests_are_answered_in_order(service: Service) -> None:
    """Three requests sent at once get three answers, in their order."""
    bodies = [b'{"user":"pipeline"}', b"nonsense", b"{}"]
    sent = b"".join(
        b"POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body) for body in bodies[:2]
    )
    sent += b"POST /v1/check HTTP/1.1\r\n" + HOST + b"Content-Length: 2\r\n\r\n{}"
    statuses = [part[:3] for part in service.raw(sent).split(b"HTTP/1.1 ")[1:]]
    assert statuses == [b"200", b"400", b"200"]
