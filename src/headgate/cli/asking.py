"""Asking a running decision service."""

from __future__ import annotations

import json
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from headgate.errors import HeadgateError

if TYPE_CHECKING:
    from headgate.core.request import Request

_SECONDS: Final = 5.0


def ask(url: str, verb: str, request: Request, cost: int | None) -> dict[str, Any]:
    """The verdict of the service at `url`, as it answers it, or `HeadgateError` saying why there is none."""
    members = {**request._asdict(), "cost": cost, "attributes": dict(request.attributes) or None}
    asked = json.dumps({name: value for name, value in members.items() if value is not None})
    parts = urlsplit(url)
    connect = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = connect(parts.hostname or "", parts.port, timeout=_SECONDS)
    try:
        connection.request("POST", f"{parts.path}/v1/{verb}", asked.encode(), {"Content-Type": "application/json"})
        response = connection.getresponse()
        text = response.read()
    except (OSError, HTTPException) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        msg = f"no answer from {url} ({reason}); start one with 'headgate serve', or decide here with --rules FILE"
        raise HeadgateError(msg) from error
    finally:
        connection.close()
    try:
        verdict = json.loads(text)
    except ValueError:
        verdict = None
    if isinstance(verdict, dict) and isinstance(verdict.get("allowed"), bool):
        return verdict
    reason = verdict.get("message") if isinstance(verdict, dict) else "that is not a verdict of headgate"
    msg = f"{url} answered {response.status}: {reason}"
    raise HeadgateError(msg)
