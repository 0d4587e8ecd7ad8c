"""Whatever goes wrong as a problem document (RFC 9457), in one shape."""

from __future__ import annotations

import json
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match

from headgate.core.problem import CONTENT_TYPE
from headgate.edge.admin.sentences import problems_of
from headgate.edge.problems import Unanswerable
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
    shown,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fastapi import FastAPI, Request

log = logging.getLogger("headgate")

MOST_PROBLEMS: Final = 1_000
"""That one answer tells."""
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
    """What the caller has is still right, so it is not sent again."""

    def __init__(self, tag: str) -> None:
        """`tag` is the entity tag of what the caller has."""
        self.tag = tag
        super().__init__(tag)


def problem(
    status: HTTPStatus, sentence: str, problems: Sequence[Problem] = (), headers: Sequence[tuple[str, str]] = ()
) -> Response:
    """An answer that says what is wrong, to people and to programs."""
    document = Unanswerable(status, sentence).document() | {
        "problems": [{"field": each.field, "message": each.message} for each in problems[:MOST_PROBLEMS]]
    }
    return Response(_line(document), status.value, dict(headers), CONTENT_TYPE)


def handle_problems(app: FastAPI) -> None:
    """Let everything that endpoints raise be answered."""
    app.add_exception_handler(HeadgateError, _of_ours)
    app.add_exception_handler(Unanswerable, _of_the_edge)
    app.add_exception_handler(RequestValidationError, _of_pydantic)
    app.add_exception_handler(HTTPException, _of_starlette)
    app.add_exception_handler(NotModified, _not_modified)


async def _of_ours(_request: Request, error: Exception) -> Response:
    status = next((status for kind, status in _STATUS.items() if isinstance(error, kind)), None)
    if status is None:
        raise error
    if isinstance(error, DatabaseError | StoreError):
        log.error("the admin API could not answer: %s", error)
        if isinstance(error, DatabaseError) and error.perhaps_done:
            sentence = "the database did not say whether the change was made; look before you make it again"
            return problem(status, sentence)
        what = "database" if isinstance(error, DatabaseError) else "counter store"
        state = "is out of reach" if error.transient else "refuses to do that"
        sentence = f"the {what} {state}; the service's log says more"
        return problem(status, sentence, headers=[("retry-after", "1")] if error.transient else [])
    problems = error.problems if isinstance(error, InvalidFields | InvalidRules) else ()
    return problem(status, _summary(problems) if problems else str(error), problems)


async def _of_the_edge(_request: Request, error: Exception) -> Response:
    assert isinstance(error, Unanswerable)  # noqa: S101 (registered for it)
    return problem(error.status, str(error), headers=error.headers)


async def _of_pydantic(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 (registered for it)
    problems = problems_of(error, request.scope.get("route"))
    return problem(HTTPStatus.UNPROCESSABLE_ENTITY, _summary(problems), problems)


async def _of_starlette(request: Request, error: Exception) -> Response:
    """What the router finds nobody for."""
    assert isinstance(error, HTTPException)  # noqa: S101 (registered for it)
    path = shown(request.scope["path"])
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        methods = sorted(_methods(request))
        sentence = f"{path} takes {' and '.join(methods)}, not {shown(request.method)}"
        return problem(HTTPStatus.METHOD_NOT_ALLOWED, sentence, headers=[("allow", ", ".join(methods))])
    if error.status_code == HTTPStatus.NOT_FOUND:
        return problem(HTTPStatus.NOT_FOUND, f"there is no {path} here; /openapi.json lists what there is")
    return problem(HTTPStatus(error.status_code), str(error.detail), headers=[*(error.headers or {}).items()])


async def _not_modified(_request: Request, error: Exception) -> Response:
    assert isinstance(error, NotModified)  # noqa: S101 (registered for it)
    return Response(status_code=HTTPStatus.NOT_MODIFIED, headers={"etag": error.tag})


def _methods(request: Request) -> set[str]:
    """All that the path takes; the router looks at one method at a time."""
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
