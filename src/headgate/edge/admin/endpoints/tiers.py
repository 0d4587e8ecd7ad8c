"""Tiers."""

from http import HTTPStatus
from urllib.parse import quote

from fastapi import APIRouter, Request, Response

from headgate.controlplane.tiers import TierRecord
from headgate.edge.admin.gate import Gate, Parts, Who
from headgate.edge.admin.models.accounts import NewTier, TierBody, TierPage, TierView
from headgate.edge.admin.pages import DEFAULT_LIMIT, After, Limit, Page, page, place_of
from headgate.edge.admin.paths import Name
from headgate.edge.admin.tags import NOT_MODIFIED, IfMatch, tagged

router = APIRouter(route_class=Gate, tags=["tiers"])


@router.get("/v1/tiers", response_model=TierPage)
async def list_tiers(parts: Parts, limit: Limit = DEFAULT_LIMIT, after: After = None) -> Page[TierRecord]:
    """Tiers by name."""
    behind = place_of("tiers", after) or ""
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
