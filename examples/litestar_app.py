"""Limits in a Litestar application: uvicorn --app-dir examples --no-proxy-headers litestar_app:app.

With several workers (--workers 4) it needs a store for all of them: REDIS_URL=redis://localhost:6379.
"""

import os
from pathlib import Path
from typing import Any

from litestar import Litestar, Request, get

from headgate.litestar import RateLimiter, admission, exempt, rate_limit


@get("/search/{words:str}")
@rate_limit("10/hour", per="user")
async def search(words: str) -> dict[str, str | int]:
    """Ten an hour for each user, whatever they search for."""
    return {"found": words, "worker": os.getpid()}


@get("/report")
@rate_limit("100/hour", per="user", name="pages")
async def report(request: Request[Any, Any, Any], pages: int) -> dict[str, int]:
    """A hundred pages an hour: one is taken when the call comes, the rest once it is known how many there are."""
    admission(request).settle(pages)
    return {"pages": pages, "worker": os.getpid()}


@get("/health")
@exempt
async def health() -> dict[str, str]:
    """Never limited."""
    return {"status": "fine"}


limiter = RateLimiter(
    os.environ.get("REDIS_URL", "memory://"),
    rules=Path(__file__).with_name("app_rules.yaml"),
    identify=lambda connection: connection.headers.get("x-user"),  # in production: the signed-in user
)
app = Litestar([search, report, health], plugins=[limiter])
