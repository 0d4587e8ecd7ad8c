"""Changes, events, and what was used."""

from collections.abc import Mapping
from datetime import date, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query

from headgate.controlplane.changes import Kind, changes
from headgate.edge.admin.gate import Gate, Parts
from headgate.edge.admin.models.activity import ChangePage, Decision, EventPage, UsagePage, ViolatorPage
from headgate.edge.admin.models.shared import Day, Instant, Text
from headgate.edge.admin.pages import DEFAULT_LIMIT, After, Limit, Page, page, place_of

router = APIRouter(route_class=Gate, tags=["activity"])


@router.get("/v1/changes", response_model=ChangePage)
async def list_changes(
    parts: Parts,
    limit: Limit = DEFAULT_LIMIT,
    after: After = None,
    kind: Annotated[Kind | None, Query()] = None,
    name: Text = None,
) -> Page[Mapping[str, Any]]:
    """Who changed what, when: the newest first."""
    found = await changes(parts.database, kind, name, place_of("changes", after), limit + 1)
    return page("changes", found, limit, lambda row: row["id"])


@router.get("/v1/events", response_model=EventPage)
async def list_events(
    parts: Parts,
    limit: Limit = DEFAULT_LIMIT,
    after: After = None,
    user: Text = None,
    rule: Text = None,
    decision: Annotated[Decision | None, Query()] = None,
    since: Instant = None,
    until: Instant = None,
) -> Page[Mapping[str, Any]]:
    """Recorded decisions of the last day, or of up to 31 days: the newest first."""
    place = place_of("events", after)
    before = None
    if place is not None:
        # The page before says when the last day began, so that no page has a day of its own.
        since = since or datetime.fromisoformat(place[2])
        before = datetime.fromisoformat(place[0]), place[1]
    since, until = parts.activity.span(since, until)
    found = await parts.activity.events(
        since, until, user=user, rule=rule, decision=decision, before=before, most=limit + 1
    )
    return page("events", found, limit, lambda row: (row["at"].isoformat(), row["id"], since.isoformat()))


@router.get("/v1/violators", response_model=ViolatorPage)
async def list_violators(
    parts: Parts, limit: Limit = DEFAULT_LIMIT, rule: Text = None, since: Instant = None, until: Instant = None
) -> Page[Mapping[str, Any]]:
    """Who was denied most in the last day, or in up to 31 days: the worst first. There is one page."""
    span = parts.activity.span(since, until)
    return Page(await parts.activity.violators(*span, rule=rule, most=limit), None)


@router.get("/v1/usage", response_model=UsagePage)
async def list_usage(
    parts: Parts,
    first: Annotated[Day, Query(alias="from", description="The first day; the one before `to` without it.")] = None,
    last: Annotated[Day, Query(alias="to", description="The last day; today (UTC) without it.")] = None,
    limit: Limit = DEFAULT_LIMIT,
    after: After = None,
    user: Text = None,
) -> Page[Mapping[str, Any]]:
    """What was used each day, for up to 366 days: by day, user and rule."""
    place = place_of("usage", after)
    behind = None if place is None else (date.fromisoformat(place[0]), place[1], place[2])
    found = await parts.activity.usage(first, last, user=user, after=behind, most=limit + 1)
    return page("usage", found, limit, lambda row: (row["day"].isoformat(), row["user"], row["rule"]))
