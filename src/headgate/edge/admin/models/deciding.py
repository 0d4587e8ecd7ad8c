"""A request to explain, explanations, and quotas."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from headgate.core.units import MAX_AMOUNT
from headgate.edge.admin.models.shared import Input, Output, example

_Fact = Annotated[str, Field(max_length=8_192)]


class CheckBody(Input):
    """A request as `/v1/check` of the decision service takes it."""

    model_config = example(user="u1", method="GET", path="/api/search")

    user: _Fact | None = None
    tenant: _Fact | None = None
    api_key: _Fact | None = None
    ip: _Fact | None = None
    tier: _Fact | None = None
    method: _Fact | None = None
    path: _Fact | None = None
    route: _Fact | None = None
    cost: Annotated[int, Field(ge=0, le=MAX_AMOUNT)] | None = None
    attributes: dict[_Fact, _Fact] | None = Field(default=None, max_length=1_000)


class Explanation(Output):
    """Why a request gets the verdict it would get."""

    model_config = ConfigDict(extra="allow")

    verdict: dict[str, Any] = Field(description="As `/v1/peek` answers it.")


class QuotaEntry(Output):
    """One limit that can apply to a user, or a gate that spares or refuses them."""

    model_config = example(
        rule="search",
        layer="user@endpoint",
        action="reject",
        limit="100/hour",
        window=3600,
        per=["user"],
        endpoints=["/api/search"],
        methods=[],
        ip_ranges=[],
        attributes={},
        depends_on=[],
        shared=False,
        used=12,
        remaining=88,
        reset_after=1200.5,
        source="store",
    )

    rule: str
    layer: str | None
    action: str
    limit: str | None
    window: float | None = Field(description="In seconds.")
    per: list[str]
    endpoints: list[str]
    methods: list[str]
    ip_ranges: list[str]
    attributes: dict[str, str]
    depends_on: list[str] = Field(description="What else it counts per; no one counter can be shown then.")
    shared: bool = Field(description="Whether others count in it too.")
    used: int | None
    remaining: int | None
    reset_after: float | None = Field(description="Seconds until all of it is back, if nobody comes.")
    source: str | None


class Quota(Output):
    """Every limit that can apply to a user, live."""

    user: str
    tier: str | None
    items: list[QuotaEntry]


class QuotaReset(Output):
    """What was forgiven."""

    model_config = example(user="u1", counters=3, quota_reset="2026-01-31T12:00:00Z")

    user: str
    counters: int = Field(description="How many counters were forgotten; those shared with others stay.")
    quota_reset: datetime | None
