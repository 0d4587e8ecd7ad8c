"""Metrics, endpoints, shares of limits, stories and reconciliations as they are answered."""

from datetime import date, datetime

from pydantic import Field

from headgate.edge.admin.models.accounts import BlockView
from headgate.edge.admin.models.activity import ChangeView, EventView
from headgate.edge.admin.models.deciding import QuotaEntry
from headgate.edge.admin.models.shared import Output, example

_SECONDS = Field(description="In seconds; null where nothing was timed.")


class MetricView(Output):
    """What was counted in one minute, hour or day. A dimension that was not asked for is empty."""

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
    p50: float | None = _SECONDS
    p95: float | None = _SECONDS
    p99: float | None = _SECONDS


class MetricPage(Output):
    """Counts by time."""

    items: list[MetricView]
    next: str | None


class EndpointView(Output):
    """An endpoint, and how it fares."""

    model_config = example(endpoint="/api/search", requests=120, denied=3, share=0.025, p95=0.0004)

    endpoint: str
    requests: int
    denied: int = Field(description="Blocked ones too.")
    share: float = Field(description="Of requests that were denied.")
    p50: float | None = _SECONDS
    p95: float | None = _SECONDS
    p99: float | None = _SECONDS


class EndpointPage(Output):
    """Endpoints. There is one page."""

    items: list[EndpointView]
    next: str | None


class NearLimitView(Output):
    """Somebody who has used much of a limit."""

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
    at: datetime = Field(description="When it was so.")
    source: str = Field(description="`events`: as last recorded; `counters`: as it is now.")


class NearLimitPage(Output):
    """Those who have used most of a limit first. There is one page."""

    items: list[NearLimitView]
    next: str | None


class UtilisationView(Output):
    """How full the limits of a rule were: of each subject that was recorded, the highest share it had used."""

    model_config = example(rule="search", subjects=40, near=3, p50=0.2, p95=0.85, highest=1.0)

    rule: str
    subjects: int
    near: int = Field(description="Of these, how many had used 80 % or more.")
    p50: float
    p95: float
    highest: float


class UtilisationPage(Output):
    """Rules, those with most who are near the limit first. There is one page."""

    items: list[UtilisationView]
    next: str | None


class DayView(Output):
    """A day of a user."""

    day: date
    requests: int
    denied: int
    costs: dict[str, int] = Field(description="What each rule has charged.")


class Story(Output):
    """What is known of a user, in one answer."""

    model_config = example(user="u1", tier="free", days=[], events=[], limits=[], blocks=[], changes=[])

    user: str
    tier: str | None
    days: list[DayView]
    events: list[EventView]
    limits: list[QuotaEntry]
    blocks: list[BlockView]
    changes: list[ChangeView]


class Reconciled(Output):
    """Two ways to the same number, and by how much they differ."""

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
    """All comparisons that can be made. There is one page."""

    items: list[Reconciled]
    next: str | None
