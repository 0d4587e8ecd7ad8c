"""The OpenAPI description: what FastAPI reads from the endpoints, and every answer that the gate can give."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from headgate.controlplane.access import Role
from headgate.core.problem import CONTENT_TYPE
from headgate.edge.admin import applied
from headgate.edge.admin.access import OPEN, ROLES, changes_something, reaches_processes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fastapi import FastAPI


_PROBLEM: Final[dict[str, Any]] = {
    "type": "object",
    "description": "A problem document (RFC 9457).",
    "required": ["type", "title", "status", "detail", "error", "message", "problems"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What is wrong, for people."},
        "error": {"type": "string", "description": "What is wrong, for programs."},
        "message": {"type": "string", "description": "The same as `detail`."},
        "problems": {
            "type": "array",
            "description": "Every problem of the request, with the field it is in.",
            "items": {
                "type": "object",
                "required": ["field", "message"],
                "properties": {"field": {"type": "string"}, "message": {"type": "string"}},
            },
        },
    },
    "examples": [
        {
            "type": "about:blank",
            "title": "Unprocessable Entity",
            "status": 422,
            "detail": "price: expected a number, not 'much'",
            "error": "unprocessable_entity",
            "message": "price: expected a number, not 'much'",
            "problems": [{"field": "price", "message": "expected a number, not 'much'"}],
        }
    ],
}
_MEANING: Final = {
    HTTPStatus.BAD_REQUEST: "The JSON, a header, a cursor or the path is malformed.",
    HTTPStatus.UNAUTHORIZED: "The token is missing, unknown, expired or revoked.",
    HTTPStatus.FORBIDDEN: "The token's role is not sufficient.",
    HTTPStatus.NOT_FOUND: "The record does not exist, or this process does not offer the endpoint.",
    HTTPStatus.REQUEST_TIMEOUT: "The body did not arrive in time.",
    HTTPStatus.CONFLICT: "The change conflicts with the present state, or the first copy of it is still in flight.",
    HTTPStatus.PRECONDITION_FAILED: "The record has changed since it was read.",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "The body is too large.",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "The body's Content-Type is not JSON.",
    HTTPStatus.UNPROCESSABLE_ENTITY: "The request is not valid; `problems` lists every reason.",
    HTTPStatus.SERVICE_UNAVAILABLE: "The database or the counter store is unavailable.",
}
_OF_A_SERVICE: Final = ("GET /v1/overview", "POST /v1/simulate")
"""Endpoints that answer 404 in a process that serves nothing but its own command."""
_IDEMPOTENCY_KEY: Final = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "A repeat of the request with the same key gets the first answer again, for one day.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]([ -~]{0,253}[!-~])?$"},
}
_IF_NONE_MATCH: Final = {
    "name": "If-None-Match",
    "in": "header",
    "required": False,
    "description": "Send the record only if its version is another one.",
    "schema": {"type": "string"},
}
_TAG: Final = {"description": "The record's version, for If-Match and If-None-Match.", "schema": {"type": "string"}}


def describe(app: FastAPI) -> dict[str, Any]:
    """The complete description."""
    description = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
    schemas: dict[str, Any] = description["components"]["schemas"]
    schemas["Problem"] = _PROBLEM
    schemas.update(applied.SCHEMAS)
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    description["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    names = {
        f"{method} {route.path_format}": route.name
        for route in app.routes
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    }
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            endpoint = f"{method.upper()} {path}"
            operation["operationId"] = names[endpoint]
            if endpoint not in OPEN:
                _complete(endpoint, operation)
    return description


def _complete(endpoint: str, operation: dict[str, Any]) -> None:
    """Add the parameters of the gate, and the answers of the gate and the services."""
    role = ROLES[endpoint]
    operation["security"] = [{"token": []}]
    operation["description"] = f"{operation.get('description', '')}\n\nNeeds the role `{role}`.".strip()
    parameters: list[dict[str, Any]] = operation.setdefault("parameters", [])
    responses: dict[str, Any] = operation["responses"]
    if endpoint.startswith("POST ") and changes_something(endpoint):
        parameters.append(_IDEMPOTENCY_KEY)
    if "304" in responses:
        parameters.append(_IF_NONE_MATCH)
        responses["200"]["headers"] = {"ETag": _TAG}
        responses["304"]["headers"] = {"ETag": _TAG}
    if reaches_processes(endpoint):
        applied.describe(operation)
    for status in _answers(endpoint, operation):
        responses[str(status.value)] = {
            "description": _MEANING[status],
            "content": {CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
    operation["responses"] = dict(sorted(responses.items()))


def _answers(endpoint: str, operation: dict[str, Any]) -> Iterator[HTTPStatus]:
    """Every error status of an endpoint."""
    yield from (HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.UNPROCESSABLE_ENTITY)
    yield HTTPStatus.SERVICE_UNAVAILABLE
    if ROLES[endpoint] is not Role.VIEWER:
        yield HTTPStatus.FORBIDDEN
    if "{" in endpoint or endpoint in _OF_A_SERVICE:
        yield HTTPStatus.NOT_FOUND
    if changes_something(endpoint) or endpoint in {"POST /v1/ruleset/plan", "POST /v1/simulate"}:
        yield HTTPStatus.CONFLICT
    if any(each["name"].lower() == "if-match" for each in operation["parameters"]):
        yield HTTPStatus.PRECONDITION_FAILED
    if endpoint.startswith(("POST ", "PUT ")):
        yield from (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    if "requestBody" in operation:
        yield HTTPStatus.UNSUPPORTED_MEDIA_TYPE
