"""Calls that end in unusual ways, applications inside of others, and what browsers ask before a call."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest
from django.http import HttpResponse
from django.test import AsyncClient, Client, override_settings
from django.urls import path
from fastapi import APIRouter, BackgroundTasks, FastAPI, WebSocket
from flask import Flask, Response
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import StreamingResponse
from starlette.websockets import WebSocketDisconnect
from tests.support.applications import scope_of, status
from tests.unit.frameworks import django_project
from tests.unit.frameworks.kits import TestClient

from headgate.fastapi import admission, rate_limit, setup
from headgate.flask import RateLimiter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

assert django_project.urlpatterns

from headgate import django as headgate_django  # noqa: E402 (Django's settings come first)

_ONE = {"algorithm": "concurrency"}
_PREFLIGHT = {"origin": "https://shop.example", "access-control-request-method": "GET"}


def _fails(*_: object) -> Any:  # noqa: ANN401 (it gives nothing)
    raise ZeroDivisionError


def _asked(found: list[int]) -> Any:  # noqa: ANN401 (an option)
    def deduct_when(response: Any) -> bool:  # noqa: ANN401 (of a framework)
        found.append(response.status_code)
        return bool(response.status_code < 500)

    return deduct_when


# Errors


def test_an_error_that_flask_passes_on_is_a_500_for_deduct_when() -> None:
    """Whether Flask answers an error or passes it on, `deduct_when` is asked once, about a 500."""
    for passes_on in (True, False):
        found: list[int] = []
        app = Flask("small")
        app.config["PROPAGATE_EXCEPTIONS"] = passes_on
        app.get("/")(RateLimiter(app).limit("1/day", deduct_when=_asked(found))(lambda *_: _fails()))
        for times in range(1, 4):
            if passes_on:
                with pytest.raises(ZeroDivisionError):
                    app.test_client().get("/")
            else:
                assert app.test_client().get("/").status_code == 500
            assert found == [500] * times


@pytest.mark.parametrize("passes_on", [True, False])
def test_an_error_that_django_passes_on_is_a_500_for_deduct_when(passes_on: bool) -> None:  # noqa: FBT001 (a parameter)
    """Whether Django answers an error or passes it on, `deduct_when` is asked once, about a 500."""
    found: list[int] = []

    class Urls:
        urlpatterns = (path("", headgate_django.rate_limit("1/day", deduct_when=_asked(found))(lambda _: _fails())),)

    middleware = ["headgate.django.RateLimitMiddleware"]
    settings = {"HEADGATE": {"STORE": "memory://"}, "MIDDLEWARE": middleware, "ROOT_URLCONF": Urls}
    with override_settings(**settings, DEBUG_PROPAGATE_EXCEPTIONS=passes_on):
        client = Client(raise_request_exception=False)
        for times in range(1, 4):
            if passes_on:
                with pytest.raises(ZeroDivisionError):
                    client.get("/")
            else:
                assert client.get("/").status_code == 500
            assert found == [500] * times


def _flask_app(**options: Any) -> Any:  # noqa: ANN401 (a client)
    app = Flask("small")
    app.get("/")(RateLimiter(app).limit(options.pop("limits", "1/day"), **options)(lambda: "here"))
    return app.test_client()


def _fastapi_app(**options: Any) -> Any:  # noqa: ANN401 (a client)
    app = FastAPI()
    app.get("/")(rate_limit(options.pop("limits", "1/day"), **options)(lambda: "here"))
    setup(app)
    return TestClient(app, raise_server_exceptions=False)


@pytest.mark.parametrize("make", [_flask_app, _fastapi_app])
def test_functions_that_raise_are_errors_of_the_application(make: Any) -> None:  # noqa: ANN401 (as above)
    """A call whose functions raise is answered 500, counts as far as it got, and leaves no slot behind."""
    for name in ("key", "cost", "exempt_when", "limits"):
        assert make(**{name: lambda _: _fails()}).get("/").status_code == 500
    client = make(deduct_when=_fails)
    assert [client.get("/").status_code for _ in range(2)] == [500, 429]
    client = make(on_refused=_fails)
    assert [client.get("/").status_code for _ in range(3)] == [200, 500, 500]
    client = make(limits="1 concurrent", deduct_when=_fails, **_ONE)
    assert [client.get("/").status_code for _ in range(3)] == [500, 500, 500]


# Answers that end early


def test_a_stream_that_flask_closes_early_releases_its_slot() -> None:
    """A caller that leaves in the middle of a stream holds nothing."""
    app = Flask("small")

    def stream() -> Response:
        def parts() -> Iterator[bytes]:
            yield b"one"
            yield b"two"

        return Response(parts())

    app.get("/")(RateLimiter(app).limit("1 concurrent", **_ONE)(stream))  # type: ignore[arg-type] # options
    client = app.test_client()
    held = client.get("/", buffered=False)
    next(iter(held.response))
    assert client.get("/").status_code == 429
    held.close()
    assert client.get("/").status_code == 200


def test_a_cancelled_call_releases_its_slot_in_fastapi() -> None:
    """A server cancels the call of a caller that has gone; background tasks hold the slot until they are done."""
    app = FastAPI()
    limit = rate_limit("1 concurrent", name="slots", **_ONE)  # type: ignore[arg-type] # options

    async def parts() -> AsyncIterator[bytes]:
        while True:
            yield b"more"
            await asyncio.sleep(0)

    app.get("/stream")(limit(lambda: StreamingResponse(parts())))
    seen: list[int] = []

    async def later() -> None:
        seen.append(await status(app, scope_of("/next", peer="127.0.0.1")))

    async def background(tasks: BackgroundTasks) -> str:
        tasks.add_task(later)
        return "here"

    background.__annotations__ = {"tasks": BackgroundTasks}
    app.get("/background")(limit(background))
    app.get("/next")(limit(lambda: "here"))
    setup(app)

    async def run() -> None:
        begun = asyncio.Event()

        async def send(_message: Any) -> None:  # noqa: ANN401 (ASGI)
            begun.set()
            await asyncio.sleep(0)

        async def receive() -> Any:  # noqa: ANN401 (ASGI)
            await asyncio.Event().wait()

        call = asyncio.create_task(app(scope_of("/stream", peer="127.0.0.1"), receive, send))
        await begun.wait()
        assert await status(app, scope_of("/next", peer="127.0.0.1")) == 429
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert await status(app, scope_of("/next", peer="127.0.0.1")) == 200
        assert await status(app, scope_of("/background", peer="127.0.0.1")) == 200
        assert seen == [429]
        assert await status(app, scope_of("/next", peer="127.0.0.1")) == 200

    asyncio.run(run())


def test_a_websocket_closed_before_it_is_accepted_releases_its_slot() -> None:
    """An application may refuse a handshake that was admitted."""
    app = FastAPI()

    async def talk(socket: WebSocket) -> None:
        if socket.query_params:
            await socket.accept()
        await socket.close()

    talk.__annotations__ = {"socket": WebSocket}
    app.websocket("/")(rate_limit("1 concurrent", **_ONE)(talk))  # type: ignore[arg-type] # options
    setup(app)
    with TestClient(app) as client:
        for _ in range(3):
            with pytest.raises(WebSocketDisconnect) as refused, client.websocket_connect("/"):
                pass
            assert refused.value.code == 1000
        with client.websocket_connect("/?accept=1"):
            pass


# Applications inside of others


def test_limits_of_mounted_applications_count_once() -> None:
    """With headgate in both, a call to the inner one is counted and described once, by the outer one."""
    inner = FastAPI()

    async def view(request: Any) -> int:  # noqa: ANN401 (as below)
        admission(request).settle(2)
        return 1

    from starlette.requests import Request  # noqa: PLC0415 (FastAPI reads it from here)

    view.__annotations__ = {"request": Request}
    inner.get("/y")(rate_limit("4/day", name="shared")(view))
    setup(inner)
    outer = FastAPI()
    outer.mount("/in", inner)
    setup(outer)
    with TestClient(outer) as client:
        answers = [client.get("/in/y") for _ in range(3)]
    assert [each.status_code for each in answers] == [200, 200, 429]
    assert [each.headers.get_list("x-ratelimit-remaining") for each in answers] == [["3"], ["1"], ["0"]]


def test_rules_of_both_applications_hold() -> None:
    """An inner application with rules of its own decides them, beside those of the outer one."""
    inner = FastAPI()
    inner.get("/y")(rate_limit("9/day")(lambda: 1))
    setup(inner, rules=[{"name": "inner", "per": ["ip"], "limits": "2/day"}])
    outer = FastAPI()
    outer.mount("/in", inner)
    setup(outer, rules=[{"name": "outer", "per": ["ip"], "limits": "3/day"}])
    with TestClient(outer) as client:
        assert [client.get("/in/y").status_code for _ in range(3)] == [200, 200, 429]


def test_a_view_that_calls_another_application_keeps_its_own_verdict() -> None:
    """The verdict belongs to a call, not to a thread."""
    inner, outer = Flask("inner"), Flask("outer")
    inner.get("/")(RateLimiter(inner).limit("5/day")(lambda: "here"))
    limiter = RateLimiter(outer)

    def view() -> str:
        assert inner.test_client().get("/").status_code == 200
        return str(limiter.admission().verdict.limit)

    outer.get("/")(limiter.limit("7/day")(view))
    assert outer.test_client().get("/").get_data() == b"7"


# What is asked before and beside calls


def test_preflights_are_answered_by_what_stands_around() -> None:
    """A CORS middleware added after `setup` answers preflights itself, and its headers are on refusals too."""
    app = FastAPI()
    app.get("/")(rate_limit("1/day")(lambda: "here"))
    setup(app)
    app.add_middleware(CORSMiddleware, allow_origins=["*"], allow_methods=["*"])
    client = TestClient(app)
    assert [client.options("/", headers=_PREFLIGHT).status_code for _ in range(3)] == [200, 200, 200]
    answers = [client.get("/", headers={"origin": "https://shop.example"}) for _ in range(2)]
    assert [each.status_code for each in answers] == [200, 429]
    assert all(each.headers["access-control-allow-origin"] == "*" for each in answers)


def test_automatic_answers_to_options_count_unless_they_are_exempt() -> None:
    """Flask answers OPTIONS by itself; it counts as any other call, unless the application says otherwise."""
    for exempt_when, expected in ((None, [200, 429]), (lambda request: request.method == "OPTIONS", [200, 200])):
        app = Flask("small")
        limiter = RateLimiter(app, exempt_when=exempt_when)
        app.get("/")(limiter.limit("1/day")(lambda: "here"))
        client = app.test_client()
        assert [client.options("/").status_code, client.get("/").status_code] == expected
        assert client.head("/").status_code == 429  # a HEAD is a GET without its body


def test_calls_without_a_route_and_without_a_lifespan() -> None:
    """A 404 is decided by rules and by no route's limit; an application that is never started starts by itself."""
    app = FastAPI()
    app.get("/")(rate_limit("1/day")(lambda: "here"))
    setup(app, rules=[{"name": "all", "per": ["ip"], "limits": "3/day"}])
    client = TestClient(app)  # without `with`: no lifespan
    assert [client.get(at).status_code for at in ("/", "/", "/nowhere", "/nowhere", "/nowhere")] == [
        *(200, 429),
        *(404, 404, 429),
    ]
    by_default = FastAPI()
    setup(by_default, default_limits="2/day")
    client = TestClient(by_default)
    found = [client.get(at).status_code for at in ("/nowhere", "/nowhere", "/nowhere")]
    assert found == [404, 404, 429]


def test_default_limits_hold_for_included_routers() -> None:
    """Routes of routers, nested ones too, have the default limit unless they have one of their own."""
    inner, outer, app = APIRouter(), APIRouter(), FastAPI()
    inner.get("/default")(lambda: "here")
    inner.get("/own")(rate_limit("1/day")(lambda: "here"))
    outer.include_router(inner, prefix="/inner")
    app.include_router(outer, prefix="/outer")
    setup(app, default_limits="2/day")
    client = TestClient(app)
    assert [client.get("/outer/inner/default").status_code for _ in range(3)] == [200, 200, 429]
    assert [client.get("/outer/inner/own").status_code for _ in range(2)] == [200, 429]


def test_asynchronous_views_of_django() -> None:
    """A limit at a coroutine function holds, both under ASGI and under WSGI, and the view finds its verdict."""

    async def view(request: Any) -> HttpResponse:  # noqa: ANN401 (Django's)
        await asyncio.sleep(0)
        return HttpResponse(str(headgate_django.admission(request).verdict.remaining))

    class Urls:
        urlpatterns = (path("", headgate_django.rate_limit("2/day")(view)),)

    middleware = ["headgate.django.RateLimitMiddleware"]
    settings = {"HEADGATE": {"STORE": "memory://"}, "MIDDLEWARE": middleware, "ROOT_URLCONF": Urls}
    with override_settings(**settings):
        client = Client()
        assert [client.get("/").content[:1] for _ in range(3)] == [b"1", b"0", b"{"]
    with override_settings(**settings):

        async def run() -> list[int]:
            client = AsyncClient()
            return [(await client.get("/")).status_code for _ in range(3)]

        assert asyncio.run(run()) == [200, 200, 429]


def test_several_loops_and_threads_share_counters_in_memory() -> None:
    """One application called from several event loops, one after another and in threads, has one counter."""
    app = FastAPI()
    app.get("/")(rate_limit("4/day", per="ip")(lambda: "here"))
    setup(app)
    found: list[int] = []

    def call() -> None:
        found.append(asyncio.run(status(app, scope_of("/", peer="127.0.0.1"))))

    call()
    threads = [threading.Thread(target=call) for _ in range(5)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(found) == [200] * 4 + [429] * 2


def test_a_response_that_is_closed_twice_counts_once() -> None:
    """Servers and middleware may both close a response of Django."""

    class Urls:
        urlpatterns = (path("", headgate_django.rate_limit("1 concurrent", **_ONE)(lambda _: HttpResponse("x"))),)  # type: ignore[arg-type] # options

    middleware = ["headgate.django.RateLimitMiddleware"]
    with override_settings(HEADGATE={"STORE": "memory://"}, MIDDLEWARE=middleware, ROOT_URLCONF=Urls):
        client = Client()
        first = client.get("/")
        first.close()
        first.close()
        assert [client.get("/").status_code for _ in range(2)] == [200, 200]
