"""Limits in Flask applications and in front of plain WSGI applications."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from flask import Flask, Response, request
from tests.support.applications import DAILY

from headgate import InvalidSettings
from headgate.flask import RateLimiter
from headgate.sync import Limiter
from headgate.wsgi import RateLimitMiddleware, admission

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


def _codes(app: Flask, *paths: str, **headers: str) -> list[int]:
    client = app.test_client()
    return [client.get(path, headers=headers).status_code for path in paths]


def _flask(**options: Any) -> tuple[Flask, RateLimiter]:  # noqa: ANN401 (options of RateLimiter)
    app = Flask("small")
    limiter = RateLimiter(app, **options)

    @app.get("/limited/<int:number>")
    @limiter.limit("2/day", per="user")
    def limited(number: int) -> str:
        limiter.admission().settle(int(request.args.get("cost", "1")))
        return str(number)

    @limiter.limit("1/day", message="Enough.", status=420)
    @app.get("/above")
    def above() -> str:
        return "above"

    @app.get("/free")
    @limiter.exempt
    def free() -> str:
        return "free"

    @app.get("/stream")
    def stream() -> Response:
        def parts() -> Iterator[str]:
            yield "a"
            limiter.admission()

        return Response(parts())

    @app.get("/fails")
    def fails() -> str:
        raise ZeroDivisionError

    return app, limiter


def test_views_have_limits_by_their_rule() -> None:
    """A decorator limits a view, below or above its route; it counts by URL rule."""
    app, _ = _flask()
    assert _codes(app, "/limited/1", "/limited/2", "/limited/3") == [200, 200, 429]
    refused = [app.test_client().get("/above") for _ in range(2)][1]
    assert (refused.status_code, refused.json["message"]) == (420, "Enough.")  # type: ignore[index] # there is a body
    assert refused.content_type == "application/problem+json"
    assert int(refused.headers["Retry-After"]) >= 1


def test_costs_are_settled() -> None:
    """A settled cost is counted when the answer has been sent."""
    app, _ = _flask()
    assert _codes(app, "/limited/1?cost=0", "/limited/1?cost=9", "/limited/1") == [200, 200, 429]


def test_rules_concern_the_whole_application() -> None:
    """Rules count by URL rule, use the application's users, and exclude exempt and skipped views."""
    rules = [{"name": "each", "per": ["user", "endpoint"], "limits": "1/day"}]
    app, _ = _flask(rules=rules, identify=lambda request: request.headers.get("x-user"), skip=["/skipped"])
    assert _codes(app, "/limited/1", "/limited/2", **{"x-user": "ann"}) == [200, 429]
    assert _codes(app, "/limited/1", **{"x-user": "bob"}) == [200]
    assert _codes(app, *["/free"] * 3) == [200] * 3
    assert _codes(app, *["/skipped"] * 3) == [404] * 3
    assert _codes(app, "/nowhere", "/nowhere/else") == [404, 429]


def test_headers_are_on_every_answer() -> None:
    """Answers, errors and unknown paths have the headers once."""
    app, _ = _flask(rules=[{"name": "wide", "limits": "9/day"}])
    for path, code in (("/limited/1", 200), ("/fails", 500), ("/nowhere", 404)):
        answer = app.test_client().get(path)
        assert answer.status_code == code
        assert len(answer.headers.getlist("X-RateLimit-Limit")) == 1


def test_slots_come_back() -> None:
    """Slots are held until the answer is sent or the view has failed."""
    rules = [{"name": "slots", "limits": "1 concurrent", "algorithm": "concurrency"}]
    app, _ = _flask(rules=rules)
    app.testing = True
    client = app.test_client()
    with pytest.raises(ZeroDivisionError):
        client.get("/fails")
    answer = client.get("/limited/1", buffered=False)
    assert client.get("/nowhere").status_code == 429
    answer.close()
    assert client.get("/nowhere").status_code == 404


def test_what_enforces_nothing_fails() -> None:
    """An application without rules and limits, a limit without the extension, and memory:// with several processes
    raise.
    """
    app = Flask("bare")
    app.testing = True
    RateLimiter(app)
    with pytest.raises(InvalidSettings, match="nothing would be limited"):
        app.test_client().get("/")
    other = Flask("other")
    other.testing = True
    other.get("/")(RateLimiter().limit("1/day")(lambda: "here"))
    with pytest.raises(InvalidSettings, match="init_app"):
        other.test_client().get("/")
    limited, _ = _flask()
    limited.testing = True
    several = {"wsgi.multiprocess": True, "SERVER_SOFTWARE": "gunicorn/23"}
    with pytest.raises(InvalidSettings, match="redis://"):
        limited.test_client().get("/limited/1", environ_overrides=several)


# Plain WSGI


def _hello(environ: Any, start_response: Any) -> Iterable[bytes]:  # noqa: ANN401 (WSGI)
    if environ["PATH_INFO"] == "/settles":
        admission(environ).settle(0)
    start_response("200 OK", [("X-Own", "1")])
    return [b"hello"]


def _call(app: Callable[..., Iterable[bytes]], path: str = "/", **environ: str) -> tuple[str, dict[str, str], bytes]:
    answered: list[Any] = []
    given = {"REQUEST_METHOD": "GET", "PATH_INFO": path, "REMOTE_ADDR": "192.0.2.1", **environ}
    body = app(given, lambda status, headers, *_: answered.extend((status, dict(headers))))
    text = b"".join(body)
    if hasattr(body, "close"):
        body.close()
    return answered[0], answered[1], text


def test_wsgi_applications_are_limited() -> None:
    """Above a limit the middleware answers instead of the application; other answers have the headers."""
    app = RateLimitMiddleware(_hello, rules=DAILY, skip=["/health"])
    passed = [_call(app) for _ in range(3)]
    assert [(status, body) for status, _, body in passed] == [("200 OK", b"hello")] * 3
    assert [headers["X-RateLimit-Remaining"] for _, headers, _ in passed] == ["2", "1", "0"]
    status, headers, body = _call(app)
    assert (status, headers["Content-Type"]) == ("429 Too Many Requests", "application/problem+json")
    assert b"daily" in body
    assert _call(app, REQUEST_METHOD="HEAD")[2] == b""
    assert _call(app, "/health")[0] == "200 OK"
    assert _call(app, "/a/../health")[0] == "400 Bad Request"


def test_wsgi_costs_are_settled_and_callers_named() -> None:
    """`identify` and `cost` get the environment, and a settled cost is counted."""
    with Limiter.open(rules=[{"name": "daily", "per": ["user"], "limits": "4/day"}]) as limiter:
        app = RateLimitMiddleware(_hello, limiter, identify=lambda environ: environ.get("USER"), cost=lambda _: 4)
        assert [_call(app, "/settles", USER="ann")[0] for _ in range(2)] == ["200 OK"] * 2
        assert [_call(app, USER="ann")[0][:3] for _ in range(2)] == ["200", "429"]
        assert _call(app, USER="bob")[0] == "200 OK"


def test_two_limits_on_one_counter_are_refused() -> None:
    """Two limits with one name and subject would share a counter; with another name or subject they do not."""
    limiter = RateLimiter(Flask("small"), rules=DAILY)

    def view() -> str:
        return ""

    limiter.limit("5/minute")(view)
    limiter.limit("5/minute", per="ip")(view)
    limiter.limit("5/minute", name="other")(view)
    with pytest.raises(InvalidSettings, match="two limits at one route are named '5-minute' and share a counter"):
        limiter.limit("5/minute")(view)


def test_wsgi_fails_loudly() -> None:
    """Nothing to enforce, rules given twice, and a failing application all raise."""
    with pytest.raises(InvalidSettings, match="nothing would be limited"):
        RateLimitMiddleware(_hello)
    with Limiter.open(rules=DAILY) as limiter, pytest.raises(InvalidSettings, match="already has its rules"):
        RateLimitMiddleware(_hello, limiter, DAILY)

    def fails(_environ: object, _start: object) -> Iterable[bytes]:
        raise ZeroDivisionError

    slots = [{"name": "slots", "limits": "1 concurrent", "algorithm": "concurrency"}]
    app = RateLimitMiddleware(fails, rules=slots)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            _call(app)
    with pytest.raises(InvalidSettings, match="not installed"):
        admission({})
