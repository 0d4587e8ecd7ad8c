"""Limits in an aiohttp application: gunicorn --chdir examples --worker-class aiohttp.GunicornWebWorker aiohttp_app:app.

With several workers (--workers 4) it needs a store for all of them: REDIS_URL=redis://localhost:6379.
"""

import os
from pathlib import Path

from aiohttp import web

from headgate.aiohttp import admission, exempt, rate_limit, setup


@rate_limit("10/hour", per="user")
async def search(request: web.Request) -> web.Response:
    """Ten an hour for each user, whatever they search for."""
    return web.json_response({"found": request.match_info["words"], "worker": os.getpid()})


@rate_limit("100/hour", per="user", name="pages")
async def report(request: web.Request) -> web.Response:
    """A hundred pages an hour: one is taken when the call comes, the rest once it is known how many there are."""
    pages = int(request.query["pages"])
    admission(request).settle(pages)
    return web.json_response({"pages": pages, "worker": os.getpid()})


@exempt
async def health(_request: web.Request) -> web.Response:
    """Never limited."""
    return web.json_response({"status": "fine"})


app = web.Application()
app.add_routes([web.get("/search/{words}", search), web.get("/report", report), web.get("/health", health)])
setup(
    app,
    os.environ.get("REDIS_URL", "memory://"),
    rules=Path(__file__).with_name("app_rules.yaml"),
    identify=lambda request: request.headers.get("x-user"),  # in production: the signed-in user
)
