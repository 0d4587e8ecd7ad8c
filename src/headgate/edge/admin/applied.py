"""How far a change of rules, tiers or blocks has spread: how many processes have it, and which do not."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import DatabaseError, InvalidFields, Problem, short_repr

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from headgate.controlplane.processes import Processes

WAIT: Final = "wait"
_DEFAULT_SECONDS: Final = 2.0
_MAX_SECONDS: Final = 10.0
_SECONDS_FOR_LAST_QUERY: Final = 1.0
_NUMBER: Final = re.compile(r"[0-9]{1,2}(\.[0-9]{1,6})?")
_HEADER: Final = "headgate-applied"
_SCHEMA: Final = "Applied"

SCHEMAS: Final[dict[str, Any]] = {
    _SCHEMA: {
        "type": "object",
        "description": "Which processes use the newest rules and blocks. Absent if the database does not say.",
        "required": ["processes", "have_it", "waiting_for"],
        "properties": {
            "processes": {"type": "integer", "description": "Processes that reported in the last 10 seconds."},
            "have_it": {"type": "integer", "description": "How many of them use the change."},
            "waiting_for": {
                "type": "array",
                "items": {"type": "string"},
                "description": "The processes that do not have the change yet, as `host:pid`; at most 20.",
            },
        },
        "examples": [{"processes": 3, "have_it": 2, "waiting_for": ["web-1:4711"]}],
    }
}
PARAMETER: Final = {
    "name": WAIT,
    "in": "query",
    "required": False,
    "description": "The answer waits up to this many seconds until all processes have the change.",
    "schema": {"type": "number", "minimum": 0, "maximum": _MAX_SECONDS, "default": _DEFAULT_SECONDS},
}
_ON_RESPONSE: Final = {
    "Headgate-Applied": {
        "description": "How many processes have the change, of how many: `2/3`.",
        "schema": {"type": "string"},
    }
}


def seconds_to_wait(request: Request) -> float:
    """The `wait` parameter, 2 by default. Raises before anything is changed if it is invalid."""
    text = request.query_params.get(WAIT)
    if text is None:
        return _DEFAULT_SECONDS
    if _NUMBER.fullmatch(text) and (seconds := float(text)) <= _MAX_SECONDS:
        return seconds
    raise InvalidFields([Problem((WAIT,), f"expected a number of seconds from 0 to 10, not {short_repr(text)}")])


async def add_applied(response: Response, processes: Processes, seconds: float) -> None:
    """Add to the answer which processes have the change; nothing if the database does not say."""
    try:
        async with asyncio.timeout(seconds + _SECONDS_FOR_LAST_QUERY):
            applied = await processes.applied(seconds)
    except (DatabaseError, TimeoutError):
        return
    response.headers[_HEADER] = f"{applied.have_it}/{applied.processes}"
    body = bytes(response.body)
    if body.startswith(b"{") and body.endswith(b"}"):
        # The body is not parsed and written again: the difference between two rule sets may be large.
        member = f'"applied":{json.dumps(applied.as_dict())}}}'.encode()
        body = body[:-1] + (b"," if len(body) > len(b"{}") else b"") + member
        response.body = body
        response.headers["content-length"] = str(len(body))


def describe(operation: dict[str, Any]) -> None:
    """Describe the parameter, the header and the member in an operation of the OpenAPI description."""
    operation["parameters"].append(PARAMETER)
    for status, answer in operation["responses"].items():
        if not status.startswith("2"):
            continue
        answer["headers"] = {**answer.get("headers", {}), **_ON_RESPONSE}
        for content in answer.get("content", {}).values():
            member = {"type": "object", "properties": {"applied": {"$ref": f"#/components/schemas/{_SCHEMA}"}}}
            content["schema"] = {"allOf": [content["schema"], member]}
