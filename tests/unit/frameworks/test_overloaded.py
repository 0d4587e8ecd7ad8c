"""A check that is not decided because too many are in flight gets 503 with Retry-After, in every framework."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import django
import pytest
from django.test import Client, override_settings
from fastapi import FastAPI
from flask import Flask
from starlette.applications import Starlette
from tests.support.applications import DAILY, hello, scope_of, sent
from tests.unit.frameworks import django_project

from headgate import asgi, fastapi, starlette, wsgi
from headgate.dataplane.snapshots import Snapshots
from headgate.errors import Overloaded
from headgate.flask import RateLimiter

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.core.matching import Plan

    Answered = tuple[int, dict[str, str], bytes]

django.setup()


@pytest.fixture(autouse=True)
def _overloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def plan(*_arguments: object, **_options: object) -> Plan:
        raise Overloaded(retry_after=1.4)

    monkeypatch.setattr(Snapshots, "plan", plan)


def _asgi(app: Any, path: str) -> Answered:  # noqa: ANN401 (ASGI)
    start, body = asyncio.run(sent(app, scope_of(path)))
    return start["status"], {name.decode(): value.decode() for name, value in start["headers"]}, body["body"]


def _plain_asgi(path: str) -> Answered:
    return _asgi(asgi.RateLimitMiddleware(hello, rules=DAILY), path)


def _starlette(path: str) -> Answered:
    app = Starlette()
    starlette.setup(app, rules=DAILY)
    return _asgi(app, path)


def _fastapi(path: str) -> Answered:
    app = FastAPI()
    fastapi.setup(app, rules=DAILY)
    return _asgi(app, path)


def _plain_wsgi(path: str) -> Answered:
    answered: list[Any] = []
    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": path, "REMOTE_ADDR": "192.0.2.1"}

    def application(_environ: Any, _start: Any) -> list[bytes]:  # noqa: ANN401 (WSGI)
        raise AssertionError

    app = wsgi.RateLimitMiddleware(application, rules=DAILY)
    body = b"".join(app(environ, lambda status, headers, *_: answered.extend((status, headers))))
    return int(answered[0].split()[0]), {name.lower(): value for name, value in answered[1]}, body


def _flask(path: str) -> Answered:
    app = Flask("small")
    RateLimiter(app, rules=DAILY)
    answer = app.test_client().get(path)
    return answer.status_code, {name.lower(): value for name, value in answer.headers}, answer.data


def _django(path: str) -> Answered:
    settings: dict[str, Any] = {"RULES": DAILY}
    middleware = ["headgate.django.RateLimitMiddleware"]
    with override_settings(HEADGATE=settings, MIDDLEWARE=middleware, ROOT_URLCONF=django_project.__name__):
        answer = Client(raise_request_exception=False).get(path)
    return answer.status_code, {name.lower(): value for name, value in answer.headers.items()}, answer.content


_FRAMEWORKS = [_plain_asgi, _starlette, _fastapi, _plain_wsgi, _flask, _django]


@pytest.mark.parametrize("call", _FRAMEWORKS)
def test_overload_is_a_503(call: Callable[[str], Answered]) -> None:
    """Overload is neither a failure of the application nor a refusal: the caller is asked to retry."""
    status, headers, body = call("/")
    assert (status, headers["retry-after"], headers["content-type"]) == (503, "2", "application/problem+json")
    assert json.loads(body)["detail"] == "too many checks are in flight"


@pytest.mark.parametrize("call", _FRAMEWORKS)
def test_a_path_that_is_too_long_is_refused(call: Callable[[str], Answered]) -> None:
    """A path that is too long is refused before it is decoded or compared."""
    assert call("/" + "a%" * 5_000)[0] == 414
