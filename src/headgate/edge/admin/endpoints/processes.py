"""Whether this process is alive and ready, its metrics, the API's description, and the other processes."""

import asyncio
from collections.abc import Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Any, Literal

from fastapi import APIRouter, Request, Response
from pydantic import Field
from starlette.responses import JSONResponse

from headgate.controlplane.changes import changes
from headgate.controlplane.processes import ProcessRecord
from headgate.core.metrics import CONTENT_TYPE
from headgate.edge.admin.fields import Output, example
from headgate.edge.admin.pages import Page
from headgate.edge.admin.route import AdminRoute, Parts
from headgate.errors import DatabaseError, NotFound


class ProcessView(Output):
    """A process, as it last reported."""

    model_config = example(
        host="web-1",
        pid=4711,
        role="service",
        region=None,
        started="2026-01-31T12:00:00Z",
        seen="2026-01-31T12:30:00Z",
        rules=42,
        blocks=40,
        rules_from="feed",
        following="feed",
    )

    host: str
    pid: int
    role: Literal["service", "application"] = Field(
        description="`application`: a program with the library or middleware."
    )
    region: str | None
    started: datetime
    seen: datetime
    rules: int = Field(description="The number of its active rules; 0 if no rules were published.")
    blocks: int = Field(description="The number of its active blocks.")
    rules_from: Literal["feed", "database", "saved", "file", "none", "own"] = Field(
        description="Where its rules came from; `own`: the application's own rules."
    )
    following: Literal["feed", "database", "none"] = Field(description="Where it reads changes from now.")


class ProcessPage(Output):
    """Processes by host and process id."""

    items: list[ProcessView]
    next: str | None


class JobView(Output):
    """A job that the service runs by itself."""

    model_config = example(
        name="backup",
        began="2026-01-31T12:00:00Z",
        ended="2026-01-31T12:00:09Z",
        outcome="done",
        detail="",
        host="web-1",
        failures=0,
        next_run="2026-02-01T12:00:00Z",
    )

    name: Literal["archive", "backup", "base_backup"]
    began: datetime
    ended: datetime | None
    outcome: Literal["running", "done", "failed"]
    detail: str = Field(description="What went wrong, if something did.")
    host: str
    failures: int = Field(description="How many runs have failed, in all.")
    next_run: datetime


class JobPage(Output):
    """Jobs by name, in one page."""

    items: list[JobView]
    next: str | None


router = APIRouter(route_class=AdminRoute, tags=["processes"])


@router.get("/v1/processes", response_model=ProcessPage)
async def list_processes(parts: Parts) -> Page[ProcessRecord]:
    """List the processes that reported in the last 10 seconds, with their rules and blocks, in one page."""
    return Page(await parts.processes.list(), None)


@router.get("/v1/jobs", response_model=JobPage)
async def list_jobs(parts: Parts) -> Page[Mapping[str, Any]]:
    """List the last run of each scheduled archive, backup and base backup; none is listed that never ran."""
    return Page(await parts.activity.jobs(), None)


health_router = APIRouter(tags=["health"])


@health_router.get("/livez")
async def is_alive() -> dict[str, str]:
    """The process is alive."""
    return {"status": "alive"}


@health_router.get("/readyz", responses={503: {"description": "The database is unavailable.", "model": dict[str, Any]}})
async def is_ready(parts: Parts, response: Response) -> dict[str, Any]:
    """Whether the database is available, and which snapshot is active."""
    state: dict[str, Any] = {"status": "ready", "snapshot": parts.limiter.snapshots.current.number}
    try:
        await changes(parts.database, most=1)
    except DatabaseError:
        response.status_code = HTTPStatus.SERVICE_UNAVAILABLE
        state["status"] = "the database does not answer"
    return state


@health_router.get("/metrics", include_in_schema=False)
async def get_metrics(parts: Parts) -> Response:
    """Metrics of all processes of the service, in the Prometheus format."""
    if parts.metrics is None:
        msg = "this process has no metrics; read /metrics of `headgate serve`"
        raise NotFound(msg)
    return Response(parts.metrics(), media_type=CONTENT_TYPE)


@health_router.get("/openapi.json", include_in_schema=False)
async def get_description(request: Request) -> Response:
    """The OpenAPI description, built once in a thread so that checks do not wait."""
    state = request.app.state
    if not hasattr(state, "description"):
        state.description = await asyncio.to_thread(lambda: JSONResponse(request.app.openapi()).body)
    return Response(state.description, media_type="application/json")
