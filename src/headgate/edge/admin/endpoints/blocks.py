"""Blocks of users, API keys and networks."""

from datetime import datetime
from http import HTTPStatus

from fastapi import APIRouter, Request, Response
from pydantic import Field

from headgate.controlplane.blocks import BlockRecord
from headgate.edge.admin.etags import NOT_MODIFIED, IfMatch, tagged
from headgate.edge.admin.fields import LABEL, Input, Name, Output, Text, Time, example
from headgate.edge.admin.pages import DEFAULT_LIMIT, After, Limit, Page, as_id, page, position_of
from headgate.edge.admin.route import AdminRoute, Parts, Who


class BlockBody(Input):
    """Why, and until when."""

    model_config = example(reason="scraping", until="2026-12-31T00:00:00Z")

    reason: str | None = Field(default=None, min_length=1, max_length=1_000)
    until: Time | None = Field(default=None, description="When the block ends; without it, never.")


class NewBlock(BlockBody):
    """A new block of one user, one API key or one network."""

    model_config = example(network="203.0.113.0/24", reason="scraping", until="2026-12-31T00:00:00Z")

    user: str | None = LABEL
    api_key: str | None = Field(default=None, max_length=64, description="The key's id.")
    network: str | None = Field(default=None, max_length=64, description="An address, or a range in CIDR notation.")


class BlockView(Output):
    """A stored block."""

    model_config = example(
        id="0f8fad5b-d9cb-469f-a165-70867728950e",
        user=None,
        api_key=None,
        network="203.0.113.0/24",
        reason="scraping",
        until="2026-12-31T00:00:00Z",
        version=1,
        created_at="2026-01-31T12:00:00Z",
        created_by="token:ci",
    )

    id: str
    user: str | None
    api_key: str | None
    network: str | None
    reason: str | None
    until: datetime | None
    version: int
    created_at: datetime
    created_by: str


class BlockPage(Output):
    """Blocks by id."""

    items: list[BlockView]
    next: str | None


router = APIRouter(route_class=AdminRoute, tags=["blocks"])


@router.get("/v1/blocks", response_model=BlockPage)
async def list_blocks(
    parts: Parts, limit: Limit = DEFAULT_LIMIT, after: After = None, subject: Text = None
) -> Page[BlockRecord]:
    """List blocks by id; `subject` is a user, the id of a key, or an address."""
    found = await parts.blocks.list(after=position_of("blocks", after, as_id), most=limit + 1, subject=subject)
    return page("blocks", found, limit, lambda record: record.id)


@router.post("/v1/blocks", response_model=BlockView, status_code=HTTPStatus.CREATED)
async def create_block(parts: Parts, who: Who, request: Request, response: Response, body: NewBlock) -> BlockRecord:
    """Block a user, an API key or a network, permanently or until a given time."""
    record = await parts.blocks.create(body.given(), who)
    response.headers["location"] = f"/v1/blocks/{record.id}"
    tagged(request, response, record)
    return record


@router.get("/v1/blocks/{id:part}", response_model=BlockView, responses=NOT_MODIFIED)
async def get_block(parts: Parts, request: Request, response: Response, id: Name) -> BlockRecord:  # noqa: A002 (blocks have ids)
    """Get one block."""
    record = await parts.blocks.get(id)
    tagged(request, response, record)
    return record


@router.put("/v1/blocks/{id:part}", response_model=BlockView)
async def replace_block(
    parts: Parts,
    who: Who,
    request: Request,
    response: Response,
    id: Name,  # noqa: A002 (blocks have ids)
    body: BlockBody,
    expected: IfMatch,
) -> BlockRecord:
    """Replace the reason and the end of a block."""
    version = await expected.version(lambda: parts.blocks.get(id))
    record = await parts.blocks.replace(id, body.given(), who, version)
    tagged(request, response, record)
    return record


@router.delete("/v1/blocks/{id:part}", status_code=HTTPStatus.NO_CONTENT)
async def delete_block(parts: Parts, who: Who, id: Name, expected: IfMatch) -> None:  # noqa: A002 (blocks have ids)
    """End a block now."""
    await parts.blocks.delete(id, who, await expected.version(lambda: parts.blocks.get(id)))
