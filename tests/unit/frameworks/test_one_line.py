"""One line above whatever a framework calls: functions, classes, blueprints, routers, patterns, WebSockets."""

from __future__ import annotations

import asyncio
from typing import Any

import flask
import pytest
from django.http import HttpResponse
from django.test import Client, override_settings
from django.urls import include
from django.urls import path as at
from django.views import View
from fastapi import APIRouter, Depends, FastAPI, HTTPException, WebSocket
from flask.views import MethodView
from starlette.applications import Starlette
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocketDisconnect
from tests.support.applications import get, hello, lived, scope_of, sent, statuses
from tests.unit.frameworks.kits import TestClient

import headgate
from headgate import InvalidSettings, WrongUse, asgi, fastapi, starlette, wsgi
from headgate import django as of_django
from headgate.flask import RateLimited, RateLimiter


def _codes(app: Any, *paths: str) -> list[int]:  # noqa: ANN401 (ASGI)
    return [answer.status_code for answer in get(app, *paths)]


# FastAPI


def _fastapi() -> FastAPI:
    app, router = FastAPI(), APIRouter(prefix="/r", dependencies=[Depends(fastapi.rate_limit("3/day", name="router"))])

    @app.get("/async/{number}")
    @fastapi.rate_limit("2/day")
    async def later(number: int) -> int:
        return number

    @app.get("/sync/{number}")
    @fastapi.rate_limit("2/day", status=420)
    def now(number: int) -> int:
        return number

    @router.get("/both")
    @fastapi.rate_limit("2/day", on_refused=lambda _, verdict: JSONResponse(verdict.policy, 429))
    async def both() -> str:
        return "both"

    @app.get("/free")
    async def free() -> str:
        return "free"

    app.include_router(router)
    return app


def test_a_decorator_limits_functions_of_fastapi() -> None:
    """It leaves their parameters alone, needs none of its own, and holds beside dependencies of a router."""
    app = _fastapi()
    fastapi.setup(app)
    assert _codes(app, "/async/1", "/async/2", "/async/3") == [200, 200, 429]
    assert _codes(app, "/sync/1", "/sync/2", "/sync/3") == [200, 200, 420]
    assert _codes(app, "/r/both", "/r/both", "/r/both", "/free") == [200, 200, 429, 200]
    assert get(app, "/async/x")[0].status_code == 429


def test_openapi_shows_refusals() -> None:
    """Limited routes show the status, the headers and the problem document; other routes and own bodies do not."""
    app = _fastapi()
    fastapi.setup(app, headers="ratelimit", header_names={"RateLimit": "Quota"})
    document = get(app, "/openapi.json")[0].json()
    paths = document["paths"]
    refusal = paths["/async/{number}"]["get"]["responses"]["429"]
    assert set(refusal["headers"]) == {"RateLimit-Policy", "Quota", "Retry-After"}
    schema = {"$ref": "#/components/schemas/RateLimitProblem"}
    assert refusal["content"] == {"application/problem+json": {"schema": schema}}
    assert "420" in paths["/sync/{number}"]["get"]["responses"]
    assert "content" not in paths["/r/both"]["get"]["responses"]["429"]
    assert "429" not in paths["/free"]["get"]["responses"]
    *_, refused = get(app, *["/async/1"] * 3)
    described = document["components"]["schemas"]["RateLimitProblem"]
    assert set(refused.json()) == set(described["required"]) == set(described["properties"])
    assert app.openapi() is app.openapi()


def test_openapi_knows_defaults_and_rules() -> None:
    """A route that a default or a rule limits shows the refusal too."""
    for setup in (
        {"default_limits": "1/day"},
        {"rules": [{"name": "a", "limits": "1/day", "match": {"endpoints": "/*"}}]},
    ):
        app = _fastapi()
        fastapi.setup(app, **setup)
        assert "429" in app.openapi()["paths"]["/free"]["get"]["responses"]
    app = _fastapi()
    fastapi.setup(app, rules=[{"name": "a", "limits": "1/day", "match": {"endpoints": "/other"}}])
    assert "429" not in app.openapi()["paths"]["/free"]["get"]["responses"]


@pytest.mark.parametrize("how", ["decorator", "dependency", "starlette"])
def test_websockets_are_limited_at_their_handshake(how: str) -> None:
    """A WebSocket route takes a limit as others do; messages of an admitted one pass untouched."""

    async def echo(socket: WebSocket) -> None:
        await socket.accept()
        await socket.send_text(await socket.receive_text())
        await socket.close()

    app: Any
    if how == "starlette":
        app = Starlette(routes=[WebSocketRoute("/ws", starlette.rate_limit("1/day")(echo))])
        starlette.setup(app)
    else:
        app, limit = FastAPI(), fastapi.rate_limit("1/day")
        echo.__annotations__ = {"socket": WebSocket}
        if how == "decorator":
            app.websocket("/ws")(limit(echo))
        else:
            app.websocket("/ws", dependencies=[Depends(limit)])(echo)
        fastapi.setup(app)
    client = TestClient(app)
    with client.websocket_connect("/ws") as socket:
        socket.send_text("hello")
        assert socket.receive_text() == "hello"
    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/ws"):
        pass
    more: Any = {"extensions": {"websocket.http.response": {}}, "subprotocols": []}
    scope = scope_of("/ws", type="websocket", peer="testclient", **more)
    (start, _) = asyncio.run(sent(app, scope, {"type": "websocket.connect"}))
    assert start["status"] == 429


def test_error_handlers_of_fastapi_are_called() -> None:
    """A handler for the status or for `RateLimited` answers refused calls, and one for what `on_refused` raises."""

    class TooFast(Exception):
        pass

    def too_fast(_connection: Any, _verdict: Any) -> Any:  # noqa: ANN401 (of headgate)
        raise TooFast

    def plain_error(_connection: Any, _verdict: Any) -> Any:  # noqa: ANN401 (of headgate)
        raise HTTPException(403, "no")

    async def handled(_request: Request, error: Exception) -> PlainTextResponse:
        return PlainTextResponse(f"handled {type(error).__name__}", 418)

    for kind, on_refused, body in (
        (429, None, "handled RateLimited"),
        (fastapi.RateLimited, None, "handled RateLimited"),
        (TooFast, too_fast, "handled TooFast"),
        (KeyError, plain_error, '{"detail":"no"}'),
    ):
        app = FastAPI()
        app.get("/")(fastapi.rate_limit("1/day")(lambda: "found"))
        app.add_exception_handler(kind, handled)
        fastapi.setup(app, on_refused=on_refused)
        refused = get(app, "/", "/")[1]
        assert refused.text == body
        assert refused.headers["x-ratelimit-remaining"] == "0"


def test_what_on_refused_gives_is_checked() -> None:
    """Something that is no response raises."""
    app = FastAPI()
    app.get("/")(fastapi.rate_limit("1/day", on_refused=lambda *_: "no")(lambda: "found"))
    fastapi.setup(app)
    with pytest.raises(InvalidSettings, match="on_refused gives a response, or raises an exception; it gave 'no'"):
        get(app, "/", "/")


def test_wrong_decorators_show_the_right_line() -> None:
    """A decorator without its limit, of another framework, or without its middleware raises a TypeError that helps."""
    with pytest.raises(TypeError, match=r'the limit is missing at .search.; write @rate_limit\("10/minute"'):

        @fastapi.rate_limit
        def search() -> str:
            return "found"

    app = FastAPI()
    app.get("/")(fastapi.rate_limit(lambda q: q))
    fastapi.setup(app)
    (failed,) = lived(app)
    assert 'has a limit in place of a view; write @rate_limit("10/minute") above the view' in failed["message"]
    for decorate, sentence in (
        (RateLimiter().limit("1/day"), "the limit is headgate.flask's"),
        (of_django.rate_limit("1/day"), r"add headgate.django.RateLimitMiddleware to MIDDLEWARE"),
        (fastapi.rate_limit("1/day"), r'write setup\(app, "memory://"\)'),
    ):
        other = FastAPI()
        other.get("/")(decorate(lambda: "found"))
        with pytest.raises(TypeError, match=sentence):
            get(other, "/")
    with pytest.raises(TypeError, match="setup takes the application, not str"):
        fastapi.setup("app")  # type: ignore[arg-type] # wrong on purpose
    with pytest.raises(TypeError, match="the application comes first, not str"):
        RateLimiter("redis://localhost")  # type: ignore[arg-type] # wrong on purpose


def test_a_limit_of_starlette_works_in_fastapi() -> None:
    """It needs no request among the arguments."""
    app = FastAPI()
    app.get("/")(starlette.rate_limit("1/day")(lambda: "found"))
    fastapi.setup(app)
    assert _codes(app, "/", "/") == [200, 429]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"methods": ["DELETE"]}, "is for methods that the route / does not have; it has GET"),
        ({"methods": ["GET"]}, "methods and per_method have no effect on the WebSocket route /ws"),
        ({"per_method": True}, "methods and per_method have no effect on the WebSocket route /ws"),
    ],
)
def test_options_that_no_call_can_reach_are_refused(options: Any, sentence: str) -> None:  # noqa: ANN401 (of a limit)
    """A limit for methods that a route does not have would never hold, so the application does not start."""
    app = FastAPI()
    if "/ws" in sentence:
        app.websocket("/ws")(fastapi.rate_limit("1/day", **options)(lambda: None))
    else:
        app.get("/")(fastapi.rate_limit("1/day", **options)(lambda: None))
    fastapi.setup(app)
    (failed,) = lived(app)
    assert sentence in failed["message"]


# ASGI, Starlette


def test_any_asgi_application_has_all_options() -> None:
    """Functions get the scope; what `on_refused` gives is called as an application."""

    async def refused(_scope: Any, _receive: Any, send: Any) -> None:  # noqa: ANN401 (ASGI)
        await send({"type": "http.response.start", "status": 418, "headers": []})
        await send({"type": "http.response.body", "body": b"own"})

    limit = asgi.limit("1/day", key=lambda scope: scope["path"], exempt_when=lambda scope: scope["method"] == "PUT")
    app = asgi.RateLimitMiddleware(hello, default_limits=limit, on_refused=lambda _scope, _verdict: refused)
    scopes = [scope_of("/a"), scope_of("/a"), scope_of("/b"), scope_of("/a", method="PUT")]
    assert statuses(app, *scopes) == [200, 418, 200, 200]
    counted = asgi.RateLimitMiddleware(hello, default_limits="1/day")
    caller = headgate.Request(ip="192.0.2.1", method="GET", path="/")

    async def run() -> None:
        assert (await counted.peek(scope_of("/"))).allowed
        await sent(counted, scope_of("/"))
        assert not (await counted.peek(caller)).allowed
        await counted.reset(scope_of("/"))
        assert (await counted.peek(scope_of("/"))).remaining == 0

    asyncio.run(run())

    def failing(_scope: Any, _verdict: Any) -> Any:  # noqa: ANN401 (of headgate)
        raise LookupError

    raising = asgi.RateLimitMiddleware(hello, default_limits="1/day", on_refused=failing)
    with pytest.raises(LookupError):
        statuses(raising, scope_of("/"), scope_of("/"))


def test_an_error_of_the_application_is_an_answer_for_deduct_when() -> None:
    """A view that raises is answered 500, and `deduct_when` sees that."""
    fails = True

    async def view(_request: Request) -> PlainTextResponse:
        if fails:
            raise ZeroDivisionError
        return PlainTextResponse("fine")

    limit = starlette.rate_limit("1/day", deduct_when=lambda response: response.status_code < 500)
    app = Starlette(routes=[Route("/", limit(view))])
    extension = starlette.setup(app)
    client = TestClient(app, raise_server_exceptions=False)
    assert [client.get("/").status_code for _ in range(2)] == [500, 500]
    fails = False
    assert [client.get("/").status_code for _ in range(2)] == [200, 429]
    caller = HTTPConnection(scope_of("/", app=app, peer="testclient"))
    assert not asyncio.run(extension.peek(caller)).allowed
    asyncio.run(extension.reset(caller))
    assert client.get("/").status_code == 200


# WSGI, Flask


def test_any_wsgi_application_has_all_options() -> None:
    """Functions get the environment; what `on_refused` gives is called as an application."""

    def app(environ: Any, start: Any) -> list[bytes]:  # noqa: ANN401 (WSGI)
        if environ["PATH_INFO"] == "/fails":
            raise ZeroDivisionError
        start("401 Unauthorized" if environ["PATH_INFO"] == "/in" else "200 OK", [("X-Own", "1")])
        return [b"hello"]

    def refused(_environ: Any, start: Any) -> list[bytes]:  # noqa: ANN401 (WSGI)
        start("418 I'm a teapot", [])
        return [b"own"]

    limit = wsgi.limit(
        "1/day", deduct_when=lambda response: response.status_code == 401 and "x-own" in response.headers
    )
    limited = wsgi.RateLimitMiddleware(app, default_limits=limit, on_refused=lambda _environ, _verdict: refused)

    def code(path: str) -> str:
        seen: list[Any] = []
        body: Any = limited(
            {"PATH_INFO": path, "REQUEST_METHOD": "GET", "REMOTE_ADDR": "192.0.2.1"}, lambda *a: seen.append(a)
        )
        if hasattr(body, "close"):
            body.close()
        status: str = seen[0][0]
        return status[:3]

    assert [code("/"), code("/")] == ["200", "200"]
    with pytest.raises(ZeroDivisionError):
        code("/fails")
    assert [code("/in"), code("/in")] == ["401", "418"]
    environ = {"PATH_INFO": "/", "REQUEST_METHOD": "GET", "REMOTE_ADDR": "192.0.2.1"}
    assert not limited.peek(environ).allowed
    limited.reset(headgate.Request(ip="192.0.2.1", method="GET", path="/"))
    assert limited.peek(environ).allowed


def _flask(**options: Any) -> tuple[flask.Flask, RateLimiter]:  # noqa: ANN401 (of an extension)
    app = flask.Flask("one_line")
    return app, RateLimiter(app, **options)


def _answers(app: flask.Flask, *paths: str) -> list[int]:
    return [app.test_client().get(path).status_code for path in paths]


def test_blueprints_of_flask_are_limited_and_exempt() -> None:
    """A limit at a blueprint holds for each of its views, in nested blueprints too, beside those of the views."""
    app, limiter = _flask(rules=[{"name": "wide", "limits": "99/day"}])
    shop, cart, free = (flask.Blueprint(name, name, url_prefix=f"/{name}") for name in ("shop", "cart", "free"))
    limiter.limit("2/day")(shop)
    limiter.exempt(free)
    shop.get("/a")(lambda: "a")
    cart.get("/b")(limiter.limit("1/day")(lambda: "b"))
    free.get("/c")(lambda: "c")
    shop.register_blueprint(cart)
    app.register_blueprint(shop)
    app.register_blueprint(free)
    assert _answers(app, "/shop/a", "/shop/a", "/shop/a") == [200, 200, 429]
    assert _answers(app, "/shop/cart/b", "/shop/cart/b") == [200, 429]
    assert "RateLimit" not in app.test_client().get("/free/c").headers


def test_class_views_and_views_of_extensions() -> None:
    """A class takes a limit among its `decorators`, and a view that an extension has added takes one afterwards."""
    app, limiter = _flask()

    class Search(MethodView):
        decorators = [limiter.limit("1/day")]  # noqa: RUF012 (Flask's)

        def get(self) -> str:
            return "found"

    app.add_url_rule("/search", view_func=Search.as_view("search"))
    app.add_url_rule("/admin", "admin.index", lambda: "admin")  # as an extension does
    app.view_functions["admin.index"] = limiter.limit("1/day")(app.view_functions["admin.index"])
    assert _answers(app, "/search", "/search", "/admin", "/admin") == [200, 429, 200, 429]


def test_asynchronous_views_of_flask() -> None:
    """A limit leaves a coroutine function one."""
    app, limiter = _flask()

    @app.get("/")
    @limiter.limit("1/day")
    async def view() -> str:
        return "found"

    assert _answers(app, "/", "/") == [200, 429]


def test_error_handlers_of_flask_are_called() -> None:
    """A handler for 429 answers refused calls, by any limit; another status has its own handler."""
    app, limiter = _flask()
    app.get("/")(limiter.limit("1/day")(lambda: "found"))
    app.get("/other", endpoint="other")(limiter.limit("1/day", status=420)(lambda: "found"))

    @app.errorhandler(429)
    def handled(error: RateLimited) -> tuple[str, int]:
        return f"wait {error.verdict.policy}", 418

    refused = [app.test_client().get("/") for _ in range(2)][1]
    assert (refused.status_code, refused.text) == (418, "wait 1-day")
    assert refused.headers["X-RateLimit-Remaining"] == "0"
    assert _answers(app, "/other", "/other") == [200, 420]


def test_a_setting_of_flask_switches_limits_off() -> None:
    """`HEADGATE_ENABLED` in the application's configuration, unless the code says otherwise."""
    for options, codes in (({}, [200, 200]), ({"enabled": True}, [200, 429])):
        app, limiter = _flask(**options)
        app.config["HEADGATE_ENABLED"] = False
        app.get("/")(limiter.limit("1/day")(lambda: "found"))
        assert _answers(app, "/", "/") == codes


def test_flask_peeks_at_the_current_call() -> None:
    """Inside of a call, `peek` and `reset` concern its caller at its route, by functions of the call too."""
    app, limiter = _flask()

    @app.get("/")
    @limiter.limit("2/day", key=lambda request: request.args.get("key"))
    def view() -> dict[str, Any]:
        left = limiter.peek().remaining
        limiter.reset()
        return {"left": left, "then": limiter.peek().remaining}

    assert app.test_client().get("/?key=a").json == {"left": 0, "then": 1}


# Django


def test_patterns_and_classes_of_django() -> None:
    """A pattern, all patterns that one includes, and a class take a limit; the same view elsewhere has none."""

    def view(_request: Any) -> HttpResponse:  # noqa: ANN401 (Django's)
        return HttpResponse("found")

    @of_django.rate_limit("1/day")
    class Search(View):  # type: ignore[misc] # Django has no types
        def get(self, _request: Any) -> HttpResponse:  # noqa: ANN401 (Django's)
            return HttpResponse("found")

    class Urls:
        urlpatterns = [  # noqa: RUF012 (Django's)
            of_django.rate_limit("1/day")(at("one", view)),
            of_django.rate_limit("1/day")(at("shop/", include([at("a", view), at("b/", include([at("c", view)]))]))),
            of_django.exempt(at("free/", include([at("d", view)]))),
            at("plain", view),
            at("search", Search.as_view()),
        ]

    settings = {"MIDDLEWARE": ["headgate.django.RateLimitMiddleware"], "ROOT_URLCONF": Urls}
    rules = [{"name": "wide", "limits": "99/day"}]
    with override_settings(HEADGATE={"RULES": rules}, **settings):
        client = Client()
        for path in ("/one", "/shop/a", "/shop/b/c", "/search"):
            assert [client.get(path).status_code for _ in range(2)] == [200, 429], path
        assert [client.get("/plain").status_code for _ in range(2)] == [200, 200]
        assert "RateLimit" not in client.get("/free/d").headers


def test_error_handlers_of_django_are_called() -> None:
    """What `ON_REFUSED` raises is answered as if a view had raised it."""
    from django.core.exceptions import PermissionDenied  # noqa: PLC0415 (only here)

    def refuse(_request: Any, _verdict: Any) -> Any:  # noqa: ANN401 (of Django and headgate)
        raise PermissionDenied

    class Urls:
        urlpatterns = [at("", of_django.rate_limit("1/day")(lambda _: HttpResponse("found")))]  # noqa: RUF012 (Django's)
        handler403 = staticmethod(
            lambda _request, exception: HttpResponse(f"own {type(exception).__name__}", status=403)
        )

    settings = {"MIDDLEWARE": ["headgate.django.RateLimitMiddleware"], "ROOT_URLCONF": Urls}
    with override_settings(HEADGATE={"ON_REFUSED": refuse}, **settings):
        client = Client()
        _, refused = client.get("/"), client.get("/")
        assert (refused.status_code, refused.text) == (403, "own PermissionDenied")
        request = Client().get("/").wsgi_request
        assert of_django.peek(request).allowed is False
        of_django.reset(request)
        assert of_django.peek(request).allowed


def test_views_that_were_not_checked_say_so() -> None:
    """The verdict on a call exists only where the call was checked."""
    with pytest.raises(WrongUse, match="this call was not checked"):
        RateLimiter().admission()
