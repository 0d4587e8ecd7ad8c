"""What the answer to a change of rules, tiers or blocks says of the processes: how many have it, and which do not."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import DatabaseError, InvalidFields, Problem, shown

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from headgate.controlplane.processes import Processes

WAIT: Final = "wait"
_DEFAULT_SECONDS: Final = 2.0
_MAX_SECONDS: Final = 10.0
_SECONDS_FOR_THE_LAST_LOOK: Final = 1.0
_NUMBER: Final = re.compile(r"[0-9]{1,2}(\.[0-9]{1,6})?")
_HEADER: Final = "headgate-applied"
_SCHEMA: Final = "Applied"

SCHEMAS: Final[dict[str, Any]] = {
    _SCHEMA: {
        "type": "object",
        "description": "Which processes run on the newest rules and blocks. Left out if that could not be found out.",
        "required": ["processes", "have_it", "waiting_for"],
        "properties": {
            "processes": {"type": "integer", "description": "Those that have reported in the last 10 seconds."},
            "have_it": {"type": "integer"},
            "waiting_for": {
                "type": "array",
                "items": {"type": "string"},
                "description": "The others, as `host:pid`; at most 20.",
            },
        },
        "examples": [{"processes": 3, "have_it": 2, "waiting_for": ["web-1:4711"]}],
    }
}
PARAMETER: Final = {
    "name": WAIT,
    "in": "query",
    "required": False,
    "description": "For how many seconds the answer waits at most until all processes have the change.",
    "schema": {"type": "number", "minimum": 0, "maximum": _MAX_SECONDS, "default": _DEFAULT_SECONDS},
}
_ON_RESPONSE: Final = {
    "Headgate-Applied": {
        "description": "How many processes have the change, of how many, as in `2/3`.",
        "schema": {"type": "string"},
    }
}


def seconds_to_wait(request: Request) -> float:
    """As the query says, or two; what is wrong with it is raised before anything is changed."""
    text = request.query_params.get(WAIT)
    if text is None:
        return _DEFAULT_SECONDS
    if _NUMBER.fullmatch(text) and (seconds := float(text)) <= _MAX_SECONDS:
        return seconds
    raise InvalidFields([Problem((WAIT,), f"expected a number of seconds from 0 to 10, not {shown(text)}")])


async def tell(response: Response, processes: Processes, seconds: float) -> None:
    """Add to the answer who has the change; nothing, if the database does not say: the change is made all the same."""
    try:
        async with asyncio.timeout(seconds + _SECONDS_FOR_THE_LAST_LOOK):
            applied = await processes.applied(seconds)
    except (DatabaseError, TimeoutError):
        return
    response.headers[_HEADER] = f"{applied.have_it}/{applied.processes}"
    body = bytes(response.body)
    if body.startswith(b"{") and body.endswith(b"}"):
        # Not read and written anew: the difference between two rule sets may be large.
        member = f'"applied":{json.dumps(applied.as_dict())}}}'.encode()
        body = body[:-1] + (b"," if len(body) > len(b"{}") else b"") + member
        response.body = body
        response.headers["content-length"] = str(len(body))


def describe(operation: dict[str, Any]) -> None:
    """Add all this to the description of an operation."""
    operation["parameters"].append(PARAMETER)
    for status, answer in operation["responses"].items():
        if not status.startswith("2"):
            continue
        answer["headers"] = {**answer.get("headers", {}), **_ON_RESPONSE}
        for content in answer.get("content", {}).values():
            member = {"type": "object", "properties": {"applied": {"$ref": f"#/components/schemas/{_SCHEMA}"}}}
            content["schema"] = {"allOf": [content["schema"], member]}
