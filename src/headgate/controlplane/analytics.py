"""Counts and shares: metrics for charts, noisy endpoints, who is near a limit, how full limits are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.controlplane.time_spans import A_DAY, span, time_of
from headgate.core.histogram import quantile
from headgate.core.units import SECOND
from headgate.errors import InvalidFields, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headgate.core.units import Micros
    from headgate.ports import Statements

MAX_SPAN: Final = timedelta(days=31)
NEAR: Final = 0.8
"""The share of a limit from which on a caller is near it."""
AN_HOUR: Final = timedelta(hours=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Granularity(StrEnum):
    """How long the time is that one point counts."""

    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"


class Dimension(StrEnum):
    """What counts can be grouped by."""

    RULE = "rule"
    ENDPOINT = "endpoint"
    TIER = "tier"
    REGION = "region"
    USER = "user"


class Order(StrEnum):
    """Which endpoints come first."""

    REQUESTS = "requests"
    DENIED = "denied"
    SHARE = "share"


_MAX_SPANS: Final = {
    Granularity.MINUTE: timedelta(days=2),
    Granularity.HOUR: timedelta(days=62),
    Granularity.DAY: timedelta(days=732),
}
"""The longest span of one request: at most some thousand points in time."""
_USUAL: Final = {
    Granularity.MINUTE: timedelta(hours=1),
    Granularity.HOUR: timedelta(days=1),
    Granularity.DAY: timedelta(days=30),
}
_LENGTHS: Final = {
    Granularity.MINUTE: timedelta(minutes=1),
    Granularity.HOUR: AN_HOUR,
    Granularity.DAY: timedelta(days=1),
}
_GRANULARITIES: Final = ((Granularity.MINUTE, timedelta(hours=6)), (Granularity.HOUR, timedelta(days=4)))
"""Up to which span a sum is made of which rows."""
_NO_POSITION: Final = (None,) * 6


class MetricsQuery(NamedTuple):
    """What a chart shows: counts grouped `by` some dimensions, and `of` one value of others."""

    granularity: Granularity = Granularity.HOUR
    by: frozenset[Dimension] = frozenset()
    of: Mapping[Dimension, str] = {}
    quantiles: bool = True
    """Whether with decision times; adding them up takes most of the time of a long span."""

    def check(self) -> None:
        """Raise `InvalidFields` for what is not counted together."""
        dimensions = {*self.by, *self.of}
        if Dimension.USER in dimensions and dimensions & {Dimension.RULE, Dimension.TIER}:
            sentence = "users are counted by themselves, by region and by endpoint; leave rule and tier out"
            raise InvalidFields([Problem(("by",), sentence)])

    def chosen(self, dimension: Dimension) -> str | None:
        """The rule or user to count: a name, None for each of them, '' for all together."""
        return self.of.get(dimension, None if dimension in self.by else "")


class Analytics:
    """Answers questions from counts and events."""

    def __init__(self, database: Statements, clock: Callable[[], Micros]) -> None:
        """`clock` says what the last hour or day is."""
        self._database = database
        self._clock = clock

    def span(
        self, granularity: Granularity, since: datetime | None, until: datetime | None
    ) -> tuple[datetime, datetime]:
        """The start and the end of the points, by whole minutes, hours or days; by default the usual span."""
        since, until = span(
            time_of(self._clock()), since, until, longest=_MAX_SPANS[granularity], usual=_USUAL[granularity]
        )
        return since - (since - _EPOCH) % _LENGTHS[granularity], until

    async def metrics(
        self,
        query: MetricsQuery,
        between: tuple[datetime, datetime],
        after: tuple[datetime, str, str, str, str, str] | None = None,
        most: int = 50,
    ) -> Sequence[Mapping[str, Any]]:
        """Counts and quantiles of the time that decisions took, by time and dimensions, after the position `after`."""
        query.check()
        since, until = between
        of_all = query.chosen(Dimension.RULE), query.chosen(Dimension.USER)
        of_some = [query.of.get(each) for each in (Dimension.ENDPOINT, Dimension.TIER, Dimension.REGION)]
        granularity = query.granularity
        if not query.by:
            if after is not None:
                since = max(since, after[0] + _LENGTHS[granularity])
            rows = await self._database.rows(
                "analytics.totals", granularity.value, since, until, *of_all, *of_some, most, query.quantiles
            )
        else:
            rows = await self._database.rows(
                "analytics.metrics",
                granularity.value,
                since if after is None else max(since, after[0]),
                until,
                [dimension.value for dimension in query.by],
                *of_all,
                *of_some,
                *(after or _NO_POSITION),
                most,
                query.quantiles,
            )
        return [with_quantiles(row) for row in rows]

    async def endpoints(
        self,
        since: datetime | None = None,
        until: datetime | None = None,
        order: Order = Order.REQUESTS,
        most: int = 50,
    ) -> Sequence[Mapping[str, Any]]:
        """Endpoints with requests, denials and times, those with most of `order` first."""
        since, until = span(time_of(self._clock()), since, until, longest=MAX_SPAN)
        chosen = next((each for each, longest in _GRANULARITIES if until - since <= longest), Granularity.DAY)
        since -= (since - _EPOCH) % _LENGTHS[chosen]
        rows = await self._database.rows("analytics.endpoints", chosen.value, since, until, order.value, most)
        return [with_quantiles(row) for row in rows]

    async def near_limits(
        self,
        since: datetime | None = None,
        until: datetime | None = None,
        *,
        rule: str | None = None,
        share: float = NEAR,
        most: int = 50,
    ) -> Sequence[Mapping[str, Any]]:
        """Who had used that share of a limit when an event last said so, within the last hour unless told."""
        between = span(time_of(self._clock()), since, until, longest=A_DAY, usual=AN_HOUR)
        return await self._database.rows("analytics.near_limits", *between, rule, share, most)

    async def utilisation(
        self, since: datetime | None = None, until: datetime | None = None, *, share: float = NEAR, most: int = 50
    ) -> Sequence[Mapping[str, Any]]:
        """For each rule, the shares of its limit that those who were recorded had used at most."""
        between = span(time_of(self._clock()), since, until, longest=A_DAY)
        return await self._database.rows("analytics.utilisation", *between, share, most)


def with_quantiles(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with quantiles in seconds in place of its histogram; None where nothing was timed."""
    counts = row["latency"]
    found = {name: quantile(counts, share) for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))}
    rest = {name: value for name, value in row.items() if name != "latency"}
    return rest | {name: None if micros is None else micros / SECOND for name, micros in found.items()}
