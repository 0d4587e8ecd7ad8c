"""One small application in each framework, with the same routes, called by the framework's own test client.

`/x` and `/y` have the limit (GET and POST), `/free` has none. Views answer with the status in the header `x-status`,
and settle the cost in `x-settle`.
"""

from __future__ import annotations

import asyncio
import types
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import django
import fastapi as of_fastapi
import flask as of_flask
import litestar as of_litestar
from aiohttp import web
from aiohttp.test_utils import TestClient as AiohttpClient
from aiohttp.test_utils import TestServer as AiohttpServer
from django.http import HttpResponse
from django.test import Client, override_settings
from django.urls import path as at
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from tests.unit.frameworks import django_project

from headgate import aiohttp, fastapi, litestar, starlette
from headgate import django as headgate_django
from headgate.flask import RateLimiter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it would rather have another library for HTTP than the one that is installed
    from litestar.testing import TestClient as LitestarClient
    from starlette.testclient import TestClient

__all__ = ["KITS", "Answer", "Kit", "TestClient"]

assert django_project.urlpatterns
django.setup()


class Answer(NamedTuple):
    """What a client got."""

    status: int
    headers: Mapping[str, str]
    text: str


KITS_MADE: list[Kit] = []
"""Those that a test has made, to be closed after it."""


class Kit:
    """An application with a limit at its routes."""

    name = ""
    """Of the framework."""

    def __init__(self, *limit: Any, setup: Mapping[str, Any] | None = None, **options: Any) -> None:  # noqa: ANN401 (of the limit)
        """`limit` and `options` are those of the limit at `/x` and `/y`, `setup` those of the application."""
        self.build(lambda decorate: decorate(*limit, **options), dict(setup or {}))
        KITS_MADE.append(self)

    def build(self, limiting: Callable[[Any], Any], setup: dict[str, Any]) -> None:
        """Make the application."""
        raise NotImplementedError

    def call(self, path: str = "/x", method: str = "GET", **headers: str) -> Answer:
        """Call it."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop whatever runs."""

    def codes(self, *paths: str, method: str = "GET", **headers: str) -> list[int]:
        """The statuses of several calls."""
        return [self.call(path, method, **headers).status for path in paths]

    def response(self, text: str, status: int) -> Any:  # noqa: ANN401 (the framework's)
        """A response of the framework."""
        raise NotImplementedError

    def peek(self, request: Any) -> Any:  # noqa: ANN401 (a verdict)
        """`peek` of the extension."""
        raise NotImplementedError

    def reset(self, request: Any) -> None:  # noqa: ANN401 (a request of headgate)
        """`reset` of the extension."""
        raise NotImplementedError


def _asked(headers: Any, settle: Callable[[], Any]) -> int:  # noqa: ANN401 (of every framework)
    if "x-settle" in headers:
        settle().settle(int(headers["x-settle"]))
    return int(headers.get("x-status", "200"))


def _sent(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


class StarletteKit(Kit):
    """Starlette, by a decorator."""

    name = "starlette"

    def build(self, limiting: Callable[[Any], Any], setup: dict[str, Any]) -> None:
        """See `Kit`."""

        async def view(request: Any) -> Any:  # noqa: ANN401 (Starlette's)
            return PlainTextResponse("here", _asked(request.headers, lambda: starlette.admission(request)))

        limited = limiting(starlette.rate_limit)(view)
        methods = ["GET", "POST"]
        routes = [Route(path, limited, methods=methods) for path in ("/x", "/y")]
        self.app: Any = Starlette(routes=[*routes, Route("/free", view, methods=methods)])
        self.extension = starlette.setup(self.app, **setup)
        self.client = TestClient(self.app, raise_server_exceptions=False)

    def call(self, path: str = "/x", method: str = "GET", **headers: str) -> Answer:
        """See `Kit`."""
        got = self.client.request(method, path, headers=_sent(headers))
        return Answer(got.status_code, got.headers, got.text)

    def response(self, text: str, status: int) -> Any:  # noqa: ANN401 (Starlette's)
        """See `Kit`."""
        return PlainTextResponse(text, status)

    def peek(self, request: Any) -> Any:  # noqa: ANN401 (a verdict)
        """See `Kit`."""
        return asyncio.run(self.extension.peek(request))

    def reset(self, request: Any) -> None:  # noqa: ANN401 (a request of headgate)
        """See `Kit`."""
        asyncio.run(self.extension.reset(request))


class FastapiKit(StarletteKit):
    """FastAPI, by a decorator at synchronous functions."""

    name = "fastapi"

    def build(self, limiting: Callable[[Any], Any], setup: dict[str, Any]) -> None:
        """See `Kit`."""
        self.app = app = of_fastapi.FastAPI()

        def view(request: of_fastapi.Request) -> Any:  # noqa: ANN401 (FastAPI's)
            return PlainTextResponse("here", _asked(request.headers, lambda: fastapi.admission(request)))

        view.__annotations__ = {"request": of_fastapi.Request}
        self.add(app, view, limiting)
        app.api_route("/free", methods=["GET", "POST"])(view)
        self.extension = fastapi.setup(app, **setup)
        self.client = TestClient(app, raise_server_exceptions=False)

    def add(self, app: Any, view: Any, limiting: Callable[[Any], Any]) -> None:  # noqa: ANN401 (FastAPI's)
        """Add the limited routes."""
        copy = types.FunctionType(view.__code__, view.__globals__, "limited", None, view.__closure__)
        copy.__annotations__ = view.__annotations__
        limited = limiting(fastapi.rate_limit)(copy)
        for path in ("/x", "/y"):
            app.api_route(path, methods=["GET", "POST"])(limited)


class DependsKit(FastapiKit):
    """FastAPI, by a dependency."""

    name = "fastapi-depends"

    def add(self, app: Any, view: Any, limiting: Callable[[Any], Any]) -> None:  # noqa: ANN401 (FastAPI's)
        """See `FastapiKit`."""
        depends = of_fastapi.Depends(limiting(fastapi.rate_limit))
        for path in ("/x", "/y"):
            app.api_route(path, methods=["GET", "POST"], dependencies=[depends])(view)


class FlaskKit(Kit):
    """Flask."""

    name = "flask"

    def build(self, limiting: Callable[[Any], Any], setup: dict[str, Any]) -> None:
        """See `Kit`."""
        self.app = app = of_flask.Flask("kit")
        self.extension = extension = RateLimiter(app, **setup)

        def view() -> Any:  # noqa: ANN401 (Flask's)
            return "here", _asked(of_flask.request.headers, extension.admission)

        def free() -> Any:  # noqa: ANN401 (Flask's)
            return view()

        limited = limiting(extension.limit)(view)
        for path, each in (("/x", limited), ("/y", limited), ("/free", free)):
            app.add_url_rule(path, path, each, methods=["GET", "POST"])

    def call(self, path: str = "/x", method: str = "GET", **headers: str) -> Answer:
        """See `Kit`."""
        with self.app.test_client().open(path, method=method, headers=_sent(headers)) as got:
            return Answer(got.status_code, got.headers, got.get_data(as_text=True))  # type: ignore[arg-type] # nearly one

    def response(self, text: str, status: int) -> Any:  # noqa: ANN401 (Flask's)
        """See `Kit`."""
        return text, status

    def peek(self, request: Any) -> Any:  # noqa: ANN401 (a verdict)
        """See `Kit`."""
        with self.app.app_context():
            return self.extension.peek(request)

    def reset(self, request: Any) -> None:  # noqa: ANN401 (a request of headgate)
        """See `Kit`."""
        with self.app.app_context():
            self.extension.reset(request)


class DjangoKit(Kit):
    """Django."""

    name = "django"

    def build(self, limiting: Callable[[Any], Any], setup: dict[str, Any]) -> None:
        """See `Kit`."""

        def view(request: Any) -> Any:  # noqa: ANN401 (Django's)
            return HttpResponse("here", status=_asked(request.headers, lambda: headgate_django.admission(request)))

        limited = limiting(headgate_django.rate_limit)(view)
        self.urls = types.ModuleType("kit_urls")
        self.urls.urlpatterns = [at("x", limited), at("y", limited), at("free", view)]  # type: ignore[attr-defined] # Django's
        self.settings = {
            "HEADGATE": {name.upper(): value for name, value in setup.items()},
            "MIDDLEWARE": ["headgate.django.RateLimitMiddleware"],
            "ROOT_URLCONF": self.urls,
        }
        with override_settings(**self.settings):
            self.client = Client(raise_request_exception=False)
            self.client.handler.load_middleware()

    def call(self, path: str = "/x", method: str = "GET", **headers: str) -> Answer:
        """See `Kit`."""
        with override_settings(**self.settings):
            got = self.client.generic(method, path, headers=_sent(headers))
            return Answer(got.status_code, got.headers, got.text)

    def response(self, text: str, status: int) -> Any:  # noqa: ANN401 (Django's)
        """See `Kit`."""
        return HttpResponse(text, status=status)

    def peek(self, request: Any) -> Any:  # noqa: ANN401 (a verdict)
        """See `Kit`."""
        with override_settings(**self.settings):
            return headgate_django.peek(request)

    def reset(self, request: Any) -> None:  # noqa: ANN401 (a request of headgate)
        """See `Kit`."""
        with override_settings(**self.settings):
            headgate_django.reset(request)


class LitestarKit(Kit):
    """Litestar, with its own test client."""

    name = "litestar"

    def build(self, limiting: Callable[[Any], Any], setup: dict[str, Any]) -> None:
        """See `Kit`."""

        async def view(request: of_litestar.Request[Any, Any, Any]) -> of_litestar.Response[str]:
            status = _asked(request.headers, lambda: litestar.admission(request))
            return of_litestar.Response("here", status_code=status, media_type="text/plain")

        async def limited_view(request: of_litestar.Request[Any, Any, Any]) -> of_litestar.Response[str]:
            return await view(request)

        for each in (view, limited_view):
            each.__annotations__ = {"request": of_litestar.Request, "return": of_litestar.Response[str]}
        limited = limiting(litestar.rate_limit)(limited_view)
        made = [
            of_litestar.route(path, http_method=["GET", "POST", "HEAD"], status_code=200)(each)
            for path, each in (("/x", limited), ("/y", limited), ("/free", view))
        ]
        store = setup.pop("store", "memory://")
        self.extension = litestar.RateLimiter(store, setup.pop("rules", None), **setup)
        self.app = of_litestar.Litestar(made, plugins=[self.extension], logging_config=None)
        self.client = LitestarClient(self.app, raise_server_exceptions=False)
        self.opened = False

    def call(self, path: str = "/x", method: str = "GET", **headers: str) -> Answer:
        """See `Kit`."""
        got = self.client.request(method, path, headers=_sent(headers))
        return Answer(got.status_code, got.headers, got.text)

    def response(self, text: str, status: int) -> Any:  # noqa: ANN401 (Litestar's)
        """See `Kit`."""
        return of_litestar.Response(text, status_code=status, media_type="text/plain")

    def peek(self, request: Any) -> Any:  # noqa: ANN401 (a verdict)
        """See `Kit`."""
        self.extension._gate.application = self.app
        return asyncio.run(self.extension.peek(request))

    def reset(self, request: Any) -> None:  # noqa: ANN401 (a request of headgate)
        """See `Kit`."""
        asyncio.run(self.extension.reset(request))


class AiohttpKit(Kit):
    """aiohttp, with its own test client."""

    name = "aiohttp"

    def build(self, limiting: Callable[[Any], Any], setup: dict[str, Any]) -> None:
        """See `Kit`."""

        async def view(request: web.Request) -> web.Response:
            return web.Response(text="here", status=_asked(request.headers, lambda: aiohttp.admission(request)))

        limited = limiting(aiohttp.rate_limit)(view)
        self.app = web.Application()
        for path, each in (("/x", limited), ("/y", limited), ("/free", view)):
            self.app.router.add_get(path, each)
            self.app.router.add_post(path, each)
        self.extension = aiohttp.setup(self.app, **setup)
        self.runner = asyncio.Runner()
        self.client: Any = None

    def call(self, path: str = "/x", method: str = "GET", **headers: str) -> Answer:
        """See `Kit`."""
        return self.runner.run(self._call(path, method, _sent(headers)))

    async def _call(self, path: str, method: str, headers: dict[str, str]) -> Answer:
        if self.client is None:
            self.client = AiohttpClient(AiohttpServer(self.app))
            await self.client.start_server()
        async with self.client.request(method, path, headers=headers) as got:
            return Answer(got.status, got.headers, await got.text())

    def response(self, text: str, status: int) -> Any:  # noqa: ANN401 (aiohttp's)
        """See `Kit`."""
        return web.Response(text=text, status=status)

    def peek(self, request: Any) -> Any:  # noqa: ANN401 (a verdict)
        """See `Kit`."""
        return self.runner.run(self.extension.peek(request))

    def reset(self, request: Any) -> None:  # noqa: ANN401 (a request of headgate)
        """See `Kit`."""
        self.runner.run(self.extension.reset(request))

    def close(self) -> None:
        """See `Kit`."""
        if self.client is not None:
            self.runner.run(self.client.close())
        self.runner.close()


KITS: list[type[Kit]] = [FastapiKit, DependsKit, StarletteKit, LitestarKit, FlaskKit, DjangoKit, AiohttpKit]
