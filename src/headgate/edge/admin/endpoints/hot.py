"""The hottest counters."""

from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query, Response
from pydantic import BeforeValidator, Field

from headgate.core.demand import WINDOW_SECONDS
from headgate.dataplane.hot_counters import REPORTED, HotCounters
from headgate.edge.admin.fields import Output, example, whole_number
from headgate.edge.admin.route import AdminRoute, Parts


class HotCounterView(Output):
    """One of the hottest counters."""

    model_config = example(
        key="rl:{g=api}:api:fw1s", rule="api", rate=41250.5, share=0.62, mode="leased", server="10.0.0.5:6379"
    )

    key: str
    rule: str | None = Field(description="null: a key without a rule.")
    rate: float = Field(description="Units per second.")
    share: float = Field(description="Of all units of all counters, from 0 to 1.")
    mode: Literal["exact", "leased"] = Field(description="`leased`: a process holds blocks of it now.")
    server: str = Field(description="The Redis server that holds it.")


class HotView(Output):
    """The hottest counters of the last minute, of all services on the same store."""

    window_seconds: int
    watched: bool = Field(description="false: counters are in memory, and not watched.")
    counters: list[HotCounterView] = Field(description="The hottest first.")


_SHARED_SECONDS: Final = 1.0
router = APIRouter(route_class=AdminRoute, tags=["activity"])

Limit = Annotated[int, BeforeValidator(whole_number), Query(ge=1, le=REPORTED, description="How many at most.")]


@router.get("/v1/hot", response_model=HotView)
async def get_hot_counters(parts: Parts, limit: Limit = 20) -> Response:
    """Get the counters that were asked for most in the last minute. Other processes report every 5 seconds."""
    return await parts.shared.answer(("hot", limit), _SHARED_SECONDS, HotView, lambda: _hottest(parts.hot, limit))


async def _hottest(hot: HotCounters | None, limit: int) -> dict[str, Any]:
    found = [] if hot is None else await hot.hottest(limit)
    counters = [
        {
            "key": each.key,
            "rule": each.rule,
            "rate": round(each.rate, 1),
            "share": round(each.share, 4),
            "mode": "leased" if each.is_leased else "exact",
            "server": server,
        }
        for each, server in found
    ]
    return {"window_seconds": WINDOW_SECONDS, "watched": hot is not None, "counters": counters}
