"""Twenty small applications as people write them with slowapi and flask-limiter, and the paths that are called."""

from __future__ import annotations

from typing import Final, NamedTuple


class Application(NamedTuple):
    """One application, before it is moved over."""

    name: str
    source: str
    paths: tuple[str, ...] = ("/a",)


_SLOWAPI: Final = """
from fastapi import FastAPI, Request
from slowapi import Limiter, _rate_limit_exceeded_handler
from slowapi.errors import RateLimitExceeded
from slowapi.middleware import SlowAPIMiddleware
from slowapi.util import get_remote_address

def caller(request: Request):
    return request.headers.get("x-user", "none")

limiter = Limiter({setup})
app = FastAPI()
app.state.limiter = limiter
app.add_exception_handler(RateLimitExceeded, _rate_limit_exceeded_handler)
{more}

@app.get("/a")
{a}
async def a(request: Request):
    return {{}}

@app.api_route("/b", methods=["GET", "POST"])
{b}
def b(request: Request):
    return {{}}
"""
_FLASK: Final = """
from flask import Flask, request
from flask_limiter import Limiter
from flask_limiter.util import get_remote_address

def caller():
    return request.headers.get("x-user", "none")

app = Flask("app")
limiter = Limiter({setup}, storage_uri="memory://")

@app.get("/a")
{a}
def a():
    return {{}}

@app.route("/b", methods=["GET", "POST"])
{b}
def b():
    return {{}}
"""
_BOTH: Final = ("/a", "/b")
_SHARED: Final = '@limiter.shared_limit("4/minute", scope="both")'
_MIDDLEWARE: Final = "app.add_middleware(SlowAPIMiddleware)"


def _slowapi(name: str, a: str, b: str = "", setup: str = "get_remote_address", more: str = "") -> Application:
    return Application(f"slowapi-{name}", _SLOWAPI.format(setup=setup, a=a, b=b, more=more), _BOTH)


def _flask(name: str, a: str, b: str = "", setup: str = "get_remote_address, app=app") -> Application:
    return Application(f"flask-{name}", _FLASK.format(setup=setup, a=a, b=b), _BOTH)


APPLICATIONS: Final = (
    _slowapi("one", '@limiter.limit("3/minute")'),
    _slowapi("words", '@limiter.limit("2 per 1 minute")', '@limiter.limit("4 per minute")'),
    _slowapi("moving", '@limiter.limit("3/minute")', setup='get_remote_address, strategy="moving-window"'),
    _slowapi("by-header", '@limiter.limit("2/minute")', setup="key_func=caller"),
    _slowapi("own-key", '@limiter.limit("2/minute", key_func=caller)', '@limiter.limit("3/minute")'),
    _slowapi("shared", _SHARED, _SHARED),
    _slowapi(
        "defaults",
        "",
        "@limiter.exempt",
        'get_remote_address, default_limits=["3/minute"]',
        "app.add_middleware(SlowAPIMiddleware)",
    ),
    _slowapi("several", '@limiter.limit("2/minute;100/hour")'),
    _slowapi("methods", "", '@limiter.limit("2/minute", methods=["POST"])'),
    _slowapi("cost", '@limiter.limit("6/minute", cost=2)', '@limiter.limit("5/30 second")'),
    _flask("one", '@limiter.limit("3/minute")'),
    _flask("words", '@limiter.limit("2 per 1 minute")', '@limiter.limit("4 per minute")'),
    _flask("moving", '@limiter.limit("3/minute")', setup='get_remote_address, app=app, strategy="moving-window"'),
    _flask("by-header", '@limiter.limit("2/minute")', setup="caller, app=app"),
    _flask("own-key", '@limiter.limit("2/minute", key_func=caller)', '@limiter.limit("3/minute")'),
    _flask("shared", _SHARED, _SHARED),
    _flask("defaults", "", "@limiter.exempt", 'get_remote_address, app=app, default_limits=["3 per minute"]'),
    _flask("exempt-when", '@limiter.limit("1/minute", exempt_when=lambda: caller() == "ann")'),
    _flask("methods", "", '@limiter.limit("2/minute", methods=["POST"])'),
    _flask("cost", '@limiter.limit("6/minute", cost=2)', '@limiter.limit("5/30 second")'),
)
