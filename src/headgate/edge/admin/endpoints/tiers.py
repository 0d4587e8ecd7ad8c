"""Tiers."""

from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Final
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from pydantic import Field

from headgate.controlplane.tiers import TierRecord, TierUse
from headgate.edge.admin.etags import NOT_MODIFIED, IfMatch, tagged
from headgate.edge.admin.fields import LABEL, Input, LimitLists, Name, NamedLimits, Output, example
from headgate.edge.admin.pages import DEFAULT_LIMIT, After, Limit, Page, as_name, page, position_of
from headgate.edge.admin.route import AdminRoute, Parts, Who

_DISPLAY: Final = "Free of charge"


class TierBody(Input):
    """The content of a tier."""

    model_config = example(display_name=_DISPLAY, price=0, limits={"search": "100/hour", "api": "unlimited"})

    display_name: str | None = LABEL
    price: Annotated[float, Field(ge=0, le=1_000_000_000_000, allow_inf_nan=False)] | None = None
    limits: NamedLimits | None = Field(default=None, description="Limits that rules refer to as `tier:NAME`.")
    is_default: bool | None = Field(default=None, description="Users without a tier get this one.")


class NewTier(TierBody):
    """A new tier."""

    model_config = example(name="free", display_name=_DISPLAY, price=0, limits={"search": "100/hour"}, is_default=True)

    name: str = Field(min_length=1, max_length=64)


class TierView(Output):
    """A stored tier."""

    model_config = example(
        name="free",
        display_name=_DISPLAY,
        price=0,
        limits={"search": ["100/hour"]},
        is_default=True,
        version=1,
        created_at="2026-01-31T12:00:00Z",
        updated_at="2026-01-31T12:00:00Z",
    )

    name: str
    display_name: str | None
    price: float
    limits: LimitLists
    is_default: bool
    version: int
    created_at: datetime
    updated_at: datetime


class TierPage(Output):
    """Tiers by name."""

    items: list[TierView]
    next: str | None


class TierRuleView(Output):
    """A rule that uses a tier."""

    rule: str
    matches_tier: bool = Field(description="Whether the rule is only for some tiers, this one among them.")
    limits: list[str] = Field(description="The names of the tier's limits that the rule takes.")


class TierUseView(Output):
    """Who is on a tier, and which rules use it."""

    model_config = example(
        users=1200,
        api_keys=3,
        rules=[{"rule": "search", "matches_tier": False, "limits": ["search"]}],
        has_more_rules=False,
    )

    users: int = Field(description="Of the default tier with those that have no tier.")
    api_keys: int = Field(description="Keys with a tier of their own; the others have that of their user.")
    rules: list[TierRuleView] = Field(description="By name, 100 at most.")
    has_more_rules: bool


router = APIRouter(route_class=AdminRoute, tags=["tiers"])


@router.get("/v1/tiers", response_model=TierPage)
async def list_tiers(parts: Parts, limit: Limit = DEFAULT_LIMIT, after: After = None) -> Page[TierRecord]:
    """List tiers by name."""
    behind = position_of("tiers", after, as_name) or ""
    found = sorted(await parts.tiers.list(), key=lambda record: record.name)
    return page("tiers", [record for record in found if record.name > behind], limit, lambda record: record.name)


@router.post("/v1/tiers", response_model=TierView, status_code=HTTPStatus.CREATED)
async def create_tier(parts: Parts, who: Who, request: Request, response: Response, body: NewTier) -> TierRecord:
    """Create a tier. The first one is the default."""
    record = await parts.tiers.create(body.given(), who)
    response.headers["location"] = f"/v1/tiers/{quote(record.name, safe='')}"
    tagged(request, response, record)
    return record


@router.get("/v1/tiers/{name:part}", response_model=TierView, responses=NOT_MODIFIED)
async def get_tier(parts: Parts, request: Request, response: Response, name: Name) -> TierRecord:
    """Get one tier."""
    record = await parts.tiers.get(name)
    tagged(request, response, record)
    return record


@router.get("/v1/tiers/{name:part}/use", response_model=TierUseView)
async def get_tier_use(parts: Parts, name: Name) -> TierUse:
    """Get how many users and API keys are on a tier, and which published rules name it or one of its limits."""
    return await parts.tiers.use(name)


@router.put("/v1/tiers/{name:part}", response_model=TierView)
async def replace_tier(
    parts: Parts, who: Who, request: Request, response: Response, name: Name, body: TierBody, expected: IfMatch
) -> TierRecord:
    """Replace a tier. A member that the body omits gets its default value; a default tier stays the default."""
    version = await expected.version(lambda: parts.tiers.get(name))
    record = await parts.tiers.replace(name, body.given(), who, version)
    tagged(request, response, record)
    return record


@router.delete("/v1/tiers/{name:part}", status_code=HTTPStatus.NO_CONTENT)
async def delete_tier(parts: Parts, who: Who, name: Name, expected: IfMatch) -> None:
    """Delete a tier that no rule and no user refers to."""
    await parts.tiers.delete(name, who, await expected.version(lambda: parts.tiers.get(name)))
