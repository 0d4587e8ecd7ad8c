"""Limits in a Flask application: gunicorn --chdir examples flask_app:app.

With several workers (--workers 4) it needs a store for all of them: REDIS_URL=redis://localhost:6379.
"""

import os
from pathlib import Path

from flask import Flask, request

from headgate.flask import RateLimiter

app = Flask(__name__)
limiter = RateLimiter(
    app,
    os.environ.get("REDIS_URL", "memory://"),
    rules=Path(__file__).with_name("app_rules.yaml"),
    identify=lambda call: call.headers.get("x-user"),  # in production: the signed-in user
)


@app.get("/search/<words>")
@limiter.limit("10/hour", per="user")
def search(words: str) -> dict[str, str | int]:
    """Ten an hour for each user, whatever they search for."""
    return {"found": words, "worker": os.getpid()}


@app.get("/report")
@limiter.limit("100/hour", per="user", name="pages")
def report() -> dict[str, int]:
    """A hundred pages an hour: one is taken when the call comes, the rest once it is known how many there are."""
    pages = int(request.args["pages"])
    limiter.admission().settle(pages)
    return {"pages": pages, "worker": os.getpid()}


@app.get("/health")
@limiter.exempt
def health() -> dict[str, str]:
    """Never limited."""
    return {"status": "fine"}
