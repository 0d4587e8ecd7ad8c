"""Changes, events and usage as they are answered."""

from datetime import date, datetime
from typing import Any, Literal

from pydantic import Field

from headgate.controlplane.changes import Kind
from headgate.edge.admin.models.shared import Output, example

Decision = Literal["allowed", "denied", "throttled", "blocked", "shadow"]
Subject = Literal["user", "api_key", "ip", "anybody"]


class ChangeView(Output):
    """Who did what, when."""

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
    """Changes, the newest first."""

    items: list[ChangeView]
    next: str | None


class EventView(Output):
    """One decision that was recorded."""

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
        description="Of many refusals of one caller by one rule only some are events; 1 if it is alone."
    )


class EventDetail(EventView):
    """One decision, with all that is known of it."""

    extra: dict[str, Any] | None = Field(
        description="What was asked besides: `attributes`, `route`, the stated `cost`, own `limits`."
    )
    snapshot: int | None = Field(description="The rules that were published last before it.")
    rule_then: dict[str, Any] | None = Field(description="The deciding rule as those rules have it.")


class EventPage(Output):
    """Events, the newest first."""

    items: list[EventView]
    next: str | None


class ViolatorView(Output):
    """Somebody who was denied: a user, a key or an address."""

    model_config = example(user="u1", api_key=None, ip=None, violations=12, last="2026-01-31T12:00:00Z")

    user: str | None
    api_key: str | None
    ip: str | None
    violations: int
    last: datetime | None = Field(description="Null if the event is archived.")


class ViolatorPage(Output):
    """Those who were denied most, the worst first. There is one page."""

    items: list[ViolatorView]
    next: str | None


class UsageView(Output):
    """What a user has used on a day."""

    model_config = example(day="2026-01-31", user="u1", rule="search", requests=120, denied=3, cost=120)

    day: date
    user: str
    rule: str = Field(description="Empty for all rules together.")
    requests: int
    denied: int
    cost: int


class UsagePage(Output):
    """Usage by day, user and rule."""

    items: list[UsageView]
    next: str | None
