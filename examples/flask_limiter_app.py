"""flask-limiter on headgate: nothing is changed but the address of the storage, and one import.

pip install headgate flask-limiter granian
STORAGE=headgate+redis://localhost:6379 granian --interface wsgi --workers 4 flask_limiter_app:app
"""

import os

from flask import Flask
from flask_limiter import Limiter
from flask_limiter.util import get_remote_address

import headgate.limits  # noqa: F401 (registers headgate+redis://)

app = Flask(__name__)
limiter = Limiter(
    get_remote_address,
    app=app,
    storage_uri=os.environ.get("STORAGE", "headgate+memory://"),
    strategy="moving-window",
    headers_enabled=True,
)


@app.get("/search")
@limiter.limit("20/hour")
def search() -> dict[str, int]:
    """Twenty an hour for each address, whichever process answers."""
    return {"process": os.getpid()}


@app.get("/report")
@limiter.limit("10/hour", cost=5)
def report() -> dict[str, int]:
    """Costs five."""
    return {"process": os.getpid()}
