"""One small FastAPI application, in five forms: ``python -m bench.framework_app NAME PORT REDIS_URL AMOUNT``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import slowapi
import slowapi.errors
import slowapi.middleware
import slowapi.util
import uvicorn
from fastapi import FastAPI
from starlette.requests import Request  # noqa: TC002 (FastAPI reads it)

import headgate.fastapi

if TYPE_CHECKING:
    from collections.abc import Callable

    Limited = Callable[[FastAPI, str, int], None]


def _answer(item: str) -> dict[str, str]:
    return {"item": item}


def _plain(app: FastAPI, _url: str, _amount: int) -> None:
    @app.get("/items/{item}")
    async def view(item: str) -> dict[str, str]:
        return _answer(item)


def _headgate(headers: str) -> Limited:
    """With its usual algorithm."""

    def limited(app: FastAPI, url: str, amount: int) -> None:
        _plain(app, url, amount)
        rules = [{"name": "items", "per": ["ip", "endpoint"], "limits": f"{amount}/day"}]
        headgate.fastapi.setup(app, url, rules=rules, headers=headers)

    return limited


def _slowapi(app: FastAPI, url: str, amount: int) -> None:
    """By its middleware, the faster of the two, with headers; in fixed windows, as is usual there."""
    app.state.limiter = slowapi.Limiter(
        key_func=slowapi.util.get_remote_address,
        storage_uri=url,
        default_limits=[f"{amount}/day"],
        headers_enabled=True,
    )
    app.add_exception_handler(slowapi.errors.RateLimitExceeded, slowapi._rate_limit_exceeded_handler)  # noqa: SLF001 (documented so)
    app.add_middleware(slowapi.middleware.SlowAPIASGIMiddleware)
    _plain(app, url, amount)


def _slowapi_decorator(app: FastAPI, url: str, amount: int) -> None:
    """By decorator, without headers: the fastest there is."""
    limiter = slowapi.Limiter(key_func=slowapi.util.get_remote_address, storage_uri=url)
    app.state.limiter = limiter
    app.add_exception_handler(slowapi.errors.RateLimitExceeded, slowapi._rate_limit_exceeded_handler)  # noqa: SLF001 (documented so)

    @app.get("/items/{item}")
    @limiter.limit(f"{amount}/day")
    async def view(request: Request, item: str) -> dict[str, str]:  # noqa: ARG001 (slowapi looks for it)
        return _answer(item)


APPS: dict[str, Limited] = {
    "headgate": _headgate("all"),
    "headgate without headers": _headgate("none"),
    "slowapi": _slowapi,
    "slowapi without headers": _slowapi_decorator,
    "plain": _plain,
}


def main(name: str, port: str, url: str, amount: str) -> None:
    """Serve until the process ends, on uvloop and httptools."""
    app = FastAPI(openapi_url=None)
    APPS[name](app, url, int(amount))
    config = uvicorn.Config(app, port=int(port), log_level="warning", access_log=False, loop="uvloop", http="httptools")
    config.timeout_keep_alive = 3_600  # connections rest while the others are timed
    uvicorn.Server(config).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
