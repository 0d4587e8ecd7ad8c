"""Tiers."""

from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Final
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from pydantic import Field

from headgate.controlplane.tiers import TierRecord
from headgate.edge.admin.etags import NOT_MODIFIED, IfMatch, tagged
from headgate.edge.admin.fields import LABEL, Input, LimitLists, Name, NamedLimits, Output, example
from headgate.edge.admin.gate import Gate, Parts, Who
from headgate.edge.admin.pages import DEFAULT_LIMIT, After, Limit, Page, as_name, page, place_of

_DISPLAY: Final = "Free of charge"


class TierBody(Input):
    """What a tier is."""

    model_config = example(display_name=_DISPLAY, price=0, limits={"search": "100/hour", "api": "unlimited"})

    display_name: str | None = LABEL
    price: Annotated[float, Field(ge=0, le=1_000_000_000_000, allow_inf_nan=False)] | None = None
    limits: NamedLimits | None = Field(default=None, description="What rules call `tier:NAME`.")
    is_default: bool | None = Field(default=None, description="Whoever names no tier is on this one.")


class NewTier(TierBody):
    """A tier to be."""

    model_config = example(name="free", display_name=_DISPLAY, price=0, limits={"search": "100/hour"}, is_default=True)

    name: str = Field(min_length=1, max_length=64)


class TierView(Output):
    """A tier as it is kept."""

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
    """Tiers in the order in which they were made."""

    items: list[TierView]
    next: str | None


router = APIRouter(route_class=Gate, tags=["tiers"])


@router.get("/v1/tiers", response_model=TierPage)
async def list_tiers(parts: Parts, limit: Limit = DEFAULT_LIMIT, after: After = None) -> Page[TierRecord]:
    """Tiers by name."""
    behind = place_of("tiers", after, as_name) or ""
    found = sorted(await parts.tiers.list(), key=lambda record: record.name)
    return page("tiers", [record for record in found if record.name > behind], limit, lambda record: record.name)


@router.post("/v1/tiers", response_model=TierView, status_code=HTTPStatus.CREATED)
async def create_tier(parts: Parts, who: Who, request: Request, response: Response, body: NewTier) -> TierRecord:
    """A new tier. The first is the default."""
    record = await parts.tiers.create(body.given(), who)
    response.headers["location"] = f"/v1/tiers/{quote(record.name, safe='')}"
    tagged(request, response, record)
    return record


@router.get("/v1/tiers/{name:part}", response_model=TierView, responses=NOT_MODIFIED)
async def get_tier(parts: Parts, request: Request, response: Response, name: Name) -> TierRecord:
    """One tier."""
    record = await parts.tiers.get(name)
    tagged(request, response, record)
    return record


@router.put("/v1/tiers/{name:part}", response_model=TierView)
async def replace_tier(
    parts: Parts, who: Who, request: Request, response: Response, name: Name, body: TierBody, expected: IfMatch
) -> TierRecord:
    """Make a tier what the body says; what it leaves out is as in a new one, except that a default stays one."""
    version = await expected.version(lambda: parts.tiers.get(name))
    record = await parts.tiers.replace(name, body.given(), who, version)
    tagged(request, response, record)
    return record


@router.delete("/v1/tiers/{name:part}", status_code=HTTPStatus.NO_CONTENT)
async def delete_tier(parts: Parts, who: Who, name: Name, expected: IfMatch) -> None:
    """Take a tier away that nobody needs."""
    await parts.tiers.delete(name, who, await expected.version(lambda: parts.tiers.get(name)))
