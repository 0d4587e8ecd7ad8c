"""What needs no token: whether this process is alive and ready, its metrics, and the description of the API."""

import asyncio
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.responses import JSONResponse

from headgate.controlplane.changes import changes
from headgate.core.exposition import CONTENT_TYPE
from headgate.edge.admin.gate import Parts
from headgate.errors import DatabaseError, NotFound

router = APIRouter(tags=["health"])


@router.get("/livez")
async def is_alive() -> dict[str, str]:
    """It answers, so it is alive."""
    return {"status": "alive"}


@router.get("/readyz", responses={503: {"description": "The database does not answer.", "model": dict[str, Any]}})
async def is_ready(parts: Parts, response: Response) -> dict[str, Any]:
    """Whether the database answers, and what this process runs on."""
    state: dict[str, Any] = {"status": "ready", "snapshot": parts.limiter.snapshots.current.number}
    try:
        await changes(parts.database, most=1)
    except DatabaseError:
        response.status_code = HTTPStatus.SERVICE_UNAVAILABLE
        state["status"] = "the database does not answer"
    return state


@router.get("/metrics", include_in_schema=False)
async def get_metrics(parts: Parts) -> Response:
    """Metrics of all processes of the service, as Prometheus reads them."""
    if parts.metrics is None:
        msg = "there are no metrics without a service; ask the admin API of `headgate serve`"
        raise NotFound(msg)
    return Response(parts.metrics(), media_type=CONTENT_TYPE)


@router.get("/openapi.json", include_in_schema=False)
async def get_description(request: Request) -> Response:
    """The OpenAPI description; putting it together takes a while, in which decisions have better things to do."""
    state = request.app.state
    if not hasattr(state, "description"):
        state.description = await asyncio.to_thread(lambda: JSONResponse(request.app.openapi()).body)
    return Response(state.description, media_type="application/json")
