"""Usage for billing: listed, exported as a stream, and reconciled."""

from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import date
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.responses import StreamingResponse

from headgate.controlplane.usage_export import Format, Subject
from headgate.core.calendar import Unit
from headgate.core.limit import Rate
from headgate.core.meter import Algorithm
from headgate.core.rule import Action
from headgate.core.units import DAY
from headgate.dataplane import inspection
from headgate.edge.admin.endpoints.decisions import user_on_record
from headgate.edge.admin.fields import Day, Output, Text, example
from headgate.edge.admin.pages import DEFAULT_LIMIT, After, Limit, Page, as_name, page, position_of
from headgate.edge.admin.route import AdminRoute, Parts
from headgate.errors import InvalidFields, Problem


class UsageView(Output):
    """The usage of one user on one day."""

    model_config = example(
        day="2026-01-31", user="u1", rule="search", rule_id="search", requests=120, denied=3, cost=120
    )

    day: date
    user: str
    rule: str = Field(description="Empty: all rules together.")
    rule_id: str = Field(description="The rule's id, which renaming does not change.")
    requests: int
    denied: int
    cost: int


class UsagePage(Output):
    """Usage by day, user and rule."""

    items: list[UsageView]
    next: str | None


class KeyUsageView(Output):
    """The requests of one API key on one day."""

    model_config = example(day="2026-01-31", api_key="018f6f8e-0000-4000-8000-000000000000", requests=120, denied=3)

    day: date
    api_key: str = Field(description="The key's id; `(other)` for all keys that are not on record.")
    requests: int
    denied: int


class KeyUsagePage(Output):
    """Requests by day and API key."""

    items: list[KeyUsageView]
    next: str | None


class Reconciled(Output):
    """A figure counted in two ways, and the difference."""

    model_config = example(
        day="2026-01-31", what="requests", user=None, rule=None, usage=1200, against="metrics", found=1200, difference=0
    )

    day: date
    what: str = Field(description="`requests`, `denied` or `cost`.")
    user: str | None = Field(description="Null: all users together.")
    rule: str | None
    usage: int
    against: str = Field(description="`metrics` or `counter`.")
    found: int
    difference: int


class Reconciliation(Output):
    """All comparisons, in one page."""

    items: list[Reconciled]
    next: str | None


router = APIRouter(route_class=AdminRoute, tags=["activity"])

First = Annotated[Day, Query(alias="from", description="The first day; by default the day before `to`.")]
Last = Annotated[Day, Query(alias="to", description="The last day; by default today (UTC).")]
_TOGETHER = 1_000


@router.get(
    "/v1/usage/export",
    response_class=StreamingResponse,
    responses={200: {"content": {form.media_type.partition(";")[0]: {} for form in Format}}},
)
async def export_usage(
    parts: Parts,
    form: Annotated[Format, Query(alias="format")] = Format.CSV,
    first: First = None,
    last: Last = None,
    user: Text = None,
    of: Annotated[Subject, Query(description="Whose: of users by rule, or of API keys.")] = Subject.USERS,
) -> StreamingResponse:
    """Export usage of up to 366 days as a stream, one line for each day, user and rule, or for each day and API key."""
    if of is Subject.KEYS and user is not None:
        raise InvalidFields([Problem(("user",), "has no effect with `of=keys`; leave it out")])
    usage = parts.activity.key_usage if of is Subject.KEYS else partial(parts.activity.usage, user=user)
    # The first rows are read before anything is sent, so that an error still gets a status of its own.
    rows = await usage(first, last, most=_TOGETHER)

    async def lines() -> AsyncIterator[str]:
        found = rows
        yield form.heading(of)
        while found:
            yield form.lines(found, of)
            after: Any = tuple(found[-1][name] for name in of.position)
            found = await usage(first, last, after=after, most=_TOGETHER)

    return StreamingResponse(lines(), media_type=form.media_type)


@router.get("/v1/usage/reconciliation", response_model=Reconciliation)
async def reconcile_usage(
    parts: Parts, first: First = None, last: Last = None, user: Text = None
) -> Page[dict[str, Any]]:
    """Compare the usage of all users with the metrics, day by day; with `user`, today's usage with the counters.

    Only rules with a fixed window of one day (UTC) that count per user have a comparable counter. Counts that a
    process has not exported yet, and refunds, are in the counter only.
    """
    found = [entry for row in await parts.activity.reconciled(first, last) for entry in _by_day(row)]
    if user is not None:
        found += await _by_counter(parts, user)
    return Page(found, None)


def _by_day(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for what in ("requests", "denied"):
        yield _entry(row["day"], what, row[what], row[f"counted_{what}"], "metrics")


async def _by_counter(parts: Parts, user: str) -> list[dict[str, Any]]:
    today = parts.activity.today()
    entries = await inspection.quota(parts.limiter, await user_on_record(parts, user), replica=False)
    used = {row["day"]: row["costs"] for row in await parts.activity.days_of(user, 1)}.get(today, {})
    return [
        _entry(
            today, "cost", used.get(entry.rule.name, 0), entry.hit.meter.capacity - entry.decision.remaining, "counter"
        )
        | {"user": user, "rule": entry.rule.name}
        for entry in entries
        if entry.hit is not None and entry.decision is not None and _is_daily(entry)
    ]


def _is_daily(entry: inspection.QuotaEntry) -> bool:
    """Whether a counter counts exactly the usage of one user on one day under the rule."""
    rule, hit = entry.rule, entry.hit
    if hit is None or rule.action is Action.LOG or tuple(rule.per) != ("user",):
        return False
    limit = hit.meter.limit
    if hit.meter.algorithm != Algorithm.FIXED_WINDOW or not isinstance(limit, Rate):
        return False
    if limit.calendar is None:
        return limit.period == DAY
    return limit.calendar.unit is Unit.DAY and limit.calendar.zone == "UTC"


def _entry(day: date, what: str, usage: int, found: int, against: str) -> dict[str, Any]:
    return {
        "day": day,
        "what": what,
        "user": None,
        "rule": None,
        "usage": usage,
        "against": against,
        "found": found,
        "difference": usage - found,
    }


@router.get("/v1/usage/keys", response_model=KeyUsagePage)
async def list_key_usage(
    parts: Parts,
    first: First = None,
    last: Last = None,
    limit: Limit = DEFAULT_LIMIT,
    after: After = None,
    key: Text = None,
) -> Page[Mapping[str, Any]]:
    """List requests of up to 366 days by day and API key."""
    behind = position_of("key usage", after, _key_position)
    found = await parts.activity.key_usage(first, last, key=key, after=behind, most=limit + 1)
    return page("key usage", found, limit, lambda row: (row["day"].isoformat(), row["api_key"]))


def _key_position(position: object) -> tuple[date, str]:
    match position:
        case [day, key]:
            return date.fromisoformat(as_name(day)), as_name(key)
    raise ValueError


@router.get("/v1/usage", response_model=UsagePage)
async def list_usage(
    parts: Parts,
    first: Annotated[Day, Query(alias="from", description="The first day; by default the day before `to`.")] = None,
    last: Annotated[Day, Query(alias="to", description="The last day; by default today (UTC).")] = None,
    limit: Limit = DEFAULT_LIMIT,
    after: After = None,
    user: Text = None,
) -> Page[Mapping[str, Any]]:
    """List usage of up to 366 days by day, user and rule."""
    behind = position_of("usage", after, _usage_position)
    found = await parts.activity.usage(first, last, user=user, after=behind, most=limit + 1)
    return page("usage", found, limit, lambda row: (row["day"].isoformat(), row["user"], row["rule_id"]))


def _usage_position(position: object) -> tuple[date, str, str]:
    match position:
        case [day, user, rule]:
            return date.fromisoformat(as_name(day)), as_name(user), as_name(rule)
    raise ValueError
