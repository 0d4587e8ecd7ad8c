"""Asking a running decision service."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from headgate.cli.http_call import call
from headgate.errors import HeadgateError

if TYPE_CHECKING:
    from headgate.core.request import Request

_SECONDS: Final = 5.0


def check_members(request: Request, cost: int | None) -> dict[str, Any]:
    """The body of a check: everything that is known."""
    # Whether a record could be read is for the service to say.
    members = {**request._asdict(), "cost": cost, "attributes": dict(request.attributes) or None, "assumed": None}
    return {name: value for name, value in members.items() if value is not None}


def ask(url: str, verb: str, request: Request, cost: int | None, token: str | None = None) -> dict[str, Any]:
    """The verdict of the service at `url`, as it answers it, or `HeadgateError` saying why there is none."""
    asked = json.dumps(check_members(request, cost)).encode()
    hint = "start one with 'headgate serve', or decide here with --rules FILE"
    headers = {"Content-Type": "application/json"} | ({} if token is None else {"Authorization": f"Bearer {token}"})
    status, text, _ = call(url, "POST", f"/v1/{verb}", asked, headers, seconds=_SECONDS, hint=hint)
    try:
        verdict = json.loads(text)
    except ValueError:
        verdict = None
    if isinstance(verdict, dict) and isinstance(verdict.get("allowed"), bool):
        return verdict
    reason = verdict.get("message") if isinstance(verdict, dict) else "that is not a verdict of headgate"
    msg = f"{url} answered {status}: {reason}"
    raise HeadgateError(msg)
