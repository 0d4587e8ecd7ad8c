"""Changes, events, and what was used."""

from collections.abc import Mapping
from datetime import date, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query

from headgate.controlplane.changes import Kind, changes
from headgate.edge.admin.gate import Gate, Parts
from headgate.edge.admin.models.activity import (
    ChangePage,
    Decision,
    EventDetail,
    EventPage,
    Subject,
    UsagePage,
    ViolatorPage,
)
from headgate.edge.admin.models.shared import Day, Instant, Text
from headgate.edge.admin.pages import DEFAULT_LIMIT, After, Limit, Page, as_instant, as_name, as_number, page, place_of
from headgate.edge.admin.paths import Name

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
    found = await changes(parts.database, kind, name, place_of("changes", after, as_number), limit + 1)
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
    place = place_of("events", after, _place_of_event)
    # The page before says when the last day began, so that no page has a day of its own.
    since, before = (since, None) if place is None else (since or place[2], place[:2])
    since, until = parts.activity.span(since, until)
    found = await parts.activity.events(
        since, until, user=user, rule=rule, decision=decision, before=before, most=limit + 1
    )
    return page("events", found, limit, lambda row: (row["at"].isoformat(), row["id"], since.isoformat()))


@router.get("/v1/events/{id:part}", response_model=EventDetail)
async def get_event(parts: Parts, id: Name) -> Mapping[str, Any]:  # noqa: A002 (events have ids)
    """One recorded decision: what was asked, and the rule as it stood then."""
    event = await parts.activity.event(id)
    return {**event, "rule_then": await _rule_then(parts, event)}


@router.get("/v1/violators", response_model=ViolatorPage)
async def list_violators(
    parts: Parts,
    limit: Limit = DEFAULT_LIMIT,
    rule: Text = None,
    by: Annotated[
        Subject, Query(description="`anybody` is the user, the key where there is no user, else the address.")
    ] = "user",
    since: Instant = None,
    until: Instant = None,
) -> Page[Mapping[str, Any]]:
    """Who was denied most in the last day, or in up to 31 days (7 by anything but users): the worst first.

    There is one page.
    """
    return Page(await parts.activity.violators(since, until, rule=rule, by=by, most=limit), None)


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
    behind = place_of("usage", after, _place_of_usage)
    found = await parts.activity.usage(first, last, user=user, after=behind, most=limit + 1)
    return page("usage", found, limit, lambda row: (row["day"].isoformat(), row["user"], row["rule"]))


async def _rule_then(parts: Parts, event: Mapping[str, Any]) -> Mapping[str, Any] | None:
    if event["rule"] is None or event["snapshot"] is None:
        return None
    rules = (await parts.snapshots.get(event["snapshot"]))["rules"]
    return next((rule for rule in rules if rule["name"] == event["rule"]), None)


def _place_of_event(place: object) -> tuple[datetime, str, datetime]:
    match place:
        case [at, id_, since]:
            return as_instant(at), as_name(id_), as_instant(since)
    raise ValueError


def _place_of_usage(place: object) -> tuple[date, str, str]:
    match place:
        case [day, user, rule]:
            return date.fromisoformat(as_name(day)), as_name(user), as_name(rule)
    raise ValueError
