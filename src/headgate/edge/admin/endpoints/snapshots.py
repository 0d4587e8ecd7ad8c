"""Published rule sets, and the way back to one."""

from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Response

from headgate.controlplane.publishing import Published
from headgate.controlplane.snapshot_history import SnapshotRecord
from headgate.edge.admin.endpoints.rule_set import large
from headgate.edge.admin.gate import Gate, Parts, Who
from headgate.edge.admin.models.rule_sets import CurrentSnapshot, PublishedView, SnapshotPage
from headgate.edge.admin.pages import DEFAULT_LIMIT, After, Limit, Page, page, place_of
from headgate.edge.admin.paths import Number

router = APIRouter(route_class=Gate, tags=["snapshots"])


@router.get("/v1/snapshot", response_model=CurrentSnapshot)
async def get_current_snapshot(parts: Parts) -> dict[str, Any]:
    """What was published last, and what this process runs on."""
    running = parts.limiter.snapshots.current
    return {
        "current": await parts.snapshots.current(),
        "running": {"number": running.number, "rules": len(running.rule_set.rules)},
    }


@router.post("/v1/snapshot/publish", response_model=PublishedView, status_code=HTTPStatus.CREATED)
async def publish_tables(parts: Parts, who: Who) -> Published:
    """Put in force what the tables say, where somebody has written into them by hand."""
    return await parts.snapshots.publish(who)


@router.get("/v1/snapshots", response_model=SnapshotPage)
async def list_snapshots(parts: Parts, limit: Limit = DEFAULT_LIMIT, after: After = None) -> Page[SnapshotRecord]:
    """Published rule sets, the newest first."""
    found = await parts.snapshots.list(limit + 1, place_of("snapshots", after))
    return page("snapshots", found, limit, lambda record: record.number)


@router.get("/v1/snapshots/{number}", response_model=dict[str, Any])
async def get_snapshot(parts: Parts, number: Number) -> Response:
    """The rules and tiers of a snapshot."""
    return await large(await parts.snapshots.get(number))


@router.post("/v1/snapshots/{number}/rollback", response_model=dict[str, Any])
async def roll_back_to_snapshot(parts: Parts, who: Who, number: Number) -> Response:
    """Make all rules and tiers what they were then; answers what has changed."""
    return await large((await parts.snapshots.rollback(number, who)).as_dict())
