"""The ASGI middleware, in front of the smallest applications."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import pytest
from tests.support.applications import DAILY, get, hello, lived, scope_of, sent, statuses

from headgate import InvalidSettings, Limiter, Request
from headgate.asgi import RateLimitMiddleware, admission


def test_answers_carry_headers_and_refusals_are_problems() -> None:
    """Admitted answers have rate-limit headers; a refusal is a problem document with Retry-After."""
    app = RateLimitMiddleware(hello, rules=DAILY)
    *passed, refused = get(app, "/", "/", "/", "/")
    assert [answer.status_code for answer in passed] == [200] * 3
    assert [answer.headers["x-ratelimit-remaining"] for answer in passed] == ["2", "1", "0"]
    assert passed[0].headers["x-own"] == "1"
    assert passed[0].headers["ratelimit-policy"] == '"daily";q=3;w=86400'
    assert refused.status_code == 429
    assert refused.headers["content-type"] == "application/problem+json"
    assert int(refused.headers["retry-after"]) >= 1
    assert refused.json()["violated-policies"] == ["daily"]


@pytest.mark.parametrize(
    ("headers", "names"),
    [
        ("all", {"x-ratelimit-limit", "ratelimit", "ratelimit-policy"}),
        ("x-ratelimit", {"x-ratelimit-limit"}),
        ("ratelimit", {"ratelimit", "ratelimit-policy"}),
        ("none", set()),
    ],
)
def test_the_set_of_headers_is_chosen(headers: str, names: set[str]) -> None:
    """Only the chosen headers are sent; a refusal always has Retry-After."""
    app = RateLimitMiddleware(hello, rules=DAILY, headers=headers)
    first, *_, refused = get(app, "/", "/", "/", "/")
    every = {"x-ratelimit-limit", "ratelimit", "ratelimit-policy"}
    assert every & set(first.headers) == every & set(refused.headers) == names
    assert "retry-after" in refused.headers


def test_a_rule_says_status_and_message() -> None:
    """A refusal has the status and the message of its rule."""
    rules = [{"name": "a", "limits": "1/day", "response": {"status": 503, "message": "Come back tomorrow."}}]
    _, refused = get(RateLimitMiddleware(hello, rules=rules), "/", "/")
    assert (refused.status_code, refused.json()["message"]) == (503, "Come back tomorrow.")


def test_shadow_rules_only_watch() -> None:
    """A rule with action log refuses no call."""
    rules = [{"name": "a", "limits": "1/day", "action": "log"}]
    assert [answer.status_code for answer in get(RateLimitMiddleware(hello, rules=rules), "/", "/")] == [200, 200]


def test_a_throttled_call_waits_while_others_go_on() -> None:
    """Of two calls the second is delayed, and an unlimited call passes meanwhile."""
    rules = [
        {
            "name": "slow",
            "limits": "10/second burst 5",
            "algorithm": "leaky_bucket",
            "action": "throttle",
            "match": {"endpoints": ["/slow"]},
        }
    ]
    order: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 (ASGI)
        order.append(scope["path"])
        await hello(scope, receive, send)

    gate = RateLimitMiddleware(app, rules=rules)

    async def run() -> None:
        first, held, free = (scope_of(path) for path in ("/slow", "/slow", "/free"))
        await asyncio.gather(*(sent(gate, scope) for scope in (first, held, free)))

    asyncio.run(run())
    assert order == ["/slow", "/free", "/slow"]


def test_who_calls_and_what_it_costs_come_from_functions() -> None:
    """`identify` names the user, `cost` the cost; both may be coroutines."""

    async def identify(scope: Any) -> str:  # noqa: ANN401 (ASGI)
        return str(dict(scope["headers"]).get(b"x-user", b"").decode())

    rules = [{"name": "daily", "per": ["user"], "limits": "4/day"}]
    app = RateLimitMiddleware(hello, rules=rules, identify=identify, cost=lambda _: 2)
    ann, bob = [("x-user", "ann")], [("x-user", "bob")]
    calls = [scope_of(headers=ann), scope_of(headers=ann), scope_of(headers=ann), scope_of(headers=bob)]
    assert statuses(app, *calls) == [200, 200, 429, 200]


def test_identify_may_say_anything_about_the_caller() -> None:
    """A `Request` gives tier and attributes; without an address it gets the connection's."""
    rules = [{"name": "vip", "per": ["ip"], "limits": "1/day", "match": {"tiers": ["vip"]}}]
    app = RateLimitMiddleware(hello, rules=rules, identify=lambda _: Request(tier="vip"))
    assert statuses(app, scope_of(), scope_of(), scope_of(peer="192.0.2.2")) == [200, 429, 200]


@pytest.mark.parametrize("said", [7, Request(ip="nonsense"), b"ann"])
def test_nonsense_about_a_caller_is_no_way_in(said: object) -> None:
    """An invalid result of `identify` gets 400, not 500, and does not reach the application."""
    app = RateLimitMiddleware(hello, rules=DAILY, identify=lambda _: said)
    assert statuses(app, scope_of()) == [400]


def test_callers_behind_trusted_proxies_are_counted_each_for_itself() -> None:
    """Forwarding headers count if the proxy is trusted, and change nothing otherwise."""

    def scope(peer: str, *forwarded: tuple[str, str]) -> Any:  # noqa: ANN401 (ASGI)
        return scope_of(peer=peer, headers=[("host", "localhost"), *forwarded])

    rules = [{"name": "daily", "per": ["ip"], "limits": "1/day"}]
    app = RateLimitMiddleware(hello, rules=rules, trusted_proxies=["10.0.0.0/8"])
    scopes = [
        scope("10.0.0.1", ("x-forwarded-for", "198.51.100.1")),
        scope("10.0.0.2", ("x-forwarded-for", "203.0.113.9"), ("x-forwarded-for", "198.51.100.1")),  # the same caller
        scope("10.0.0.1", ("x-forwarded-for", "198.51.100.2")),
        scope("10.0.0.1", ("forwarded", "for=198.51.100.2")),
        scope("192.0.2.1"),
        scope("192.0.2.1", ("x-forwarded-for", "198.51.100.3")),  # an untrusted proxy
    ]
    assert statuses(app, *scopes) == [200, 429, 200, 429, 200, 429]


def test_skipped_paths_are_not_counted() -> None:
    """The skip list applies to all spellings of a path, and to no other path."""
    app = RateLimitMiddleware(hello, rules=DAILY, skip=["/health", "/static/*"])
    answers = get(app, "/health", "/health/", "/health//", "/static/a/b", "/healthy")
    assert ["ratelimit" in answer.headers for answer in answers] == [False] * 4 + [True]


def test_dot_segments_are_refused() -> None:
    """A path that rules and application could read differently is refused."""
    app = RateLimitMiddleware(hello, rules=DAILY, skip=["/health"])
    assert (
        statuses(app, *(scope_of(path) for path in ("/api/../health", "/./x", "/a/..", "/a\\..\\health"))) == [400] * 4
    )
    assert statuses(app, scope_of("/a/..b/.c")) == [200]


def test_costs_are_settled_after_the_answer() -> None:
    """A settled cost is counted: the rest of the stated cost is refunded."""

    async def app(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 (ASGI)
        admission(scope).settle(1)
        await hello(scope, receive, send)

    rules = [{"name": "tokens", "limits": "12/day"}]
    gate = RateLimitMiddleware(app, rules=rules, cost=lambda _: 10)
    assert statuses(gate, *(scope_of() for _ in range(4))) == [200, 200, 200, 429]


def test_slots_are_held_while_a_call_is_answered() -> None:
    """A concurrency rule counts calls in flight, also those that fail."""
    inside, leave = asyncio.Event(), asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 (ASGI)
        if scope["path"] == "/fails":
            raise ZeroDivisionError
        inside.set()
        await leave.wait()
        await hello(scope, receive, send)

    rules = [{"name": "slots", "limits": "1 concurrent", "algorithm": "concurrency"}]
    gate = RateLimitMiddleware(app, rules=rules)

    async def run() -> list[int]:
        with pytest.raises(ZeroDivisionError):
            await sent(gate, scope_of("/fails"))
        first = asyncio.create_task(sent(gate, scope_of()))
        await inside.wait()
        refused = await sent(gate, scope_of())
        leave.set()
        return [(await first)[0]["status"], refused[0]["status"], (await sent(gate, scope_of()))[0]["status"]]

    assert asyncio.run(run()) == [200, 429, 200]


def test_websockets_are_counted_at_the_handshake() -> None:
    """A refused handshake gets 429 if the server supports it, and is closed otherwise."""

    async def app(_scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 (ASGI)
        await receive()
        await send({"type": "websocket.accept"})

    gate = RateLimitMiddleware(app, rules=[{"name": "a", "limits": "1/day"}])
    connect = {"type": "websocket.connect"}

    async def run() -> list[list[dict[str, Any]]]:
        plain: dict[str, Any] = {**scope_of(), "type": "websocket"}
        del plain["method"]
        able = {**plain, "extensions": {"websocket.http.response": {}}}
        return [await sent(gate, dict(scope), connect) for scope in (plain, plain, able)]

    accepted, closed, denied = asyncio.run(run())
    assert (accepted[0]["type"], dict(accepted[0]["headers"])[b"x-ratelimit-remaining"]) == ("websocket.accept", b"0")
    assert closed == [{"type": "websocket.close", "code": 1008}]
    assert denied[0]["status"] == 429
    assert json.loads(denied[1]["body"])["violated-policies"] == ["a"]


async def _living(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 (ASGI)
    if scope["type"] != "lifespan":
        await hello(scope, receive, send)
        return
    for _ in range(2):
        await send({"type": f"{(await receive())['type']}.complete"})


def test_the_limiter_lives_with_the_application() -> None:
    """The limiter opens before the application starts, closes after it ends, and can be started again."""
    app = RateLimitMiddleware(_living, rules=DAILY)
    for _ in range(2):
        assert [message["type"] for message in lived(app)] == [
            "lifespan.startup.complete",
            "lifespan.shutdown.complete",
        ]
        assert statuses(app, scope_of()) == [200]


def test_an_application_that_would_limit_nothing_does_not_start() -> None:
    """Without rules and limits at routes the start fails with a message, and so does every call."""
    app = RateLimitMiddleware(_living)
    (failed,) = lived(app)
    assert failed["type"] == "lifespan.startup.failed"
    assert "nothing would be limited" in failed["message"]
    with pytest.raises(InvalidSettings, match="nothing would be limited"):
        statuses(app, scope_of())


def test_settings_without_effect_are_named_when_the_middleware_is_made(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What needs a database or tokens gets a warning without them; what other programs read does not."""
    monkeypatch.setenv("HEADGATE_API_KEY_HEADER", "X-Key")
    monkeypatch.setenv("HEADGATE_JWT_ISSUER", "https://login.example.com/")
    monkeypatch.setenv("HEADGATE_ADMIN_PORT", "9000")
    monkeypatch.setenv("HEADGATE_DATABASE_URL", "postgresql://h/d")
    RateLimitMiddleware(hello, rules=DAILY)
    of_database, of_others = (record.getMessage() for record in caplog.records)
    assert of_database.startswith("HEADGATE_DATABASE_URL has no effect on this application")
    assert "HEADGATE_API_KEY_HEADER (there is no database; " in of_others
    assert "HEADGATE_JWT_ISSUER (no token is verified; " in of_others
    assert "HEADGATE_ADMIN_PORT" not in of_others


def test_what_is_wrong_is_said_when_the_middleware_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Invalid headers, skips, proxies and rules raise at once, and so does memory:// with several workers."""
    for wrong in ({"headers": "some"}, {"skip": ["health"]}, {"skip": ["/*"]}, {"trusted_proxies": ["proxy"]}):
        with pytest.raises(InvalidSettings):
            RateLimitMiddleware(hello, rules=DAILY, **wrong)
    with pytest.raises(InvalidSettings, match="already has its rules"):
        RateLimitMiddleware(hello, Limiter.open(rules=DAILY), DAILY)
    monkeypatch.setattr(sys, "argv", ["/usr/bin/uvicorn", "app:app", "--workers", "4"])
    with pytest.raises(InvalidSettings, match="redis://"):
        RateLimitMiddleware(hello, rules=DAILY)
    RateLimitMiddleware(hello, "redis://localhost", DAILY)


def test_a_limiter_of_ones_own_is_left_open() -> None:
    """A limiter that the application opened is shared, and the application closes it."""

    async def run() -> None:
        async with Limiter.open(rules=DAILY) as limiter:
            app = RateLimitMiddleware(hello, limiter)
            for _ in range(3):
                await limiter.check(Request(ip="192.0.2.1"))
            assert (await sent(app, scope_of()))[0]["status"] == 429

    asyncio.run(run())


def test_views_that_nothing_has_limited_have_no_admission() -> None:
    """`admission` of a call that was not checked raises an error with the reason."""
    with pytest.raises(InvalidSettings, match="not installed"):
        admission({})
