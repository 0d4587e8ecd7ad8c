"""Limits in a FastAPI application: uvicorn --app-dir examples --no-proxy-headers fastapi_app:app.

With several workers (--workers 4) it needs a store for all of them: REDIS_URL=redis://localhost:6379.
"""

import os
from pathlib import Path
from typing import Annotated

from fastapi import Depends, FastAPI

from headgate.fastapi import Admission, exempt, rate_limit, setup

app = FastAPI()
setup(
    app,
    os.environ.get("REDIS_URL", "memory://"),
    rules=Path(__file__).with_name("app_rules.yaml"),
    identify=lambda connection: connection.headers.get("x-user"),  # in production: the signed-in user
)


@app.get("/search/{words}", dependencies=[Depends(rate_limit("10/hour", per="user"))])
async def search(words: str) -> dict[str, str | int]:
    """Ten an hour for each user, whatever they search for."""
    return {"found": words, "worker": os.getpid()}


@app.get("/report")
async def report(
    pages: int, admission: Annotated[Admission, Depends(rate_limit("100/hour", per="user", name="pages"))]
) -> dict[str, int]:
    """A hundred pages an hour: one is taken when the call comes, the rest once it is known how many there are."""
    admission.settle(pages)
    return {"pages": pages, "worker": os.getpid()}


@app.get("/health")
@exempt
async def health() -> dict[str, str]:
    """Never limited."""
    return {"status": "fine"}
