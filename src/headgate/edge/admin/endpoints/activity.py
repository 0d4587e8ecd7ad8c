"""Changes, recorded decisions, violators, and the story of one user."""

from collections.abc import Mapping
from datetime import date, datetime
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query
from pydantic import Field

from headgate.controlplane.activity import MAX_SPAN
from headgate.controlplane.changes import Kind, changes
from headgate.dataplane import inspection
from headgate.edge.admin.endpoints.blocks import BlockView
from headgate.edge.admin.endpoints.decisions import QuotaEntry, limits_in_use, user_on_record
from headgate.edge.admin.fields import Instant, Name, Output, Text, example
from headgate.edge.admin.pages import (
    DEFAULT_LIMIT,
    After,
    Limit,
    Page,
    as_instant,
    as_name,
    as_number,
    page,
    position_of,
)
from headgate.edge.admin.route import AdminRoute, Parts

Decision = Literal["allowed", "denied", "throttled", "blocked", "shadow"]
Subject = Literal["user", "api_key", "ip", "anybody"]


class ChangeView(Output):
    """One change: who made it, and when."""

    model_config = example(
        id=17,
        at="2026-01-31T12:00:00Z",
        who="token:ci",
        kind="tier",
        name="free",
        verb="changed",
        before={"price": 0},
        after={"price": 1},
    )

    id: int
    at: datetime
    who: str
    kind: Kind
    name: str
    verb: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None


class ChangePage(Output):
    """Changes, newest first."""

    items: list[ChangeView]
    next: str | None


class EventView(Output):
    """One recorded decision."""

    model_config = example(
        at="2026-01-31T12:00:00Z",
        id="d1",
        user="u1",
        endpoint="/api/search",
        rule="search",
        decision="denied",
        status=429,
        stands_for=1,
    )

    at: datetime
    id: str
    user: str | None
    tenant: str | None
    api_key: str | None
    ip: str | None
    tier: str | None
    method: str | None
    endpoint: str | None
    rule: str | None
    decision: Decision
    source: str | None
    count: int | None
    limit: int | None
    cost: int | None
    status: int | None
    retry_after: float | None
    region: str | None
    server: str | None
    latency: float | None = Field(description="In seconds.")
    stands_for: int = Field(
        description="How many decisions the event stands for: repeated refusals of a caller by a rule are sampled."
    )


class EventDetail(EventView):
    """One recorded decision in full."""

    extra: dict[str, Any] | None = Field(
        description="More of the request: `attributes`, `route`, the stated `cost`, own `limits`."
    )
    snapshot: int | None = Field(description="The number of the rules that were published last before it.")
    rule_then: dict[str, Any] | None = Field(description="The deciding rule in that snapshot.")


class EventPage(Output):
    """Events, newest first."""

    items: list[EventView]
    next: str | None


class ViolatorView(Output):
    """A denied user, key or address."""

    model_config = example(user="u1", api_key=None, ip=None, violations=12, last="2026-01-31T12:00:00Z")

    user: str | None
    api_key: str | None
    ip: str | None
    violations: int
    last: datetime | None = Field(description="When it was last denied; null if that event is archived.")


class ViolatorPage(Output):
    """Callers by number of denials, most first, in one page."""

    items: list[ViolatorView]
    next: str | None


class DayView(Output):
    """One day of a user."""

    day: date
    requests: int
    denied: int
    costs: dict[str, int] = Field(description="The cost under each rule.")


class Story(Output):
    """All that is known of a user, in one answer."""

    model_config = example(
        user="u1", tier="free", days=[], events=[], limits=[], limits_are_all=True, blocks=[], changes=[]
    )

    user: str
    tier: str | None
    days: list[DayView]
    events: list[EventView]
    limits: list[QuotaEntry]
    limits_are_all: bool = Field(
        description="false: only those with the smallest share left, or, of more than 1,000 rules, only of rules that "
        "hold for all paths or have counted the user today or yesterday; `/v1/users/{id}/quota` has all."
    )
    blocks: list[BlockView]
    changes: list[ChangeView]


router = APIRouter(route_class=AdminRoute, tags=["activity"])


@router.get("/v1/changes", response_model=ChangePage)
async def list_changes(
    parts: Parts,
    limit: Limit = DEFAULT_LIMIT,
    after: After = None,
    kind: Annotated[Kind | None, Query()] = None,
    name: Text = None,
) -> Page[Mapping[str, Any]]:
    """List changes, newest first."""
    found = await changes(parts.database, kind, name, position_of("changes", after, as_number), limit + 1)
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
    """List recorded decisions of the last day, or of up to 31 days, newest first."""
    position = position_of("events", after, _event_position)
    # The cursor says when the last day began, so that all pages cover the same day.
    since, before = (since, None) if position is None else (since or position[2], position[:2])
    since, until = parts.activity.span(since, until)
    found = await parts.activity.events(
        since, until, user=user, rule=rule, decision=decision, before=before, most=limit + 1
    )
    return page("events", found, limit, lambda row: (row["at"].isoformat(), row["id"], since.isoformat()))


@router.get("/v1/events/{id:part}", response_model=EventDetail)
async def get_event(parts: Parts, id: Name) -> Mapping[str, Any]:  # noqa: A002 (events have ids)
    """Get one recorded decision: the request, and the rule as it was then."""
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
    """List the callers that were denied most in the last day, or in up to 31 days (7 unless by user), in one page."""
    return Page(await parts.activity.violators(since, until, rule=rule, by=by, most=limit), None)


async def _rule_then(parts: Parts, event: Mapping[str, Any]) -> Mapping[str, Any] | None:
    if event["rule"] is None or event["snapshot"] is None:
        return None
    rules = (await parts.snapshots.get(event["snapshot"]))["rules"]
    return next((rule for rule in rules if rule["name"] == event["rule"]), None)


def _event_position(position: object) -> tuple[datetime, str, datetime]:
    match position:
        case [at, id_, since]:
            return as_instant(at), as_name(id_), as_instant(since)
    raise ValueError


_DAYS: Final = 30
_NEWEST: Final = 20
_MAX_STORY_LIMITS: Final = 50
"""Those with the smallest share left; `/v1/users/{id}/quota` has all."""


@router.get("/v1/users/{id:part}/story", response_model=Story)
async def get_story(parts: Parts, id: Name) -> dict[str, Any]:  # noqa: A002 (users have ids)
    """Get a user's last 30 days, newest events and changes, blocks, and the limits that are used most.

    This works for users without a record too.
    """
    user = await user_on_record(parts, id)
    _, until = parts.activity.span(None, None)
    entries, is_all = await limits_in_use(parts, user)
    fullest = sorted(entries, key=_left)[:_MAX_STORY_LIMITS]
    return {
        "user": id,
        "tier": user.tier,
        "days": await parts.activity.days_of(id, _DAYS),
        "events": await parts.activity.events(until - MAX_SPAN, until, user=id, most=_NEWEST),
        "limits": [entry.as_dict() for entry in fullest],
        "limits_are_all": is_all and len(fullest) == len(entries),
        "blocks": await parts.blocks.list(subject=id, most=_NEWEST),
        "changes": await changes(parts.database, Kind.USER, id, None, _NEWEST),
    }


def _left(entry: inspection.QuotaEntry) -> float:
    """The share of a limit that is left; entries without a counter come last."""
    if entry.hit is None or entry.decision is None:
        return 2.0
    return entry.decision.remaining / entry.hit.meter.capacity
