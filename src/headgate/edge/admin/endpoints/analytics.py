"""Counts and shares: charts, busy endpoints, callers near a limit, use of limits."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Response
from pydantic import Field

from headgate.controlplane.analytics import NEAR, Dimension, Granularity, MetricsQuery, Order
from headgate.controlplane.time_spans import time_of
from headgate.dataplane import inspection
from headgate.edge.admin.endpoints.decisions import user_on_record
from headgate.edge.admin.fields import Instant, Output, Text, Truth, example
from headgate.edge.admin.pages import DEFAULT_LIMIT, After, Limit, Page, as_instant, as_name, page, position_of
from headgate.edge.admin.route import AdminRoute, Parts
from headgate.errors import InvalidFields, Problem, short_repr

_SECONDS = Field(description="In seconds; null if nothing was timed.")


class MetricView(Output):
    """Counts of one minute, hour or day. A dimension that is not in `by` is empty."""

    model_config = example(at="2026-01-31T12:00:00Z", rule="search", total=120, allowed=117, denied=3, p95=0.0004)

    at: datetime
    rule: str
    endpoint: str
    tier: str
    region: str
    user: str
    total: int
    allowed: int
    denied: int
    throttled: int
    blocked: int
    shadow: int
    degraded: int
    cache_hits: int = Field(description="Refused from memory, without asking the store.")
    cache_misses: int = Field(description="Decided by the store.")
    lease_hits: int = Field(description="Decided by a lease that the process held.")
    record_hits: int = Field(description="Records of users and keys that were in memory; only without dimensions.")
    record_misses: int = Field(description="Records that were looked up; only without dimensions.")
    p50: float | None = _SECONDS
    p95: float | None = _SECONDS
    p99: float | None = _SECONDS


class MetricPage(Output):
    """Counts by time."""

    items: list[MetricView]
    next: str | None


class EndpointView(Output):
    """The counts of one endpoint."""

    model_config = example(endpoint="/api/search", requests=120, denied=3, share=0.025, p95=0.0004)

    endpoint: str
    requests: int
    denied: int = Field(description="Including blocked requests.")
    share: float = Field(description="The share of requests that were denied.")
    p50: float | None = _SECONDS
    p95: float | None = _SECONDS
    p99: float | None = _SECONDS


class EndpointPage(Output):
    """Endpoints, in one page."""

    items: list[EndpointView]
    next: str | None


class NearLimitView(Output):
    """A caller that has used much of a limit."""

    model_config = example(
        user="u1", rule="search", count=92, limit=100, share=0.92, at="2026-01-31T12:00:00Z", source="events"
    )

    user: str | None
    api_key: str | None
    ip: str | None
    rule: str
    count: int
    limit: int
    share: float
    at: datetime = Field(description="The time of the figures.")
    source: str = Field(description="`events`: as last recorded; `counters`: as of now.")


class NearLimitPage(Output):
    """Callers by used share, largest first, in one page."""

    items: list[NearLimitView]
    next: str | None


class UtilisationView(Output):
    """How much of a rule's limits was used: the highest share of each recorded subject."""

    model_config = example(rule="search", subjects=40, near=3, p50=0.2, p95=0.85, highest=1.0)

    rule: str
    subjects: int
    near: int = Field(description="How many of them used 80 % or more.")
    p50: float
    p95: float
    highest: float


class UtilisationPage(Output):
    """Rules by number of subjects near the limit, in one page."""

    items: list[UtilisationView]
    next: str | None


_SHARED_SECONDS: Final = 1.0
"""Counts arrive every ten seconds."""
router = APIRouter(route_class=AdminRoute, tags=["activity"])

Share = Annotated[
    float, Query(ge=0, le=1, allow_inf_nan=False, description="The smallest used share of a limit; 0.8 by default.")
]


@router.get("/v1/metrics", response_model=MetricPage)
async def list_metrics(
    parts: Parts,
    granularity: Annotated[Granularity, Query()] = Granularity.HOUR,
    by: Annotated[
        str,
        Query(
            max_length=64,
            description="Dimensions to group by: `rule`, `endpoint`, `tier`, `region`, `user`, separated by commas.",
        ),
    ] = "",
    rule: Text = None,
    endpoint: Annotated[str | None, Query(min_length=1, max_length=1_000)] = None,
    tier: Text = None,
    region: Text = None,
    user: Text = None,
    since: Instant = None,
    until: Instant = None,
    limit: Limit = DEFAULT_LIMIT,
    after: After = None,
    *,
    quantiles: Annotated[
        Truth, Query(description="false: leave `p50`, `p95` and `p99` null, which is quicker for long spans.")
    ] = True,
) -> Response:
    """List counts and decision times by minute (up to 2 days), hour (up to 62 days) or day (up to 732 days).

    By rule, each request counts for every rule that applied to it. By minute, only the busiest users are listed by
    name; usage has all users.
    """
    given = {"rule": rule, "endpoint": endpoint, "tier": tier, "region": region, "user": user}
    of = {Dimension(name): value for name, value in given.items() if value is not None}
    query = MetricsQuery(granularity, _dimensions(by), of, quantiles)
    position = position_of("metrics", after, _metric_position)
    end = until
    since, until = parts.analytics.span(granularity, since if position is None else since or position[-1], until)

    async def find() -> Page[Mapping[str, Any]]:
        behind = None if position is None else position[:6]
        found = await parts.analytics.metrics(query, (since, until), behind, limit + 1)
        return page("metrics", found, limit, lambda row: (row["at"].isoformat(), *_names(row), since.isoformat()))

    question = ("metrics", granularity, query.by, tuple(of.items()), quantiles, since, end, after, limit)
    return await parts.shared.answer(question, _SHARED_SECONDS, MetricPage, find)


@router.get("/v1/endpoints", response_model=EndpointPage)
async def list_endpoints(
    parts: Parts,
    sort: Annotated[Order, Query(description="What to sort by, largest first.")] = Order.REQUESTS,
    limit: Limit = DEFAULT_LIMIT,
    since: Instant = None,
    until: Instant = None,
) -> Page[Mapping[str, Any]]:
    """List endpoints of the last day, or of up to 31 days, by requests, by denials or by share of denials.

    Spans over 6 hours are counted in whole hours, spans over 4 days in whole days.
    """
    return Page(await parts.analytics.endpoints(since, until, sort, limit), None)


@router.get("/v1/near-limits", response_model=NearLimitPage)
async def list_near_limits(
    parts: Parts,
    user: Text = None,
    rule: Text = None,
    share: Share = NEAR,
    limit: Limit = DEFAULT_LIMIT,
    since: Instant = None,
    until: Instant = None,
) -> Page[Mapping[str, Any]]:
    """List callers that had used 80 % of a limit in the last hour, or up to a day; for one user, as of now."""
    if user is not None:
        if since is not None or until is not None:
            sentence = "with `user` the present counters are read; omit `since` and `until`"
            raise InvalidFields([Problem(("since" if since is not None else "until",), sentence)])
        now = await _near_now(parts, user, share)
        chosen = sorted((each for each in now if rule in (None, each["rule"])), key=lambda each: -each["share"])
        return Page(chosen[:limit], None)
    found = await parts.analytics.near_limits(since, until, rule=rule, share=share, most=limit)
    return Page([{**row, "source": "events"} for row in found], None)


@router.get("/v1/utilisation", response_model=UtilisationPage)
async def list_utilisation(
    parts: Parts, limit: Limit = DEFAULT_LIMIT, since: Instant = None, until: Instant = None
) -> Page[Mapping[str, Any]]:
    """List for each rule the highest share of its limit that recorded subjects used, within a day at most."""
    return Page(await parts.analytics.utilisation(since, until, most=limit), None)


async def _near_now(parts: Parts, user: str, share: float) -> list[dict[str, Any]]:
    entries = await inspection.quota(parts.limiter, await user_on_record(parts, user))
    return [near for entry in entries if (near := _near(entry, user)) is not None and near["share"] >= share]


def _near(entry: inspection.QuotaEntry, user: str) -> dict[str, Any] | None:
    if entry.hit is None or entry.decision is None:
        return None
    capacity = entry.hit.meter.capacity
    used = capacity - entry.decision.remaining
    return {
        "user": user,
        "api_key": None,
        "ip": None,
        "rule": entry.rule.name,
        "count": used,
        "limit": capacity,
        "share": used / capacity,
        "at": time_of(entry.decision.at),
        "source": "counters",
    }


def _dimensions(by: str) -> frozenset[Dimension]:
    words = [word for word in by.split(",") if word]
    for word in words:
        if word not in set(Dimension):
            sentence = f"{short_repr(word)} is not a dimension; known are {', '.join(Dimension)}"
            raise InvalidFields([Problem(("by",), sentence)])
    return frozenset(map(Dimension, words))


def _names(row: Mapping[str, Any]) -> list[str]:
    return [row["rule_id" if dimension is Dimension.RULE else dimension.value] for dimension in Dimension]


def _metric_position(position: object) -> tuple[datetime, str, str, str, str, str, datetime]:
    match position:
        case [at, rule, endpoint, tier, region, user, since]:
            names = as_name(rule), as_name(endpoint), as_name(tier), as_name(region), as_name(user)
            return as_instant(at), *names, as_instant(since)
    raise ValueError
