"""Paths that a framework takes for another: none reaches a view around the rule for it."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import django
import litestar as of_litestar
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from django.conf import settings
from django.http import HttpResponse
from django.test import Client, override_settings
from django.urls import path as at
from django.urls import re_path
from fastapi import FastAPI
from flask import Flask
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from tests.support.applications import hello, scope_of, sent, statuses
from tests.unit.frameworks import django_project
from yarl import URL

from headgate import aiohttp, asgi, fastapi, litestar, starlette, wsgi
from headgate.edge.frameworks.routes import routed_path
from headgate.flask import RateLimiter

if TYPE_CHECKING:
    from collections.abc import Callable

    Call = Callable[[str], list[int]]

assert django_project.urlpatterns
django.setup()

from rest_framework.views import APIView  # noqa: E402 (Django's settings come first)

_RULES: list[dict[str, Any]] = [
    {"name": "search", "match": {"endpoints": ["/api/search", "/users/{id}/posts"]}, "limits": "1/day"}
]


class _Search(APIView):  # type: ignore[misc] # it has no types
    authentication_classes = ()

    def get(self, _request: Any) -> HttpResponse:  # noqa: ANN401 (Django's)
        return HttpResponse("found")


class _RestUrls:
    urlpatterns = [re_path(r"^api/search$", _Search.as_view())]  # noqa: RUF012 (Django's)


urlpatterns = [
    at("api/search", lambda _request: HttpResponse("found")),
    re_path(r"^(?i:users)/(?P<name>[^/]+)/posts$", lambda _request, name: HttpResponse(name)),
]


def _asgi(path: str) -> list[int]:
    return statuses(asgi.RateLimitMiddleware(hello, rules=_RULES), *(scope_of(path) for _ in range(3)))


def _found(_request: object) -> PlainTextResponse:
    return PlainTextResponse("found")


def _starlette(path: str) -> list[int]:
    app = Starlette(routes=[Route("/api/search", _found)])
    starlette.setup(app, rules=_RULES)
    return statuses(app, *(scope_of(path) for _ in range(3)))


def _mounted(path: str) -> list[int]:
    app = Starlette(routes=[Mount("/api", routes=[Route("/search", _found)])])
    starlette.setup(app, rules=_RULES)
    return statuses(app, *(scope_of(path) for _ in range(3)))


def _fastapi(path: str) -> list[int]:
    app = FastAPI()
    app.get("/api/search")(lambda: "found")
    fastapi.setup(app, rules=_RULES)
    return statuses(app, *(scope_of(path) for _ in range(3)))


def _wsgi(path: str) -> list[int]:
    def application(_environ: Any, start: Any) -> list[bytes]:  # noqa: ANN401 (WSGI)
        start("200 OK", [])
        return [b""]

    app = wsgi.RateLimitMiddleware(application, rules=_RULES)
    answered: list[int] = []
    for _ in range(3):
        environ = {"REQUEST_METHOD": "GET", "PATH_INFO": path, "REMOTE_ADDR": "192.0.2.1"}
        list(app(environ, lambda status, *_: answered.append(int(status.split()[0]))))
    return answered


def _flask(path: str) -> list[int]:
    app = Flask("small")
    app.get("/api/search")(lambda: "found")
    RateLimiter(app, rules=_RULES)
    client = app.test_client()
    return [client.get("/", environ_overrides={"PATH_INFO": path}).status_code for _ in range(3)]


def _django(path: str) -> list[int]:
    middleware = ["headgate.django.RateLimitMiddleware"]
    with override_settings(HEADGATE={"RULES": _RULES}, MIDDLEWARE=middleware, ROOT_URLCONF=__name__):
        client = Client(raise_request_exception=False)
        return [client.get(path, PATH_INFO=path).status_code for _ in range(3)]


def _litestar(path: str) -> list[int]:
    async def view() -> str:
        return "found"

    view.__annotations__ = {"return": str}
    route = of_litestar.get("/api/{name:str}")(
        view
    )  # it compares words of a route exactly, and answers others with 404
    app = of_litestar.Litestar([route], plugins=[litestar.RateLimiter(rules=_RULES)], logging_config=None)
    return statuses(app, *(scope_of(path, app=app, state={}) for _ in range(3)))


def _rest_framework(path: str) -> list[int]:
    middleware = ["headgate.django.RateLimitMiddleware"]
    project = {"HEADGATE": {"RULES": _RULES}, "MIDDLEWARE": middleware, "ROOT_URLCONF": _RestUrls}
    with override_settings(**project, REST_FRAMEWORK={"UNAUTHENTICATED_USER": None}):
        client = Client(raise_request_exception=False)
        return [client.get(path, PATH_INFO=path).status_code for _ in range(3)]


def _aiohttp(path: str) -> list[int]:
    async def found(_request: web.Request) -> web.Response:
        return web.Response()

    async def ask() -> list[int]:
        app = web.Application()
        app.router.add_get("/api/search", found)
        aiohttp.setup(app, rules=_RULES)
        async with TestClient(TestServer(app)) as client:
            url = client.make_url("/").join(URL(quote(path), encoded=True))
            return [(await client.session.get(url)).status for _ in range(3)]

    return asyncio.run(ask())


_FRAMEWORKS = [_asgi, _starlette, _mounted, _fastapi, _wsgi, _flask, _django, _litestar, _aiohttp, _rest_framework]


@pytest.mark.parametrize("call", _FRAMEWORKS)
@pytest.mark.parametrize("control", ["\n", "\x00", "\t", "\r", "\x7f"], ids=ascii)
def test_a_control_character_is_refused(call: Call, control: str) -> None:
    """A route whose pattern ends in ``$`` matches with a line feed after it; such a call is answered with 400."""
    assert settings.configured
    assert call(f"/api/search{control}") == [400, 400, 400]
    assert call("/api/search") == [200, 429, 429]


def test_rules_see_the_path_as_its_route_spells_it() -> None:
    """An application that ignores letter case answers every spelling of a path, and all of them are counted as one."""
    routes = [Route("/api/search", _found), Route("/users/{id:int}/posts", _found)]
    for route in routes:
        route.path_regex = re.compile(route.path_regex.pattern, re.IGNORECASE)
    app = Starlette(routes=routes)
    starlette.setup(app, rules=_RULES)
    paths = ("/api/search", "/API/search", "/Api/SEARCH", "/USERS/7/posts", "/users/8/Posts")
    assert statuses(app, *map(scope_of, paths)) == [200, 429, 429, 429, 429]


def test_flask_and_django_too() -> None:
    """What the framework calls the route is what rules see; a regular expression leaves the path as it is."""
    assert _flask("/api/search") == _django("/api/search") == [200, 429, 429]
    assert _django("/users/7/posts") == [200, 429, 429]
    assert _django("/Users/7/posts") == [200, 200, 200]


@pytest.mark.parametrize(
    ("template", "path", "seen"),
    [
        (None, "/A", "/A"),
        ("/a", "/A", "/a"),
        ("/a/{x}", "/A/B", "/a/B"),
        ("/a/{x:int}/c", "/A/1/C", "/a/1/c"),
        ("/a/{x}.json", "/A/B.JSON", "/a/B.JSON"),
        ("/a/<int:x>/", "/A/1/", "/a/1/"),
        ("/a/{rest:path}", "/A/b/c", "/A/b/c"),
        ("/a/*", "/A/b", "/A/b"),
        ("/^a/(?P<x>[0-9]+)$", "/A/1", "/A/1"),
    ],
)
def test_the_path_that_rules_see(template: str | None, path: str, seen: str) -> None:
    """The words of a route are the route's, its parameters are the caller's."""
    assert routed_path(template, path) == seen


def test_a_websocket_is_refused_too() -> None:
    """A handshake whose path no rule can match is closed."""
    scope = scope_of("/api/search\n", type="websocket", extensions={})
    assert asyncio.run(_closed(asgi.RateLimitMiddleware(hello, rules=_RULES), scope)) == ["websocket.close"]


async def _closed(app: Any, scope: Any) -> list[str]:  # noqa: ANN401 (ASGI)
    return [message["type"] for message in await sent(app, scope, {"type": "websocket.connect"})]
