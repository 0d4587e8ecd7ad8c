"""slowapi on headgate: nothing is changed but the address of the storage, and one import.

pip install headgate slowapi fastapi granian
STORAGE=headgate+redis://localhost:6379 granian --interface asgi --workers 4 slowapi_app:app
"""

import os

from fastapi import FastAPI, Request, Response
from slowapi import Limiter, _rate_limit_exceeded_handler
from slowapi.errors import RateLimitExceeded
from slowapi.util import get_remote_address

import headgate.limits  # noqa: F401 (registers headgate+redis://)

limiter = Limiter(
    key_func=get_remote_address,
    storage_uri=os.environ.get("STORAGE", "headgate+memory://"),
    strategy="moving-window",
    headers_enabled=True,
)
app = FastAPI()
app.state.limiter = limiter
app.add_exception_handler(RateLimitExceeded, _rate_limit_exceeded_handler)


@app.get("/search")
@limiter.limit("20/hour")
async def search(request: Request, response: Response) -> dict[str, int]:  # noqa: ARG001 (slowapi wants both)
    """Twenty an hour for each address, whichever process answers."""
    return {"process": os.getpid()}


@app.get("/report")
@limiter.limit("10/hour", cost=5)
async def report(request: Request, response: Response) -> dict[str, int]:  # noqa: ARG001 (slowapi wants both)
    """Costs five."""
    return {"process": os.getpid()}
