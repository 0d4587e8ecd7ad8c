"""Blocks."""

from http import HTTPStatus

from fastapi import APIRouter, Request, Response

from headgate.controlplane.blocks import BlockRecord
from headgate.edge.admin.gate import Gate, Parts, Who
from headgate.edge.admin.models.accounts import BlockBody, BlockPage, BlockView, NewBlock
from headgate.edge.admin.models.shared import Text
from headgate.edge.admin.pages import DEFAULT_LIMIT, After, Limit, Page, page, place_of
from headgate.edge.admin.paths import Name
from headgate.edge.admin.tags import NOT_MODIFIED, IfMatch, tagged

router = APIRouter(route_class=Gate, tags=["blocks"])


@router.get("/v1/blocks", response_model=BlockPage)
async def list_blocks(
    parts: Parts, limit: Limit = DEFAULT_LIMIT, after: After = None, subject: Text = None
) -> Page[BlockRecord]:
    """Blocks by id; `subject` is a user, the id of a key, or an address."""
    found = await parts.blocks.list(after=place_of("blocks", after), most=limit + 1, subject=subject)
    return page("blocks", found, limit, lambda record: record.id)


@router.post("/v1/blocks", response_model=BlockView, status_code=HTTPStatus.CREATED)
async def create_block(parts: Parts, who: Who, request: Request, response: Response, body: NewBlock) -> BlockRecord:
    """Refuse a user, an API key or a network, for good or until a time."""
    record = await parts.blocks.create(body.given(), who)
    response.headers["location"] = f"/v1/blocks/{record.id}"
    tagged(request, response, record)
    return record


@router.get("/v1/blocks/{id:part}", response_model=BlockView, responses=NOT_MODIFIED)
async def get_block(parts: Parts, request: Request, response: Response, id: Name) -> BlockRecord:  # noqa: A002 (blocks have ids)
    """One block."""
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
    """Change reason and end to what the body says."""
    version = await expected.version(lambda: parts.blocks.get(id))
    record = await parts.blocks.replace(id, body.given(), who, version)
    tagged(request, response, record)
    return record


@router.delete("/v1/blocks/{id:part}", status_code=HTTPStatus.NO_CONTENT)
async def delete_block(parts: Parts, who: Who, id: Name, expected: IfMatch) -> None:  # noqa: A002 (blocks have ids)
    """End a block now."""
    await parts.blocks.delete(id, who, await expected.version(lambda: parts.blocks.get(id)))
