"""Small applications with an endless answer at `/ticks` and, where there are any, a WebSocket that echoes at `/echo`.

Both are limited to two for each user. As a module for servers: APP names the framework, REDIS_URL the store.
"""

# ruff: noqa: PLC0415 (each server loads one framework)
from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

LIMIT: Final = "2/day"
TICK: Final = "tick\n"
_SECONDS: Final = 0.02


def _user(call: Any) -> str | None:  # noqa: ANN401 (of any framework)
    user: str | None = call.headers.get("x-user")
    return user


async def _ticks() -> AsyncIterator[str]:
    while True:
        yield TICK
        await asyncio.sleep(_SECONDS)


def _blocking_ticks() -> Iterator[str]:
    while True:
        yield TICK
        time.sleep(_SECONDS)


def fastapi(store: str) -> Any:  # noqa: ANN401 (an application)
    """With decorators."""
    from fastapi import FastAPI, WebSocket
    from starlette.responses import StreamingResponse

    from headgate.fastapi import rate_limit, setup

    app = FastAPI()
    setup(app, store, identify=_user)

    @app.get("/ticks")
    @rate_limit(LIMIT)
    async def ticks() -> StreamingResponse:
        return StreamingResponse(_ticks())

    async def echo(socket: WebSocket) -> None:
        await socket.accept()
        async for text in socket.iter_text():
            await socket.send_text(text)

    echo.__annotations__["socket"] = WebSocket  # FastAPI reads it, and it is not a name of the module
    app.websocket("/echo")(rate_limit(LIMIT)(echo))
    return app


def starlette(store: str) -> Any:  # noqa: ANN401 (an application)
    """With routes."""
    from starlette.applications import Starlette
    from starlette.responses import StreamingResponse
    from starlette.routing import Route, WebSocketRoute

    from headgate.starlette import rate_limit, setup

    @rate_limit(LIMIT)
    async def ticks(_request: Any) -> StreamingResponse:  # noqa: ANN401 (Starlette's)
        return StreamingResponse(_ticks())

    @rate_limit(LIMIT)
    async def echo(socket: Any) -> None:  # noqa: ANN401 (Starlette's)
        await socket.accept()
        async for text in socket.iter_text():
            await socket.send_text(text)

    app = Starlette(routes=[Route("/ticks", ticks), WebSocketRoute("/echo", echo)])
    setup(app, store, identify=_user)
    return app


def litestar(store: str) -> Any:  # noqa: ANN401 (an application)
    """With the plugin."""
    from litestar import Litestar, WebSocket, get, websocket
    from litestar.response import Stream

    from headgate.litestar import RateLimiter, rate_limit

    async def ticks() -> Stream:
        return Stream(_ticks())

    async def echo(socket: WebSocket[Any, Any, Any]) -> None:
        await socket.accept()
        while True:
            await socket.send_text(await socket.receive_text())

    ticks.__annotations__ = {"return": Stream}
    echo.__annotations__ = {"socket": WebSocket, "return": None}
    handlers: list[Any] = [get("/ticks")(rate_limit(LIMIT)(ticks)), websocket("/echo")(rate_limit(LIMIT)(echo))]
    return Litestar(handlers, plugins=[RateLimiter(store, identify=_user)], logging_config=None)


def aiohttp(store: str) -> Any:  # noqa: ANN401 (an application)
    """With the middleware."""
    from aiohttp import web

    from headgate.aiohttp import rate_limit, setup

    @rate_limit(LIMIT)
    async def ticks(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        async for tick in _ticks():
            await response.write(tick.encode())
        return response

    @rate_limit(LIMIT)
    async def echo(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            await socket.send_str(message.data)
        return socket

    app = web.Application()
    app.add_routes([web.get("/ticks", ticks), web.get("/echo", echo)])
    setup(app, store, identify=_user)
    return app


def flask(store: str) -> Any:  # noqa: ANN401 (an application)
    """With the extension."""
    from flask import Flask, Response

    from headgate.flask import RateLimiter

    app = Flask("streaming")
    limiter = RateLimiter(app, store, identify=_user)

    @app.get("/ticks")
    @limiter.limit(LIMIT)
    def ticks() -> Response:
        return Response(_blocking_ticks())

    return app


def _django(store: str, ticks: Callable[[], object]) -> None:
    from django.conf import settings
    from django.http import StreamingHttpResponse
    from django.urls import path

    from headgate.django import rate_limit

    view = rate_limit(LIMIT)(lambda _request: StreamingHttpResponse(ticks()))
    settings.configure(
        ALLOWED_HOSTS=["*"],
        ROOT_URLCONF=type("Urls", (), {"urlpatterns": [path("ticks", view)]}),
        MIDDLEWARE=["headgate.django.RateLimitMiddleware"],
        HEADGATE={"STORE": store, "IDENTIFY": _user},
    )


def django(store: str) -> Any:  # noqa: ANN401 (an application)
    """On WSGI."""
    from django.core.wsgi import get_wsgi_application

    _django(store, _blocking_ticks)
    return get_wsgi_application()


def django_asgi(store: str) -> Any:  # noqa: ANN401 (an application)
    """On ASGI."""
    from django.core.asgi import get_asgi_application

    _django(store, _ticks)
    return get_asgi_application()


if "APP" in os.environ:
    app = globals()[os.environ["APP"]](os.environ["REDIS_URL"])
