"""Signing in to the dashboard, and out."""

from http import HTTPStatus
from typing import Any, Final

from fastapi import APIRouter, Request, Response

from headgate.controlplane.access import Role
from headgate.edge.admin.access import token_of
from headgate.edge.admin.body import MAX_BYTES, parse_body, read_body
from headgate.edge.admin.route import Parts, caller_of
from headgate.edge.admin.sessions import cookie_line, cookie_of, refuse_other_sites
from headgate.errors import InvalidFields, Problem

_OPTIONAL_ENDPOINTS: Final = ("hot",)
"""Endpoints that pages do without if the service does not have them."""

router = APIRouter(tags=["dashboard"])


@router.get("/ui/session", include_in_schema=False)
async def get_session(parts: Parts, request: Request) -> dict[str, Any]:
    """Who is signed in; nulls for a browser without a session, which is no error."""
    cookie = cookie_of(request.scope)
    token = None if cookie is None else parts.sessions.token(cookie)
    caller = None if token is None else await parts.access.authenticate(token)
    paths = {getattr(route, "path", "") for route in request.app.routes}
    return {
        "name": None if caller is None else caller.name,
        "role": None if caller is None else caller.role,
        "offers": [name for name in _OPTIONAL_ENDPOINTS if f"/v1/{name}" in paths],
    }


@router.post("/ui/session", include_in_schema=False)
async def sign_in(parts: Parts, request: Request, response: Response) -> dict[str, str | Role]:
    """Begin a session: the answer sets its cookie."""
    refuse_other_sites(request.scope)
    data = await parse_body(request, await read_body(request, MAX_BYTES))
    given = data.get("token") if isinstance(data, dict) and set(data) == {"token"} else None
    if not isinstance(given, str):
        raise InvalidFields([Problem(("token",), 'expected {"token": "hgt_…"}')])
    token = token_of([f"Bearer {given.strip()}".encode("latin-1", "replace")])
    caller = await caller_of(parts, token, request.scope)
    cookie = parts.sessions.begin(token)
    response.headers["set-cookie"] = cookie_line(cookie, request.scope)
    return {"name": caller.name, "role": caller.role}


@router.delete("/ui/session", include_in_schema=False, status_code=HTTPStatus.NO_CONTENT)
async def sign_out(parts: Parts, request: Request, response: Response) -> None:
    """End the session, if there is one."""
    refuse_other_sites(request.scope)
    cookie = cookie_of(request.scope)
    if cookie is not None:
        parts.sessions.end(cookie)
    response.headers["set-cookie"] = cookie_line("", request.scope, 0)
