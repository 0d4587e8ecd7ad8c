"""Users and their overrides."""

from dataclasses import fields
from datetime import datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from pydantic import Field

from headgate.controlplane.time_spans import time_of
from headgate.controlplane.users import UserRecord
from headgate.edge.admin.endpoints.decisions import limits_in_use, user_on_record
from headgate.edge.admin.etags import NOT_MODIFIED, IfMatch, tagged
from headgate.edge.admin.fields import LABEL, Input, LimitLists, Limits, Name, NamedLimits, Output, Text, example
from headgate.edge.admin.pages import DEFAULT_LIMIT, After, Limit, Page, as_name, page, position_of
from headgate.edge.admin.route import AdminRoute, Parts, Who
from headgate.errors import NoRules, StoreError


class UserBody(Input):
    """The content of a user."""

    model_config = example(tier="premium", overrides={"search": "5/minute"})

    tier: str | None = LABEL
    overrides: NamedLimits | None = Field(default=None, description="Limits that replace a rule's own, by rule.")


class NewUser(UserBody):
    """A new user."""

    model_config = example(id="u1", tier="premium", overrides={"search": "5/minute"})

    id: str = Field(min_length=1, max_length=255)


class OverrideBody(Input):
    """Limits that replace a rule's own."""

    model_config = example(limits="5/minute")

    limits: Limits


class UserView(Output):
    """A stored user."""

    model_config = example(
        id="u1",
        tier="premium",
        tier_since="2026-01-31T12:00:00Z",
        overrides={"search": ["5/minute"]},
        dormant_overrides={},
        requests_today=12,
        requests_month=340,
        last_request="2026-02-01T09:30:00Z",
        times_exceeded=2,
        quota_reset=None,
        version=4,
        created_at="2026-01-31T12:00:00Z",
        updated_at="2026-01-31T12:00:00Z",
    )

    id: str
    tier: str | None
    tier_since: datetime | None
    overrides: LimitLists
    dormant_overrides: LimitLists = Field(description="Those of rules that are not active; active with the rule again.")
    requests_today: int
    requests_month: int
    last_request: datetime | None
    times_exceeded: int
    quota_reset: datetime | None = Field(description="When an operator last reset the quota.")
    version: int
    created_at: datetime
    updated_at: datetime


class UserDetail(UserView):
    """A stored user, and when the quota resets."""

    quota_reset_at: datetime | None = Field(
        description="When all limits that count this user alone are whole again, if no more requests come; null if they"
        " are whole now, or the rules or counters cannot be read."
    )


class UserPage(Output):
    """Users by id."""

    items: list[UserView]
    next: str | None


router = APIRouter(route_class=AdminRoute, tags=["users"])


@router.get("/v1/users", response_model=UserPage)
async def list_users(
    parts: Parts, limit: Limit = DEFAULT_LIMIT, after: After = None, tier: Text = None, prefix: Text = None
) -> Page[UserRecord]:
    """List users by id; `prefix` is how their ids begin."""
    position = position_of("users", after, as_name)
    found = await parts.users.list(tier=tier, prefix=prefix, after=position, most=limit + 1)
    return page("users", found, limit, lambda record: record.id)


@router.post("/v1/users", response_model=UserView, status_code=HTTPStatus.CREATED)
async def create_user(parts: Parts, who: Who, request: Request, response: Response, body: NewUser) -> UserRecord:
    """Create a user."""
    record = await parts.users.create(body.given(), who)
    response.headers["location"] = f"/v1/users/{quote(record.id, safe='')}"
    tagged(request, response, record, live=True)
    return record


@router.get("/v1/users/{id:part}", response_model=UserDetail, responses=NOT_MODIFIED)
async def get_user(parts: Parts, request: Request, response: Response, id: Name) -> dict[str, Any]:  # noqa: A002 (users have ids)
    """Get one user."""
    record = await parts.users.get(id)
    tagged(request, response, record, live=True)
    members = {each.name: getattr(record, each.name) for each in fields(record)}
    return members | {"quota_reset_at": await _quota_reset_at(parts, id)}


async def _quota_reset_at(parts: Parts, user: str) -> datetime | None:
    try:
        entries, _ = await limits_in_use(parts, await user_on_record(parts, user))
    except (NoRules, StoreError):  # the record itself can be read all the same
        return None
    counted = (entry.decision for entry in entries if entry.is_users_own and entry.decision is not None)
    resets = [each.at + each.reset_after for each in counted if each.reset_after]
    return time_of(max(resets)) if resets else None


@router.put("/v1/users/{id:part}", response_model=UserView)
async def replace_user(
    parts: Parts,
    who: Who,
    request: Request,
    response: Response,
    id: Name,  # noqa: A002 (users have ids)
    body: UserBody,
    expected: IfMatch,
) -> UserRecord:
    """Replace a user. Without a tier or overrides in the body, the user has none."""
    version = await expected.version(lambda: parts.users.get(id))
    record = await parts.users.replace(id, body.given(), who, version)
    tagged(request, response, record, live=True)
    return record


@router.delete("/v1/users/{id:part}", status_code=HTTPStatus.NO_CONTENT)
async def delete_user(parts: Parts, who: Who, id: Name, expected: IfMatch) -> None:  # noqa: A002 (users have ids)
    """Delete a user, with overrides and API keys."""
    await parts.users.delete(id, who, await expected.version(lambda: parts.users.get(id)))


@router.put("/v1/users/{id:part}/overrides/{rule:part}", response_model=UserView)
async def set_override(
    parts: Parts,
    who: Who,
    request: Request,
    response: Response,
    id: Name,  # noqa: A002 (users have ids)
    rule: Name,
    body: OverrideBody,
    expected: IfMatch,
) -> UserRecord:
    """Set a user's own limits for one rule."""
    version = await expected.version(lambda: parts.users.get(id))
    record = await parts.users.set_override(id, rule, body.limits, who, version)
    tagged(request, response, record, live=True)
    return record


@router.delete("/v1/users/{id:part}/overrides/{rule:part}", response_model=UserView)
async def remove_override(
    parts: Parts,
    who: Who,
    request: Request,
    response: Response,
    id: Name,  # noqa: A002 (users have ids)
    rule: Name,
    expected: IfMatch,
) -> UserRecord:
    """Remove a user's own limits for one rule; the rule's limits apply again."""
    version = await expected.version(lambda: parts.users.get(id))
    record = await parts.users.remove_override(id, rule, who, version)
    tagged(request, response, record, live=True)
    return record
