"""One user's story: what they used, what they were told, what holds for them, and what was changed."""

from typing import Any, Final

from fastapi import APIRouter

from headgate.controlplane.activity import LONGEST_SPAN
from headgate.controlplane.changes import Kind, changes
from headgate.dataplane import quota
from headgate.edge.admin.endpoints.deciding import user_on_record
from headgate.edge.admin.gate import Gate, Parts
from headgate.edge.admin.models.analytics import Story
from headgate.edge.admin.paths import Name

router = APIRouter(route_class=Gate, tags=["activity"])

_DAYS: Final = 30
_NEWEST: Final = 20
_MOST_LIMITS: Final = 50
"""The fullest of them; `/v1/users/{id}/quota` has all."""


@router.get("/v1/users/{id:part}/story", response_model=Story)
async def get_story(parts: Parts, id: Name) -> dict[str, Any]:  # noqa: A002 (users have ids)
    """A user's last 30 days, newest events and changes, blocks, and the limits that they have used most of.

    Users who are not on record have a story too.
    """
    user = await user_on_record(parts, id)
    _, until = parts.activity.span(None, None)
    entries = await quota.quota(parts.limiter, user)
    fullest = sorted(entries, key=_left)[:_MOST_LIMITS]
    return {
        "user": id,
        "tier": user.tier,
        "days": await parts.activity.days_of(id, _DAYS),
        "events": await parts.activity.events(until - LONGEST_SPAN, until, user=id, most=_NEWEST),
        "limits": [entry.as_dict() for entry in fullest],
        "blocks": await parts.blocks.list(subject=id, most=_NEWEST),
        "changes": await changes(parts.database, Kind.USER, id, None, _NEWEST),
    }


def _left(entry: quota.QuotaEntry) -> float:
    """The share of a limit that is left; what has no counter to look at comes last."""
    if entry.hit is None or entry.decision is None:
        return 2.0
    return entry.decision.remaining / entry.hit.meter.capacity
