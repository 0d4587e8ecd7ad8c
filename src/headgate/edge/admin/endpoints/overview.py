"""What happens now, for the dashboard's first page and for `headgate top`."""

from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from pydantic import BeforeValidator, Field

from headgate.edge.admin.endpoints.activity import ViolatorView
from headgate.edge.admin.endpoints.processes import ProcessView
from headgate.edge.admin.endpoints.rule_sets import SnapshotView
from headgate.edge.admin.fields import Output, example, whole_number
from headgate.edge.admin.route import AdminRoute, Parts
from headgate.edge.overview.live_rates import FRESH, MAX_HISTORY
from headgate.errors import NotFound

PartState = Literal["up", "degraded", "down", "not_used"]
StateWord = Literal["normal", "degraded", "overloaded", "failing_open"]


class RatesView(Output):
    """Requests per second, over the last three seconds; degraded requests are in the other numbers too."""

    model_config = example(allowed=120.3, denied=4.0, throttled=0.0, blocked=0.0, shadow=1.3, degraded=0.0)

    allowed: float
    denied: float
    throttled: float
    blocked: float
    shadow: float
    degraded: float


class RatesAt(RatesView):
    """The rates at one time."""

    at: datetime


class LatencyView(Output):
    """How long decisions of the last minute took, of all or of a sample."""

    decisions: int = Field(description="How many were timed.")
    p50: float | None = Field(description="In seconds; null if nothing was timed.")
    p99: float | None = Field(description="In seconds; null if nothing was timed.")


class BusyRule(Output):
    """Requests per second that a rule applied to, over the last minute."""

    rule: str = Field(description="`(other)`: all rules beyond the first 200.")
    rate: float
    allowed: float
    denied: float
    throttled: float
    blocked: float
    shadow: float


class Reason(Output):
    """Why the state is not normal."""

    part: str
    state: StateWord
    message: str


class ServerView(Output):
    """A server of the store."""

    server: str
    breaker: Literal["closed", "half_open", "open"]


class RedisView(Output):
    """Redis, or the embedded Valkey."""

    state: PartState = Field(description="`not_used`: counters are in memory.")
    servers: list[ServerView]
    feed_up: bool | None = Field(description="Whether changes arrive by the feed.")
    in_flight: int
    waiting: int


class PostgresView(Output):
    """The database."""

    state: PartState


class SinkView(Output):
    """A reader of the spool."""

    stream: str
    sink: str
    up: bool
    spooled: int
    lag_seconds: float


class KafkaView(Output):
    """Kafka, as a sink."""

    state: PartState
    sinks: list[SinkView]


class SpoolView(Output):
    """What is on disk and still to be stored."""

    state: PartState
    sinks: list[SinkView]
    waiting: int = Field(description="Events in memory.")
    spooled: int
    dropped: int = Field(description="Events that were lost since the start.")


class HealthView(Output):
    """The parts that the service stands on."""

    redis: RedisView
    postgres: PostgresView
    kafka: KafkaView
    spool: SpoolView


class NodeView(ProcessView):
    """A process, and whether it is behind."""

    behind: bool = Field(description="It does not have rules that were published more than 5 seconds ago.")


class OverviewView(Output):
    """Everything that happens now."""

    at: datetime
    state: StateWord
    reasons: list[Reason] = Field(description="The worst first; empty if the state is normal.")
    rates: RatesView
    latency: LatencyView
    history: list[RatesAt] = Field(description="Second by second, the oldest first.")
    window_seconds: int = Field(description="The span of `latency` and `rules`.")
    rules: list[BusyRule] = Field(description="The ten busiest.")
    violators: list[ViolatorView] | None = Field(
        description="The ten that were denied most in the last 15 minutes; null if the database did not say yet."
    )
    health: HealthView
    snapshot: SnapshotView | None = Field(description="The newest published rules.")
    processes: list[NodeView]


router = APIRouter(route_class=AdminRoute, tags=["activity"])

History = Annotated[
    int,
    BeforeValidator(whole_number),
    Query(ge=0, le=MAX_HISTORY, description="Of how many of the last seconds the rates are listed."),
]


@router.get("/v1/overview", response_model=OverviewView)
async def get_overview(parts: Parts, history: History = 0) -> Response:
    """Get what happens now: rates of all processes of this service, decision times, busy rules, health and state.

    A decision shows within a second, or a second and a half if another process of the service made it.
    """
    overview = parts.overview
    if overview is None:
        msg = "this process decides nothing; call /v1/overview of `headgate serve`"
        raise NotFound(msg)
    return await parts.shared.answer(("overview", history), FRESH, OverviewView, lambda: overview.now(history))
