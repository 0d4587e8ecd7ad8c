"""Refusals in an OpenAPI document: for each limited route its status, the headers, and the problem document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headgate.core import headers
from headgate.core.endpoint import matches
from headgate.core.path import normalise_path
from headgate.core.problem import CONTENT_TYPE
from headgate.core.rule import Action

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.edge.frameworks.gate import Gate
    from headgate.edge.frameworks.routes import Limited

SCHEMA: Final = "RateLimitProblem"
_USUAL: Final = 429
_NUMBER: Final = {"type": "integer", "minimum": 0}
_TEXT: Final = {"type": "string"}
_HEADERS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    headers.LIMIT: ("The amount of the limit that refused the call", _NUMBER),
    headers.REMAINING: ("What is left of it", _NUMBER),
    headers.RESET: ("When there is more of it, in seconds since 1970", _NUMBER),
    headers.COST: ("What the call would have cost", _NUMBER),
    headers.POLICY: ("All limits that hold for the call (IETF draft)", _TEXT),
    headers.STANDING: ("What is left of each (IETF draft)", _TEXT),
}
_PROBLEM: Final[dict[str, Any]] = {
    "title": "Rate limit exceeded",
    "description": "A problem document (RFC 9457).",
    "type": "object",
    "required": ["type", "title", "status", "detail", "violated-policies", "error", "message"],
    "properties": {
        "type": {"type": "string", "format": "uri-reference"},
        "title": _TEXT,
        "status": {"type": "integer"},
        "detail": _TEXT,
        "violated-policies": {"type": "array", "items": _TEXT},
        "error": {"type": "string", "enum": ["rate_limit_exceeded", "blocked"]},
        "message": _TEXT,
    },
}


def describe(document: dict[str, Any], routes: Iterable[Limited], gate: Gate) -> dict[str, Any]:
    """The document, with the refusals of all limited routes; what the application describes itself stays."""
    names = (name for name in _HEADERS if name in gate.sent_names)
    sent: dict[str, Any] = {
        gate.names.get(name, name): {"description": _HEADERS[name][0], "schema": _HEADERS[name][1]} for name in names
    }
    sent[headers.RETRY_AFTER] = {"description": "Seconds to wait", "schema": {"type": "integer", "minimum": 1}}
    is_described = False
    for template, methods, route in routes:
        operations = document.get("paths", {}).get(template, {})
        if route.exempt or not (gate.limits_of(route) or _is_ruled(gate, template)):
            continue
        for status, has_own_body in sorted(_statuses(gate, route).items()):
            for operation in (operations[name] for method in methods if (name := method.lower()) in operations):
                response: dict[str, Any] = {"description": "Too many requests", "headers": sent}
                if not has_own_body:
                    schema = {"$ref": f"#/components/schemas/{SCHEMA}"}
                    response["content"] = {CONTENT_TYPE: {"schema": schema}}
                    is_described = True
                operation.setdefault("responses", {}).setdefault(str(status), response)
    if is_described:
        document.setdefault("components", {}).setdefault("schemas", {}).setdefault(SCHEMA, _PROBLEM)
    return document


def _statuses(gate: Gate, route: Any) -> dict[int, bool]:  # noqa: ANN401 (a Route)
    """With which statuses the calls to a route are refused, and whether the application writes the answer."""
    limits = gate.limits_of(route)
    if not limits:
        return {_USUAL: gate.has_own_answer}
    found: dict[int, bool] = {}
    for limit in limits:
        own = limit.options.on_refused is not None or gate.has_own_answer
        found[limit.options.status or _USUAL] = own or found.get(limit.options.status or _USUAL, False)
    return found


def _is_ruled(gate: Gate, template: str) -> bool:
    """Whether a rule may refuse calls to a route."""
    path = normalise_path(template)
    return any(
        rule.action in {Action.REJECT, Action.THROTTLE}
        and (not rule.match.endpoints or any(matches(pattern, path) for pattern in rule.match.endpoints))
        for rule in gate.rules
    )
