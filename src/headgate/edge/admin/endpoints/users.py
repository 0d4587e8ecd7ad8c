"""Users, their overrides and their quota."""

from http import HTTPStatus
from urllib.parse import quote

from fastapi import APIRouter, Request, Response

from headgate.controlplane.users import UserRecord
from headgate.edge.admin.gate import Gate, Parts, Who
from headgate.edge.admin.models.accounts import NewUser, OverrideBody, UserBody, UserPage, UserView
from headgate.edge.admin.models.shared import Text
from headgate.edge.admin.pages import DEFAULT_LIMIT, After, Limit, Page, page, place_of
from headgate.edge.admin.paths import Name
from headgate.edge.admin.tags import NOT_MODIFIED, IfMatch, tagged

router = APIRouter(route_class=Gate, tags=["users"])


@router.get("/v1/users", response_model=UserPage)
async def list_users(
    parts: Parts, limit: Limit = DEFAULT_LIMIT, after: After = None, tier: Text = None
) -> Page[UserRecord]:
    """Users by id."""
    found = await parts.users.list(tier=tier, after=place_of("users", after), most=limit + 1)
    return page("users", found, limit, lambda record: record.id)


@router.post("/v1/users", response_model=UserView, status_code=HTTPStatus.CREATED)
async def create_user(parts: Parts, who: Who, request: Request, response: Response, body: NewUser) -> UserRecord:
    """A new user."""
    record = await parts.users.create(body.given(), who)
    response.headers["location"] = f"/v1/users/{quote(record.id, safe='')}"
    tagged(request, response, record, live=True)
    return record


@router.get("/v1/users/{id:part}", response_model=UserView, responses=NOT_MODIFIED)
async def get_user(parts: Parts, request: Request, response: Response, id: Name) -> UserRecord:  # noqa: A002 (users have ids)
    """One user."""
    record = await parts.users.get(id)
    tagged(request, response, record, live=True)
    return record


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
    """Make a user what the body says, with no tier and no overrides where it says nothing."""
    version = await expected.version(lambda: parts.users.get(id))
    record = await parts.users.replace(id, body.given(), who, version)
    tagged(request, response, record, live=True)
    return record


@router.delete("/v1/users/{id:part}", status_code=HTTPStatus.NO_CONTENT)
async def delete_user(parts: Parts, who: Who, id: Name, expected: IfMatch) -> None:  # noqa: A002 (users have ids)
    """Take a user away, with overrides and API keys."""
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
    """Give a user limits in place of a rule's own."""
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
    """Let the rule's own limits hold again for a user."""
    version = await expected.version(lambda: parts.users.get(id))
    record = await parts.users.remove_override(id, rule, who, version)
    tagged(request, response, record, live=True)
    return record
