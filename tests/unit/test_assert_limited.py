"""`assert_limited` and the fixtures for pytest, with the test clients of the frameworks."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import django
import httpx
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient as AioClient
from aiohttp.test_utils import TestServer
from django.test import AsyncClient, Client, override_settings
from flask import Flask
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from tests.unit.frameworks import django_project
from tests.unit.frameworks.kits import TestClient

from headgate import Limiter, starlette, sync
from headgate.flask import RateLimiter
from headgate.testing import FakeClock, assert_limited

if TYPE_CHECKING:
    from starlette.requests import Request

django.setup()
ROOT = Path(__file__).parents[2]
RULES = [{"name": "all", "per": "ip", "limits": "3/minute"}]


def starlette_app() -> Starlette:
    async def x(_request: Request) -> PlainTextResponse:
        return PlainTextResponse("x")

    app = Starlette(routes=[Route("/x", x, methods=["GET", "POST"])])
    starlette.setup(app, Limiter.open(clock=FakeClock(), rules=RULES))
    return app


def flask_app() -> Flask:
    app = Flask("x")
    RateLimiter(app, sync.Limiter.open(clock=FakeClock(), rules=RULES))
    app.add_url_rule("/x", view_func=lambda: "x", endpoint="x")
    return app


def test_clients_without_await() -> None:
    """Clients of Starlette and Flask are called until they are refused, and the refusal is returned."""
    refused = assert_limited(TestClient(starlette_app()), "POST", "/x", after=3)
    assert refused.status_code == 429
    assert refused.json()["error"] == "rate_limit_exceeded"
    assert assert_limited(flask_app().test_client(), "GET", "/x", after=3).status_code == 429


def test_a_client_of_django() -> None:
    """So is the client of Django, with and without await."""
    options = {"RULES": [{**RULES[0], "limits": "3/day"}]}  # by the real clock, and this may take a while
    middleware = ["headgate.django.RateLimitMiddleware"]
    with override_settings(HEADGATE=options, MIDDLEWARE=middleware, ROOT_URLCONF=django_project.__name__):
        assert assert_limited(Client(), "GET", "/plain/a/", after=3).status_code == 429

        async def scenario() -> None:
            assert (await assert_limited(AsyncClient(), "GET", "/plain/a/", after=3)).status_code == 429

        asyncio.run(scenario())


def test_clients_with_await() -> None:
    """Asynchronous clients of httpx and aiohttp are awaited."""

    async def scenario() -> None:
        transport = httpx.ASGITransport(starlette_app())
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            assert (await assert_limited(client, "GET", "/x", after=3)).status_code == 429
        limiter = Limiter.open(clock=FakeClock())

        async def x(_request: web.Request) -> web.Response:
            verdict = await limiter.hit("x", "3/minute")
            return web.Response(status=verdict.status, headers=verdict.headers())

        app = web.Application()
        app.router.add_get("/x", x)
        async with AioClient(TestServer(app)) as aio:
            assert (await assert_limited(aio, "GET", "/x", after=3)).status == 429

    asyncio.run(scenario())


def test_what_it_says_when_it_fails() -> None:
    """A call that is refused too early, or not at all, is named; and so is a client that is none."""
    with pytest.raises(AssertionError, match="GET /x was refused by call 4, but 9 must pass"):
        assert_limited(TestClient(starlette_app()), "GET", "/x", after=9)
    with pytest.raises(AssertionError, match="GET /x was not refused after 2 calls: the status is 200, not 429"):
        assert_limited(TestClient(starlette_app()), "GET", "/x", after=2)
    with pytest.raises(TypeError, match="object is no test client of a known framework"):
        assert_limited(object(), "GET", "/x", after=2)
    wrong: Any = True
    with pytest.raises(ValueError, match="after is how many calls must pass"):
        assert_limited(TestClient(starlette_app()), "GET", "/x", after=wrong)


def test_a_refusal_needs_its_header() -> None:
    """A refusal without `Retry-After` is not one of headgate's, and fails."""
    app = Flask("x")
    app.add_url_rule("/x", view_func=lambda: ("no", 429), endpoint="x")
    with pytest.raises(AssertionError, match="was refused without a Retry-After header"):
        assert_limited(app.test_client(), "GET", "/x", after=0)


_TEST = """
def test_fixtures(headgate_clock, headgate_limiter, headgate_sync_limiter):
    hit = headgate_sync_limiter.hit
    assert [hit("k", "1/minute", algorithm="fixed_window").allowed for _ in range(2)] == [True, False]
    headgate_clock.advance(seconds=60)
    assert hit("k", "1/minute", algorithm="fixed_window").allowed
    assert headgate_limiter.hit_now("k", "1/minute").allowed
"""


def run_python(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(  # noqa: S603 (our own words)
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_fixtures_for_pytest(tmp_path: Path) -> None:
    """A test of an application has a clock and limiters by the names of their fixtures."""
    (tmp_path / "test_app.py").write_text(_TEST, encoding="utf-8")
    done = run_python("-m", "pytest", "-q", "-p", "headgate_pytest", "-p", "no:cacheprovider", folder=tmp_path)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_the_plugin_imports_nothing_of_headgate(tmp_path: Path) -> None:
    """Pytest imports the plugin in every run, so it must cost nothing where it is not used."""
    code = "import sys, headgate_pytest; print([name for name in sys.modules if name.split('.')[0] == 'headgate'])"
    assert run_python("-c", code, folder=tmp_path).stdout == "[]\n"
