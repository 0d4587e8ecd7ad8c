"""How often what happened, counted exactly whatever is recorded as events, minute by minute.

A process counts alike requests together (`Count`, `Took`). Where they are kept they become rows of the
tables: `metric_rows` by rule, endpoint, tier and user, and `usage_rows` by day, user and rule.
"""

from __future__ import annotations

from collections import Counter
from heapq import nlargest
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from headgate.core.event import EventKind
from headgate.core.histogram import histogram
from headgate.core.units import DAY

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headgate.core.units import Micros

    Place: TypeAlias = tuple[Micros, str, str, str, str]

MOST_USERS: Final = 1_000
"""Whose rows are kept by the minute, of one batch: those who asked most. Usage by the day knows everybody."""
MOST_ENDPOINTS: Final = 1_000
"""That have rows of their own, of one batch: those that were asked for most. The others are counted together."""
OTHER: Final = "(other)"
_PASSED: Final = frozenset({EventKind.ALLOWED, EventKind.THROTTLED, EventKind.SHADOW})
_TOTAL: Final = 0
_DEGRADED: Final = 6
_COLUMNS: Final[dict[str, int]] = {
    EventKind.ALLOWED: 1,
    EventKind.DENIED: 2,
    EventKind.THROTTLED: 3,
    EventKind.BLOCKED: 4,
    EventKind.SHADOW: 5,
}
"""Of a row's seven numbers, which of them a kind is counted in."""


class Count(NamedTuple):
    """So many requests of one minute that are alike."""

    minute: Micros
    """Its beginning."""
    user: str | None
    tier: str | None
    endpoint: str | None
    """The route, where a framework names it, or the path; only so many of them are told apart."""
    charged: tuple[str | int, ...]
    """The limits that are enforced: the name of the rule and what it charges, one pair after the other."""
    kind: str
    """An `EventKind`, as text."""
    rule: str | None
    """The rule that denied, blocked, held back or would have denied."""
    is_degraded: bool
    requests: int
    also: tuple[str | None, ...] = ()
    """See `headgate.core.event.beside`: rules that charge nothing, and those that made a request wait."""


class Took(NamedTuple):
    """So many decisions of one minute that took about as long."""

    minute: Micros
    tier: str | None
    endpoint: str | None
    rules: tuple[str, ...]
    bucket: int
    """See `headgate.core.histogram`."""
    requests: int


class CountBatch(NamedTuple):
    """Counts that travel together. Whoever has stored a batch of this id has stored it."""

    id: str
    server: str
    region: str
    counts: list[Count]
    took: list[Took]


class MetricRow(NamedTuple):
    """What is added to one row of the minute. A dimension that is '' is summed over.

    Rows without a rule count each request once. Rows with one count it for every rule that applied; what
    one rule denied has no outcome under the others, and is only in their totals.
    """

    minute: Micros
    rule: str
    endpoint: str
    tier: str
    user: str
    total: int
    allowed: int
    denied: int
    throttled: int
    blocked: int
    shadow: int
    degraded: int
    latency: list[int]
    """A histogram; see `headgate.core.histogram`."""


class UsageRow(NamedTuple):
    """What is added to a user's day under one rule; the rule '' counts each request once, and charges nothing.

    The user '' is nobody in particular, so that all rows of a day add up to all requests.
    """

    day: Micros
    user: str
    rule: str
    requests: int
    denied: int
    cost: int


def metric_rows(
    batch: CountBatch, most_users: int = MOST_USERS, most_endpoints: int = MOST_ENDPOINTS
) -> list[MetricRow]:
    """All rows of the minutes that a batch adds to: each place once."""
    batch = _told_apart(batch, most_endpoints)
    totals: dict[Place, list[int]] = {}
    by_user: dict[Place, list[int]] = {}
    for count in batch.counts:
        endpoint, tier = count.endpoint or "", count.tier or ""
        _add(totals, (count.minute, "", endpoint, tier, ""), count, count.kind)
        for rule, kind in outcomes(count).items():
            _add(totals, (count.minute, rule, endpoint, tier, ""), count, kind)
        if count.user:
            _add(by_user, (count.minute, "", "", "", count.user), count, count.kind)
    totals |= dict(nlargest(most_users, by_user.items(), key=lambda item: item[1][_TOTAL]))
    latencies: dict[Place, dict[int, int]] = {}
    for took in batch.took:
        for rule in ("", *dict.fromkeys(took.rules)):
            buckets = latencies.setdefault((took.minute, rule, took.endpoint or "", took.tier or "", ""), {})
            buckets[took.bucket] = buckets.get(took.bucket, 0) + took.requests
    nothing = [0] * 7
    return [
        MetricRow(*place, *totals.get(place, nothing), latency=histogram(latencies.get(place, {}).items()))  # type: ignore[arg-type, misc] # mypy cannot count them
        for place in dict.fromkeys(chain(totals, latencies))
    ]


def _told_apart(batch: CountBatch, most: int) -> CountBatch:
    """A batch with so many endpoints at most, and one for all the others."""
    asked: Counter[str] = Counter()
    numbers: list[tuple[str | None, int]] = [(each.endpoint, each.requests) for each in batch.counts]
    for endpoint, requests in numbers + [(each.endpoint, 0) for each in batch.took]:
        if endpoint and endpoint != OTHER:
            asked[endpoint] += requests
    if len(asked) <= most:
        return batch
    names = {OTHER: OTHER, **{name: name for name, _ in asked.most_common(most)}}
    return batch._replace(
        counts=[each._replace(endpoint=each.endpoint and names.get(each.endpoint, OTHER)) for each in batch.counts],
        took=[each._replace(endpoint=each.endpoint and names.get(each.endpoint, OTHER)) for each in batch.took],
    )


def usage_rows(batch: CountBatch) -> list[UsageRow]:
    """All rows of users' days that a batch adds to: each once."""
    totals: dict[tuple[Micros, str, str], list[int]] = {}
    for count in batch.counts:
        day, user, has_passed = count.minute - count.minute % DAY, count.user or "", count.kind in _PASSED
        for rule, cost in {"": 0, **dict(_pairs(count.charged))}.items():
            numbers = totals.setdefault((day, user, rule), [0, 0, 0])
            numbers[0] += count.requests
            if has_passed:
                numbers[2] += cost * count.requests
            elif rule in {"", count.rule}:
                numbers[1] += count.requests
    return [UsageRow(*place, *numbers) for place, numbers in totals.items()]


def outcomes(count: Count) -> dict[str, str | None]:
    """What became of the requests under each rule that applied; None: nothing, because another rule denied them."""
    enforced = EventKind.ALLOWED.value if count.kind in _PASSED else None
    found: dict[str, str | None] = {rule: enforced for rule, _ in _pairs(count.charged)}
    if count.also:
        found.update(zip(count.also[::2], count.also[1::2], strict=True))  # type: ignore[arg-type] # names and kinds take turns
    if count.rule is not None:
        found[count.rule] = count.kind
    return found


def _pairs(charged: Sequence[str | int]) -> Iterator[tuple[str, int]]:
    return zip(charged[::2], charged[1::2], strict=True)  # type: ignore[arg-type] # names and numbers take turns


def _add(totals: dict[Place, list[int]], place: Place, count: Count, kind: str | None) -> None:
    numbers = totals.setdefault(place, [0] * 7)
    numbers[_TOTAL] += count.requests
    if kind is not None:
        numbers[_COLUMNS[kind]] += count.requests
    if count.is_degraded:
        numbers[_DEGRADED] += count.requests
