"""Every failure as a problem document (RFC 9457), in one shape."""

from __future__ import annotations

import json
import logging
from difflib import get_close_matches
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match

from headgate.core.problem import CONTENT_TYPE
from headgate.edge.problems import HttpProblem
from headgate.errors import (
    Conflict,
    DatabaseError,
    Forbidden,
    HeadgateError,
    InvalidFields,
    InvalidLimit,
    InvalidRequest,
    InvalidRules,
    NoRules,
    NotFound,
    Problem,
    Stale,
    StoreError,
    short_repr,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fastapi import FastAPI, Request


log = logging.getLogger("headgate")

MAX_PROBLEMS: Final = 1_000
"""In one answer."""
_STATUS: Final[dict[type[HeadgateError], HTTPStatus]] = {
    NotFound: HTTPStatus.NOT_FOUND,
    Conflict: HTTPStatus.CONFLICT,
    Stale: HTTPStatus.PRECONDITION_FAILED,
    Forbidden: HTTPStatus.FORBIDDEN,
    InvalidFields: HTTPStatus.UNPROCESSABLE_ENTITY,
    InvalidRules: HTTPStatus.UNPROCESSABLE_ENTITY,
    InvalidRequest: HTTPStatus.UNPROCESSABLE_ENTITY,
    InvalidLimit: HTTPStatus.UNPROCESSABLE_ENTITY,
    DatabaseError: HTTPStatus.SERVICE_UNAVAILABLE,
    StoreError: HTTPStatus.SERVICE_UNAVAILABLE,
    NoRules: HTTPStatus.SERVICE_UNAVAILABLE,
}


class NotModified(Exception):
    """The caller has the current version, so it is not sent again."""

    def __init__(self, tag: str) -> None:
        """`tag` is the entity tag of the current version."""
        self.tag = tag
        super().__init__(tag)


def problem(
    status: HTTPStatus, sentence: str, problems: Sequence[Problem] = (), headers: Sequence[tuple[str, str]] = ()
) -> Response:
    """An answer that says what is wrong, for people and for programs."""
    document = HttpProblem(status, sentence).document() | {
        "problems": [{"field": each.field, "message": each.message} for each in problems[:MAX_PROBLEMS]]
    }
    return Response(_line(document), status.value, dict(headers), CONTENT_TYPE)


def handle_problems(app: FastAPI) -> None:
    """Answer every error that endpoints raise."""
    app.add_exception_handler(HeadgateError, _of_ours)
    app.add_exception_handler(HttpProblem, _of_the_edge)
    app.add_exception_handler(RequestValidationError, _of_pydantic)
    app.add_exception_handler(HTTPException, _of_starlette)
    app.add_exception_handler(NotModified, _not_modified)


async def _of_ours(_request: Request, error: Exception) -> Response:
    status = next((status for kind, status in _STATUS.items() if isinstance(error, kind)), None)
    if status is None:
        raise error
    if isinstance(error, DatabaseError | StoreError):
        log.error("admin API: request failed with status 503: %s", error)
        if isinstance(error, DatabaseError) and error.perhaps_done:
            sentence = "the database did not confirm the change; check whether it was made before you retry"
            return problem(status, sentence)
        what = "database" if isinstance(error, DatabaseError) else "counter store"
        state = "is unavailable" if error.transient else "refused the request"
        sentence = f"the {what} {state}; the service's log has the reason"
        return problem(status, sentence, headers=[("retry-after", "1")] if error.transient else [])
    problems = error.problems if isinstance(error, InvalidFields | InvalidRules) else ()
    return problem(status, _summary(problems) if problems else str(error), problems)


async def _of_the_edge(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HttpProblem)  # noqa: S101 (registered for it)
    return problem(error.status, str(error), headers=error.headers)


async def _of_pydantic(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 (registered for it)
    problems = problems_of(error, request.scope.get("route"))
    return problem(HTTPStatus.UNPROCESSABLE_ENTITY, _summary(problems), problems)


async def _of_starlette(request: Request, error: Exception) -> Response:
    """The router found no endpoint."""
    assert isinstance(error, HTTPException)  # noqa: S101 (registered for it)
    path = short_repr(request.scope["path"])
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        methods = sorted(_methods(request))
        sentence = f"{path} accepts {' and '.join(methods)}, not {short_repr(request.method)}"
        return problem(HTTPStatus.METHOD_NOT_ALLOWED, sentence, headers=[("allow", ", ".join(methods))])
    if error.status_code == HTTPStatus.NOT_FOUND:
        return problem(HTTPStatus.NOT_FOUND, f"there is no endpoint {path}; /openapi.json lists all endpoints")
    return problem(HTTPStatus(error.status_code), str(error.detail), headers=[*(error.headers or {}).items()])


async def _not_modified(_request: Request, error: Exception) -> Response:
    assert isinstance(error, NotModified)  # noqa: S101 (registered for it)
    return Response(status_code=HTTPStatus.NOT_MODIFIED, headers={"etag": error.tag})


def _methods(request: Request) -> set[str]:
    """All methods of the path; the router tries one method at a time."""
    found: set[str] = set()
    for route in request.app.routes:
        if route.matches(request.scope)[0] is not Match.NONE:
            found |= route.methods
    return found | ({"HEAD"} if "GET" in found else set())


def _summary(problems: Sequence[Problem]) -> str:
    first = str(problems[0])
    return first if len(problems) == 1 else f"{first} (and {len(problems) - 1} more)"


def _line(document: dict[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False).encode() + b"\n"


_EXPECTED: Final = {
    "string_type": "expected a text",
    "int_type": "expected a whole number",
    "float_type": "expected a number",
    "bool_type": "expected true or false",
    "list_type": "expected a list",
    "dict_type": "expected an object",
    "model_type": "expected an object",
    "model_attributes_type": "expected an object",
    "finite_number": "expected a finite number",
    "string_too_long": "expected at most {max_length} characters",
    "string_too_short": "expected at least {min_length} characters",
    "too_long": "expected at most {max_length} entries",
    "too_short": "expected at least {min_length} entries",
    "greater_than_equal": "expected {ge} or more",
    "less_than_equal": "expected {le} or less",
    "literal_error": "expected {expected}",
    "enum": "expected {expected}",
    "string_pattern_mismatch": "expected a text of the form {pattern}",
}


def problems_of(error: RequestValidationError, route: object) -> Sequence[Problem]:
    """Each thing that is wrong, and where."""
    return [_problem(each, route) for each in error.errors()]


def _problem(found: dict[str, Any], route: object) -> Problem:
    where, *path = found["loc"]
    kind = found["type"]
    if kind == "missing":
        return Problem(tuple(path), "it is missing") if path else Problem((), "the body is missing; send a JSON object")
    if kind == "extra_forbidden":
        known = _members(route) if where == "body" and len(path) == 1 else []
        close = get_close_matches(str(path[-1]), known, 1)
        hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}" if known else "leave it out"
        return Problem(tuple(path), f"unknown member; {hint}")
    expected = _EXPECTED.get(kind)
    if expected is None:  # a sentence of our own, from a validator
        return Problem(tuple(path), found["msg"])
    return Problem(tuple(path), f"{expected.format(**found.get('ctx', {}))}, not {short_repr(found['input'])}")


def _members(route: object) -> list[str]:
    """What the body of a route may have."""
    if not isinstance(route, APIRoute) or route.body_field is None:
        return []
    return list(getattr(route.body_field.field_info.annotation, "model_fields", {}))
