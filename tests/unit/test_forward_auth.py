"""`/v1/forward-auth`, as gateways ask it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.support.fake_records import Set
from tests.unit.dataplane.signing import CLAIMS, SECRET, signed
from tests.unit.test_http_service import headers_of

from headgate import Limiter
from headgate.core.api_key import hash_of, new_api_key
from headgate.core.blocklist import BlockList
from headgate.dataplane.identity import Identity
from headgate.dataplane.jwt_keys import OneKey, key_from_text
from headgate.dataplane.jwt_verifier import Demands, JwtVerifier
from headgate.dataplane.proxies import Proxies
from headgate.edge.http.application import HttpRequest
from headgate.edge.http.service import DecisionService
from headgate.protocols.http1.messages import Head, read_head
from headgate.testing import FakeClock

KEY = new_api_key(b"k" * 32)
SEARCH = {
    "name": "search",
    "per": "ip",
    "match": {"endpoints": ["/api/search"], "methods": ["GET"]},
    "limits": "1/minute",
}
USERS = {"name": "users", "per": "user", "limits": "1/minute"}


class Gateway:
    """Something at 10.0.0.1 that asks a service."""

    def __init__(self, *rules: dict[str, Any], identity: Identity | None = None) -> None:
        self.limiter = Limiter.open(rules=list(rules), clock=FakeClock())
        self.service = DecisionService(self.limiter, identity=identity)

    def ask(
        self, *lines: tuple[str, str], method: str = "GET", path: str = "", query: str = "", client: str = "10.0.0.1:9"
    ) -> tuple[int, dict[str, str], Any]:
        head = Head(method, f"/v1/forward-auth{path}", query, lines)
        status, headers, body = asyncio.run(self.service.answer(HttpRequest(head, client=client)))
        return status, headers_of(headers), json.loads(body) if body else None


def who(**more: Any) -> Identity:  # noqa: ANN401 (parts of an identity)
    return Identity(FakeClock(), proxies=Proxies(["10.0.0.0/8"]), **more)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("x-forwarded-uri", ("/free", "/api/search")),
        ("x-forwarded-method", ("POST", "GET")),
        ("x-api-key", (KEY, "other")),
        ("authorization", ("Bearer a", "Bearer b")),
    ],
)
def test_a_header_that_is_there_twice_is_refused(name: str, values: tuple[str, str]) -> None:
    """A gateway that adds its own line behind the caller's would be asked about the caller's."""
    status, _, body = Gateway(SEARCH, identity=who()).ask(*((name, value) for value in values))
    assert (status, body["detail"]) == (400, f"the header {name} appears 2 times; send it once")
    status, headers, _ = Gateway(SEARCH, identity=who()).ask(
        *((name.replace("forwarded", "original"), value) for value in values), query="mode=nginx"
    )
    assert status == 403, "nginx passes a 403 on, and turns every other status into a 500"
    assert headers


def test_a_misspelt_mode_is_refused() -> None:
    """A parameter that is not known has no effect, and nginx would get a status that it cannot pass on."""
    status, _, body = Gateway().ask(query="modus=nginx")
    assert (status, body["detail"]) == (400, "unknown query parameter 'modus'; known is mode")


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "DELETE", "PROPFIND"])
def test_any_method_is_answered(method: str) -> None:
    """A gateway asks with the method of the call, whatever it is."""
    assert Gateway().ask(method=method) == (200, {}, None)


def test_an_admission_has_no_body_and_a_denial_is_passed_on() -> None:
    """200 with the headers; then 429 with a problem document for the caller, without the insides of the rules."""
    gateway = Gateway(USERS)
    status, headers, body = gateway.ask()
    assert (status, headers["X-RateLimit-Remaining"], body) == (200, "0", None)
    status, headers, body = gateway.ask()
    assert (status, headers["content-type"]) == (429, "application/problem+json")
    assert int(headers["Retry-After"]) > 0
    assert (body["status"], body["error"]) == (429, "rate_limit_exceeded")
    assert "decisions" not in body


def test_nginx_is_told_403_and_what_is_meant() -> None:
    """`auth_request` knows 401 and 403 only, so the status for the caller is in a header."""
    gateway = Gateway(USERS)
    gateway.ask(query="mode=nginx")
    status, headers, _ = gateway.ask(query="mode=nginx")
    assert (status, headers["x-headgate-status"]) == (403, "429")
    assert json.loads(headers["x-headgate-body"])["error"] == "rate_limit_exceeded"
    assert "Retry-After" in headers


@pytest.mark.parametrize(
    ("says", "status"), [({"status": 403}, 403), ({"status": 418}, 418), ({"status": 503}, 429), ({}, 429)]
)
def test_a_rules_own_status_is_passed_on_unless_it_would_be_taken_for_a_fault(
    says: dict[str, int], status: int
) -> None:
    """Gateways admit every call on a 5xx, so a rule's 503 is answered as 429."""
    gateway = Gateway({**USERS, "response": says} if says else USERS)
    gateway.ask()
    assert gateway.ask()[0] == status


def test_who_is_blocked_gets_403_and_the_reason() -> None:
    """A block is passed on like a denial."""
    gateway = Gateway(identity=who())
    blocks = [{"id": "1", "network": "203.0.113.0/24", "reason": "Scraping."}]
    gateway.limiter.snapshots.publish_blocks(BlockList(blocks))
    status, _, body = gateway.ask(("x-forwarded-for", "203.0.113.9"))
    assert (status, body["message"]) == (403, "Scraping.")
    assert gateway.ask(("x-forwarded-for", "203.0.113.9"), query="mode=nginx")[1]["x-headgate-status"] == "403"


@pytest.mark.parametrize(
    ("lines", "query", "counted"),
    [
        ([("x-forwarded-method", "GET"), ("x-forwarded-uri", "/api/search?q=1")], "", True),
        ([("x-forwarded-uri", "/api/search")], "", True),
        ([("x-forwarded-method", "POST"), ("x-forwarded-uri", "/api/search")], "", False),
        ([("x-original-method", "GET"), ("x-original-uri", "/api//search/")], "mode=nginx", True),
        ([("x-original-uri", "/api/%73earch")], "", True),
        ([("x-original-uri", "/other"), ("x-forwarded-uri", "/api/search")], "", True),
        ([("x-original-uri", "/api/search"), ("x-forwarded-uri", "/other")], "", False),
        ([("x-original-uri", "/api/search"), ("x-forwarded-method", "POST")], "mode=nginx", True),
        ([("x-original-uri", "/other"), ("x-forwarded-uri", "/api/search?mode=dark&a=1")], "mode=dark&a=1", True),
        ([("x-forwarded-method", "GET")], "", False),
        ([], "", False),
    ],
)
def test_each_gateway_says_in_its_own_way_what_was_called(
    lines: list[tuple[str, str]], query: str, *, counted: bool
) -> None:
    """Method and path come from its own pair of headers; the other pair may be the caller's invention."""
    status, headers, _ = Gateway(SEARCH).ask(*lines, query=query)
    assert (status, "X-RateLimit-Limit" in headers) == (200, counted)


@pytest.mark.parametrize(("original", "forwarded"), [("/other", "/api/search?mode=nginx"), ("/api/search", "/other")])
def test_no_caller_chooses_what_describes_its_call(original: str, forwarded: str) -> None:
    """Behind Caddy, which keeps the query, a caller can ask for nginx's mode; behind nginx, send Caddy's header."""
    status, headers, _ = Gateway(SEARCH).ask(
        ("x-original-uri", original), ("x-forwarded-uri", forwarded), query="mode=nginx"
    )
    assert (status, headers["x-headgate-status"]) == (403, "400")


@pytest.mark.parametrize(
    ("path", "counted"),
    [
        ("/api/search", True),
        ("/api/other", False),
        ("/api/x/../search", True),
        ("/api/%73earch", True),
        ("/api/%2573earch", False),
        ("/", False),
    ],
)
def test_envoy_puts_the_path_behind_ours(path: str, *, counted: bool) -> None:
    """Then headers and the query are the caller's, and mean nothing; the path is decoded once."""
    lines = [("x-forwarded-uri", "/api/search" if not counted else "/other"), ("x-original-method", "POST")]
    status, headers, _ = Gateway(SEARCH).ask(*lines, path=path, query="mode=what")
    assert (status, "X-RateLimit-Limit" in headers) == (200, counted)


def test_a_path_behind_ours_is_read_as_it_was_sent() -> None:
    """An encoded slash is still one: back ends that take it for a part of its segment count the same call."""
    rule = {"name": "search", "match": {"endpoints": ["/search/{term}"]}, "limits": "1/minute"}
    gateway = Gateway(rule)
    sent = b"GET /v1/forward-auth/search/a%2Fb HTTP/1.1\r\nhost: a\r\n"
    head = read_head(sent)
    assert (head.path, head.raw_path) == ("/v1/forward-auth/search/a/b", "/v1/forward-auth/search/a%2Fb")
    answers = [asyncio.run(gateway.service.answer(HttpRequest(head, client="10.0.0.1:9")))[0] for _ in range(2)]
    assert answers == [200, 429]


def test_the_caller_is_who_the_proxy_says() -> None:
    """Callers are told apart by `X-Forwarded-For`, over all of its lines, if the gateway is trusted with it."""
    gateway = Gateway({**USERS, "per": "ip"}, identity=who())
    spoofed = [("x-forwarded-for", "198.51.100.1"), ("x-forwarded-for", "203.0.113.9")]
    assert gateway.ask(*spoofed)[0] == 200
    assert gateway.ask(("x-forwarded-for", "198.51.100.2"), spoofed[1])[0] == 429
    assert gateway.ask(("x-forwarded-for", "198.51.100.1"))[0] == 200
    assert gateway.ask(("forwarded", "for=198.51.100.3"))[0] == 200
    assert gateway.ask(("x-forwarded-for", "198.51.100.9"), client="192.0.2.9:1")[0] == 200
    assert gateway.ask(("x-forwarded-for", "198.51.100.8"), client="192.0.2.9:1")[0] == 429


def test_tokens_and_keys_say_who_calls() -> None:
    """`Authorization: Bearer` and the header for keys; a key that is unknown is counted by address."""
    records = Set(cached=False)
    records.source.add_key(hash_of(KEY), user="u2")
    tokens = JwtVerifier(OneKey(key_from_text(SECRET, ["HS256"])), Demands(("HS256",)), FakeClock())
    gateway = Gateway(USERS, identity=who(tokens=tokens, records=records.records, api_key_header="X-Key"))
    token = ("authorization", f"Bearer {signed(CLAIMS)}")
    assert [gateway.ask(token)[0] for _ in range(2)] == [200, 429]
    assert [gateway.ask(("x-key", KEY))[0] for _ in range(2)] == [200, 429]
    invented = [("x-key", new_api_key(bytes([number]) * 32)) for number in range(5)]
    assert [gateway.ask(key)[0] for key in invented] == [200, 429, 429, 429, 429]


def test_a_throttled_call_is_held_back() -> None:
    """The gateway cannot do that: the answer comes when the call may go on."""
    rule = {"name": "queue", "algorithm": "leaky_bucket", "action": "throttle", "limits": "100/second burst 9"}
    gateway = Gateway(rule)

    async def run() -> float:
        began = asyncio.get_running_loop().time()
        for _ in range(3):
            await gateway.service.answer(HttpRequest(Head("GET", "/v1/forward-auth"), client="10.0.0.1:9"))
        return asyncio.get_running_loop().time() - began

    assert asyncio.run(run()) >= 0.01


@pytest.mark.parametrize("query", ["mode=apache", "mode=", "mode=nginx&mode=x"])
def test_an_unknown_mode_is_a_mistake_of_the_gateways(query: str) -> None:
    """It is said so, instead of being guessed."""
    status, _, body = Gateway().ask(query=query)
    assert (status, "mode is nginx or left out" in body["detail"]) == (400, True)


def test_what_only_begins_like_it_is_not_there() -> None:
    """`/v1/forward-authority` is no endpoint."""
    assert Gateway().ask(path="ority")[0] == 404


def test_a_check_states_who_calls() -> None:
    """`/v1/check` and `/v1/peek` look up what is on record about the user and the key that a caller states."""
    set_up = Set(cached=False)
    set_up.source.users_on_record["u1"] = {"tier": None, "overrides": {"users": ["9/minute"]}}
    set_up.source.add_key(hash_of(KEY), user="u1")
    gateway = Gateway(USERS, identity=Identity(FakeClock(), records=set_up.records))
    for path in ("/v1/check", "/v1/peek"):
        for stated in ({"user": "u1"}, {"api_key": KEY}):
            request = HttpRequest(Head("POST", path), json.dumps(stated).encode(), "10.0.0.1:9")
            answer = json.loads(asyncio.run(gateway.service.answer(request))[2])
            assert answer["limit"] == 9
            assert "limits" not in answer
            assert KEY not in json.dumps(answer)
