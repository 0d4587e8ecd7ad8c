"""API keys."""

from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Body, Query, Request, Response

from headgate.controlplane.keys import KeyRecord, KeyState
from headgate.edge.admin.gate import Gate, Parts, Who
from headgate.edge.admin.models.credentials import KeyBody, KeyPage, KeyView, NewKey, NewKeyView, RotationBody
from headgate.edge.admin.models.shared import Text
from headgate.edge.admin.pages import DEFAULT_LIMIT, After, Limit, Page, page, place_of
from headgate.edge.admin.paths import Name
from headgate.edge.admin.tags import NOT_MODIFIED, IfMatch, tagged

router = APIRouter(route_class=Gate, tags=["API keys"])


@router.get("/v1/keys", response_model=KeyPage)
async def list_keys(
    parts: Parts,
    limit: Limit = DEFAULT_LIMIT,
    after: After = None,
    user: Text = None,
    state: Annotated[KeyState | None, Query()] = None,
) -> Page[KeyRecord]:
    """API keys by id."""
    found = await parts.keys.list(user=user, state=state, after=place_of("keys", after), most=limit + 1)
    return page("keys", found, limit, lambda record: record.id)


@router.post("/v1/keys", response_model=NewKeyView, status_code=HTTPStatus.CREATED)
async def create_key(parts: Parts, who: Who, request: Request, response: Response, body: NewKey) -> dict[str, Any]:
    """A new key, and its secret, which nobody can ever see again."""
    record, secret = await parts.keys.create(body.given(), who)
    response.headers["location"] = f"/v1/keys/{record.id}"
    tagged(request, response, record, live=True)
    return {"key": record, "secret": secret}


@router.get("/v1/keys/{id:part}", response_model=KeyView, responses=NOT_MODIFIED)
async def get_key(parts: Parts, request: Request, response: Response, id: Name) -> KeyRecord:  # noqa: A002 (keys have ids)
    """One key."""
    record = await parts.keys.get(id)
    tagged(request, response, record, live=True)
    return record


@router.put("/v1/keys/{id:part}", response_model=KeyView)
async def replace_key(
    parts: Parts,
    who: Who,
    request: Request,
    response: Response,
    id: Name,  # noqa: A002 (keys have ids)
    body: KeyBody,
    expected: IfMatch,
) -> KeyRecord:
    """Change name, tenant, tier, limits and expiry to what the body says; the owner stays."""
    version = await expected.version(lambda: parts.keys.get(id))
    record = await parts.keys.replace(id, body.given(), who, version)
    tagged(request, response, record, live=True)
    return record


@router.post("/v1/keys/{id:part}/revoke", response_model=KeyView)
async def revoke_key(
    parts: Parts,
    who: Who,
    request: Request,
    response: Response,
    id: Name,  # noqa: A002 (keys have ids)
    expected: IfMatch,
) -> KeyRecord:
    """End a key now and for good."""
    record = await parts.keys.revoke(id, who, await expected.version(lambda: parts.keys.get(id)))
    tagged(request, response, record, live=True)
    return record


@router.post("/v1/keys/{id:part}/rotate", response_model=NewKeyView, status_code=HTTPStatus.CREATED)
async def rotate_key(
    parts: Parts,
    who: Who,
    request: Request,
    response: Response,
    id: Name,  # noqa: A002 (keys have ids)
    expected: IfMatch,
    body: Annotated[RotationBody | None, Body()] = None,
) -> dict[str, Any]:
    """A new key in place of this one, with its secret. The old one is revoked, or expires after the overlap."""
    version = await expected.version(lambda: parts.keys.get(id))
    overlap = 0 if body is None else body.overlap_seconds
    record, secret = await parts.keys.rotate(id, who, version, overlap_seconds=overlap)
    response.headers["location"] = f"/v1/keys/{record.id}"
    tagged(request, response, record, live=True)
    return {"key": record, "secret": secret}
