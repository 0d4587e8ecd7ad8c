"""Limits in a Starlette application: granian --interface asgi --working-dir examples starlette_app:app.

With several workers (--workers 4) it needs a store for all of them: REDIS_URL=redis://localhost:6379.
"""

import os
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from headgate.starlette import admission, exempt, rate_limit, setup


@rate_limit("10/hour", per="user")
async def search(request: Request) -> JSONResponse:
    """Ten an hour for each user, whatever they search for."""
    return JSONResponse({"found": request.path_params["words"], "worker": os.getpid()})


@rate_limit("100/hour", per="user", name="pages")
async def report(request: Request) -> JSONResponse:
    """A hundred pages an hour: one is taken when the call comes, the rest once it is known how many there are."""
    pages = int(request.query_params["pages"])
    admission(request).settle(pages)
    return JSONResponse({"pages": pages, "worker": os.getpid()})


@exempt
async def health(_request: Request) -> JSONResponse:
    """Never limited."""
    return JSONResponse({"status": "fine"})


app = Starlette(routes=[Route("/search/{words}", search), Route("/report", report), Route("/health", health)])
setup(
    app,
    os.environ.get("REDIS_URL", "memory://"),
    rules=Path(__file__).with_name("app_rules.yaml"),
    identify=lambda connection: connection.headers.get("x-user"),  # in real life: who has signed in
)
