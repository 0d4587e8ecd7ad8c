"""API keys of callers, and tokens of this API. A secret is sent once, when it is created."""

from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import APIRouter, Body, Query, Request, Response
from pydantic import Field

from headgate.controlplane.access import Caller, Role, TokenRecord
from headgate.controlplane.keys import KeyRecord, KeyState
from headgate.edge.admin.etags import NOT_MODIFIED, IfMatch, tagged
from headgate.edge.admin.fields import LABEL, Input, LimitLists, Limits, Name, NamedLimits, Output, Text, Time, example
from headgate.edge.admin.pages import DEFAULT_LIMIT, After, Limit, Page, as_id, page, position_of
from headgate.edge.admin.route import AdminRoute, Parts, Who

_ID: Final = "0f8fad5b-d9cb-469f-a165-70867728950e"
_A_YEAR: Final = 366 * 86_400
_KEY: Final[dict[str, Any]] = {
    "id": _ID,
    "prefix": "hg_4fR7aQz",
    "name": "the app on phones",
    "user": "u1",
    "tenant": None,
    "tier": None,
    "limits": {"search": ["5/second"]},
    "dormant_limits": {},
    "expires_at": None,
    "last_used": None,
    "revoked_at": None,
    "revoked_by": None,
    "rotated_to": None,
    "version": 1,
    "created_at": "2026-01-31T12:00:00Z",
    "created_by": "token:ci",
    "state": "active",
}
_TOKEN: Final[dict[str, Any]] = {
    "id": _ID,
    "name": "ci",
    "role": "operator",
    "prefix": "hgt_4fR7aQ",
    "expires_at": None,
    "last_used": None,
    "revoked_at": None,
    "revoked_by": None,
    "created_at": "2026-01-31T12:00:00Z",
    "created_by": "token:settings",
    "state": "active",
}


class KeyBody(Input):
    """The content of an API key."""

    model_config = example(name="the app on phones", limits={"search": "5/second"}, expires_at="2026-12-31T00:00:00Z")

    name: str | None = LABEL
    tenant: str | None = LABEL
    tier: str | None = LABEL
    limits: NamedLimits | None = Field(default=None, description="Limits that replace a rule's own, by rule.")
    expires_at: Time | None = None


class NewKey(KeyBody):
    """A new API key."""

    model_config = example(name="the app on phones", user="u1", limits={"search": "5/second"})

    user: str | None = Field(default=None, min_length=1, max_length=255, description="The owner.")


class KeyLimitsBody(Input):
    """Limits that replace a rule's own."""

    model_config = example(limits="5/minute")

    limits: Limits


class RotationBody(Input):
    """How long the old key stays valid beside the new one."""

    model_config = example(overlap_seconds=3_600)

    overlap_seconds: Annotated[int, Field(ge=0, le=_A_YEAR)] = 0


class KeyView(Output):
    """A stored API key; the secret itself is not stored."""

    model_config = example(**_KEY)

    id: str
    prefix: str = Field(description="Its first characters, so that its owner recognises it.")
    name: str | None
    user: str | None
    tenant: str | None
    tier: str | None
    limits: LimitLists
    dormant_limits: LimitLists = Field(description="Those for rules that are not active; active with the rule again.")
    expires_at: datetime | None
    last_used: datetime | None
    requests: int = Field(description="How many came with it in all, a few seconds ago.")
    requests_today: int = Field(description="How many of them today (UTC).")
    revoked_at: datetime | None
    revoked_by: str | None
    rotated_to: str | None = Field(description="The id of the key that replaces it.")
    version: int
    created_at: datetime
    created_by: str
    state: KeyState


class KeyPage(Output):
    """API keys by id."""

    items: list[KeyView]
    next: str | None


class WithSecret(Output):
    """An answer with a secret, which is sent once."""

    secret: str | None = Field(
        description="Sent only now; the database holds a hash of it. Null if it was sent before."
    )
    shown_before: bool = Field(
        default=False, description="True in a repeated answer (Idempotency-Key): the first answer had the secret."
    )


class NewKeyView(WithSecret):
    """A key and its secret."""

    model_config = example(key=_KEY, secret="hg_…", shown_before=False)  # noqa: S106 (no secret)

    key: KeyView


class NewToken(Input):
    """A new token."""

    model_config = example(name="ci", role="operator", expires_at="2026-12-31T00:00:00Z")

    name: str = Field(min_length=1, max_length=64)
    role: Annotated[Role, Field(strict=False)]
    expires_at: Time | None = None


class TokenView(Output):
    """A stored token; the secret itself is not stored."""

    model_config = example(**_TOKEN)

    id: str
    name: str
    role: Role
    prefix: str
    expires_at: datetime | None
    last_used: datetime | None
    revoked_at: datetime | None
    revoked_by: str | None
    created_at: datetime
    created_by: str
    state: KeyState


class TokenPage(Output):
    """All tokens, newest first."""

    items: list[TokenView]
    next: str | None


class NewTokenView(WithSecret):
    """A token and its secret."""

    model_config = example(token=_TOKEN, secret="hgt_…", shown_before=False)  # noqa: S106 (no secret)

    token: TokenView


class CallerView(Output):
    """The caller."""

    model_config = example(name="token:ci", role="operator")

    name: str = Field(description="The name in change records.")
    role: Role


api_keys_router = APIRouter(route_class=AdminRoute, tags=["API keys"])


@api_keys_router.get("/v1/keys", response_model=KeyPage)
async def list_keys(
    parts: Parts,
    limit: Limit = DEFAULT_LIMIT,
    after: After = None,
    user: Text = None,
    state: Annotated[KeyState | None, Query()] = None,
    prefix: Text = None,
) -> Page[KeyRecord]:
    """List API keys by id; `prefix` is how the keys themselves begin."""
    position = position_of("keys", after, as_id)
    found = await parts.keys.list(user=user, prefix=prefix, state=state, after=position, most=limit + 1)
    return page("keys", found, limit, lambda record: record.id)


@api_keys_router.post("/v1/keys", response_model=NewKeyView, status_code=HTTPStatus.CREATED)
async def create_key(parts: Parts, who: Who, request: Request, response: Response, body: NewKey) -> dict[str, Any]:
    """Create a key. The answer has its secret, which is never sent again."""
    record, secret = await parts.keys.create(body.given(), who)
    response.headers["location"] = f"/v1/keys/{record.id}"
    tagged(request, response, record, live=True)
    return {"key": record, "secret": secret}


@api_keys_router.get("/v1/keys/{id:part}", response_model=KeyView, responses=NOT_MODIFIED)
async def get_key(parts: Parts, request: Request, response: Response, id: Name) -> KeyRecord:  # noqa: A002 (keys have ids)
    """Get one key."""
    record = await parts.keys.get(id)
    tagged(request, response, record, live=True)
    return record


@api_keys_router.put("/v1/keys/{id:part}", response_model=KeyView)
async def replace_key(
    parts: Parts,
    who: Who,
    request: Request,
    response: Response,
    id: Name,  # noqa: A002 (keys have ids)
    body: KeyBody,
    expected: IfMatch,
) -> KeyRecord:
    """Replace name, tenant, tier, limits and expiry; the owner stays."""
    version = await expected.version(lambda: parts.keys.get(id))
    record = await parts.keys.replace(id, body.given(), who, version)
    tagged(request, response, record, live=True)
    return record


@api_keys_router.put("/v1/keys/{id:part}/limits/{rule:part}", response_model=KeyView)
async def set_key_limits(
    parts: Parts,
    who: Who,
    request: Request,
    response: Response,
    id: Name,  # noqa: A002 (keys have ids)
    rule: Name,
    body: KeyLimitsBody,
    expected: IfMatch,
) -> KeyRecord:
    """Set a key's own limits for one rule."""
    version = await expected.version(lambda: parts.keys.get(id))
    record = await parts.keys.set_limits(id, rule, body.limits, who, version)
    tagged(request, response, record, live=True)
    return record


@api_keys_router.delete("/v1/keys/{id:part}/limits/{rule:part}", response_model=KeyView)
async def remove_key_limits(
    parts: Parts,
    who: Who,
    request: Request,
    response: Response,
    id: Name,  # noqa: A002 (keys have ids)
    rule: Name,
    expected: IfMatch,
) -> KeyRecord:
    """Remove a key's own limits for one rule, dormant ones too; the rule's limits apply again."""
    version = await expected.version(lambda: parts.keys.get(id))
    record = await parts.keys.remove_limits(id, rule, who, version)
    tagged(request, response, record, live=True)
    return record


@api_keys_router.post("/v1/keys/{id:part}/revoke", response_model=KeyView)
async def revoke_key(
    parts: Parts,
    who: Who,
    request: Request,
    response: Response,
    id: Name,  # noqa: A002 (keys have ids)
    expected: IfMatch,
) -> KeyRecord:
    """Revoke a key, now and permanently."""
    record = await parts.keys.revoke(id, who, await expected.version(lambda: parts.keys.get(id)))
    tagged(request, response, record, live=True)
    return record


@api_keys_router.post("/v1/keys/{id:part}/rotate", response_model=NewKeyView, status_code=HTTPStatus.CREATED)
async def rotate_key(
    parts: Parts,
    who: Who,
    request: Request,
    response: Response,
    id: Name,  # noqa: A002 (keys have ids)
    expected: IfMatch,
    body: Annotated[RotationBody | None, Body()] = None,
) -> dict[str, Any]:
    """Replace a key by a new one with a new secret. The old key is revoked, or expires after the overlap."""
    version = await expected.version(lambda: parts.keys.get(id))
    overlap = 0 if body is None else body.overlap_seconds
    record, secret = await parts.keys.rotate(id, who, version, overlap_seconds=overlap)
    response.headers["location"] = f"/v1/keys/{record.id}"
    tagged(request, response, record, live=True)
    return {"key": record, "secret": secret}


tokens_router = APIRouter(route_class=AdminRoute, tags=["tokens"])


@tokens_router.get("/v1/me", response_model=CallerView)
async def get_caller(request: Request) -> Caller:
    """Get your own name and role."""
    caller: Caller = request.state.caller
    return caller


@tokens_router.get("/v1/tokens", response_model=TokenPage)
async def list_tokens(parts: Parts) -> Page[TokenRecord]:
    """List all tokens, newest first, in one page."""
    return Page(await parts.access.list(), None)


@tokens_router.post("/v1/tokens", response_model=NewTokenView, status_code=HTTPStatus.CREATED)
async def create_token(parts: Parts, who: Who, body: NewToken) -> dict[str, Any]:
    """Create a token. The answer has its secret, which is never sent again."""
    record, secret = await parts.access.create(body.given(), who)
    return {"token": record, "secret": secret}


@tokens_router.delete("/v1/tokens/{id:part}", status_code=HTTPStatus.NO_CONTENT)
async def revoke_token(parts: Parts, who: Who, id: Name) -> None:  # noqa: A002 (tokens have ids)
    """Revoke a token; it is refused within a second."""
    await parts.access.revoke(id, who)
