"""Whether this process is alive and ready."""

from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Response

from headgate.controlplane.changes import changes
from headgate.edge.admin.gate import Parts
from headgate.errors import DatabaseError

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
