"""Answers to calls on which the application failed have the headers too."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from django.test import Client, override_settings
from fastapi import FastAPI
from flask import Flask
from starlette.applications import Starlette
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from tests.support.applications import DAILY, scope_of
from tests.unit.frameworks import django_project

from headgate import fastapi, starlette
from headgate.flask import RateLimiter

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request

_STANDING = {"x-ratelimit-remaining": "2", "x-ratelimit-limit": "3"}


async def _fail(_request: Request) -> Response:
    raise ZeroDivisionError


async def _passed_on(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    return await call_next(request)


def _answered(app: Any, path: str = "/") -> tuple[int, dict[str, str], bytes]:  # noqa: ANN401 (ASGI)
    """What is sent before the error reaches the server, which logs it."""
    messages: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        messages.append(message)

    async def run() -> None:
        with pytest.raises(ZeroDivisionError):
            await app(scope_of(path), receive, send)

    asyncio.run(run())
    start, body = messages
    assert len(start["headers"]) == len(dict(start["headers"]))
    return start["status"], {name.decode(): value.decode() for name, value in start["headers"]}, body["body"]


def _own(_request: Request, error: Exception) -> Response:
    return PlainTextResponse(f"sorry: {type(error).__name__}", 500, {"x-own": "1"})


async def _own_that_waits(request: Request, error: Exception) -> Response:
    await asyncio.sleep(0)
    return _own(request, error)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, b"Internal Server Error"),
        ({"debug": True}, b"Traceback"),
        ({"exception_handlers": {500: _own}}, b"sorry: ZeroDivisionError"),
        ({"exception_handlers": {Exception: _own_that_waits}}, b"sorry: ZeroDivisionError"),
    ],
)
def test_errors_in_starlette_have_headers(options: dict[str, Any], said: bytes) -> None:
    """Every answer to an error has the headers, and the server still sees the error."""
    app = Starlette(routes=[Route("/", _fail)], **options)
    starlette.setup(app, rules=DAILY)
    app.add_middleware(BaseHTTPMiddleware, dispatch=_passed_on)
    status, headers, body = _answered(app)
    assert (status, headers | _STANDING) == (500, headers)
    assert said in body
    assert ("x-own" in headers) is ("exception_handlers" in options)


def _broken_view() -> str:
    raise ZeroDivisionError


def test_errors_in_fastapi_have_headers() -> None:
    """The same in FastAPI; refusals still pass through middleware around headgate."""
    app = FastAPI()
    app.get("/")(_broken_view)
    fastapi.setup(app, rules=DAILY)
    app.add_middleware(CORSMiddleware, allow_origins=["*"])
    status, headers, _ = _answered(app, "/")
    assert (status, headers | _STANDING) == (500, headers)


def test_errors_outside_headgate_have_no_headers() -> None:
    """An error before the check has no rate-limit headers, nor has one at an exempt route."""

    async def broken(_request: Request, _next: object) -> Response:
        raise ZeroDivisionError

    app = Starlette(routes=[Route("/", _fail), Route("/free", starlette.exempt(_free))])
    starlette.setup(app, rules=DAILY)
    assert "x-ratelimit-limit" not in _answered(app, "/free")[1]
    app = Starlette(routes=[Route("/", _fail)])
    starlette.setup(app, rules=DAILY)
    app.add_middleware(BaseHTTPMiddleware, dispatch=broken)
    assert "x-ratelimit-limit" not in _answered(app)[1]


async def _free(_request: Request) -> Response:
    raise ZeroDivisionError


def test_errors_in_flask_have_headers() -> None:
    """Flask makes the answer to an error before it calls the hooks of extensions, and so does a handler."""
    for handler, said in ((None, "Internal Server Error"), (lambda _error: ("sorry", 500), "sorry")):
        app = Flask("small")
        app.get("/")(_broken_view)
        RateLimiter(app, rules=DAILY)
        if handler is not None:
            app.register_error_handler(500, handler)
        answer = app.test_client().get("/")
        assert (answer.status_code, answer.headers["X-RateLimit-Remaining"]) == (500, "2")
        assert said in answer.text


def test_errors_in_django_have_headers() -> None:
    """Django makes the answer to an error inside every middleware."""
    settings: dict[str, Any] = {"RULES": DAILY}
    middleware = ["headgate.django.RateLimitMiddleware"]
    with override_settings(HEADGATE=settings, MIDDLEWARE=middleware, ROOT_URLCONF=django_project.__name__):
        answer = Client(raise_request_exception=False).get("/fails")
    assert (answer.status_code, answer.headers["X-RateLimit-Remaining"]) == (500, "2")


def test_errors_that_django_passes_on_leave_no_slot_behind() -> None:
    """If Django propagates errors, the slots of the call are released all the same."""
    settings: dict[str, Any] = {"RULES": [{"name": "one", "limits": "1 concurrent", "algorithm": "concurrency"}]}
    middleware = ["headgate.django.RateLimitMiddleware"]
    with override_settings(
        HEADGATE=settings,
        MIDDLEWARE=middleware,
        ROOT_URLCONF=django_project.__name__,
        DEBUG_PROPAGATE_EXCEPTIONS=True,
    ):
        client = Client()
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                client.get("/fails")
