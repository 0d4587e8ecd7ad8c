"""The rows that counts add to each minute, and the bound on their number, which no caller can exceed.

A minute has a bounded number of rows in all batches of all processes. The storing process reads which rows the minute
has (`Known`), adds to these, and makes new ones while there is room, those with most requests first. What has no room
is added to the row `(other)` of its rule, so all sums stay exact and only detail is lost.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain
from operator import add
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from headgate.core.counts import OTHER, add_up, named, outcomes
from headgate.core.event import EventKind
from headgate.core.histogram import added, histogram

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from headgate.core.counts import Count, CountBatch
    from headgate.core.units import Micros

    Row: TypeAlias = tuple[Micros, str, str, str, str]
    """Its key: minute, rule, endpoint, tier, user."""

Series: TypeAlias = tuple[str, str, str]
"""Rule, endpoint and tier."""

_UNNAMED: Final = frozenset({"", OTHER})
_TOTAL: Final = 0
_DEGRADED: Final = 6
_CACHES: Final = 7
"""From here on: cache hits and misses, lease hits, record hits and misses."""
_NUMBERS: Final = 12
_COLUMNS: Final[dict[str, int]] = {
    EventKind.ALLOWED: 1,
    EventKind.DENIED: 2,
    EventKind.THROTTLED: 3,
    EventKind.BLOCKED: 4,
    EventKind.SHADOW: 5,
}
"""Of a row's numbers, which of them a kind is counted in."""


class RowBounds(NamedTuple):
    """How many rows a minute has at most, in one region."""

    endpoints: int = 1_000
    """Names of endpoints."""
    series: int = 3_000
    """Rows by rule, endpoint and tier; beyond it each rule has one more row, for all others."""
    users: int = 500
    """Users with rows of their own. Those without are counted by endpoint, and in usage by the day."""
    user_endpoints: int = 100
    """Endpoints of each user who is counted by endpoint; the others are counted together."""


class Known(NamedTuple):
    """The rows that a minute has already."""

    series: AbstractSet[Series] = frozenset()
    users: AbstractSet[str] = frozenset()
    user_endpoints: AbstractSet[tuple[str, str]] = frozenset()
    """Users who are counted by endpoint, and each endpoint of theirs."""


_BOUNDS: Final = RowBounds()
_NOTHING: Final = Known()


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
    cache_hits: int
    """Refused from memory."""
    cache_misses: int
    """Decided by the store."""
    lease_hits: int
    record_hits: int
    record_misses: int
    latency: list[int]
    """A histogram; see `headgate.core.histogram`."""


def metric_rows(
    batch: CountBatch,
    known: Mapping[Micros, Known] | None = None,
    bounds: RowBounds = _BOUNDS,
    by_endpoint: AbstractSet[str] = frozenset(),
) -> list[MetricRow]:
    """All rows of the minutes that a batch adds to, each once; `known` is what these minutes have already.

    The users `by_endpoint` always have rows, one for each endpoint; other users have one.
    """
    known = known or {}
    totals: dict[Row, list[int]] = {}
    for count in batch.counts:
        endpoint, tier, requests = count.endpoint or "", count.tier or "", count.requests
        _add(totals, (count.minute, "", endpoint, tier, ""), count, requests, count.kind)
        for rule, kind in outcomes(count).items():
            _add(totals, (count.minute, rule, endpoint, tier, ""), count, requests, kind)
    latencies: dict[Row, dict[int, int]] = {}
    for each in batch.latencies:
        for rule in ("", *dict.fromkeys(each.rules)):
            buckets = latencies.setdefault((each.minute, rule, each.endpoint or "", each.tier or "", ""), {})
            buckets[each.bucket] = buckets.get(each.bucket, 0) + each.requests
    nothing = [0] * _NUMBERS
    rows = [
        MetricRow(*series, *totals.get(series, nothing), latency=histogram(latencies.get(series, {}).items()))  # type: ignore[arg-type, misc] # mypy cannot count them
        for series in dict.fromkeys(chain(totals, latencies))
    ]
    return _folded(rows, known, bounds) + _of_users(batch.counts, known, bounds, by_endpoint)


def _of_users(
    counts: Sequence[Count], known: Mapping[Micros, Known], bounds: RowBounds, by_endpoint: AbstractSet[str]
) -> list[MetricRow]:
    """Rows by user: of those who have one already, and of those with most requests."""
    told_apart = _told_apart(counts, known, bounds.users)
    endpoints = {minute: _UserEndpoints(each.user_endpoints, bounds.user_endpoints) for minute, each in known.items()}
    totals: dict[Row, list[int]] = {}
    for count in sorted(counts, key=lambda count: -count.requests) if by_endpoint else counts:
        minute = count.minute
        for user in (told_apart[minute] | by_endpoint) & count.users.keys():
            endpoint = ""
            if user in by_endpoint:
                room = endpoints.setdefault(minute, _UserEndpoints((), bounds.user_endpoints))
                endpoint = room.name_of(user, count.endpoint or "")
            _add(totals, (minute, "", endpoint, "", user), count, count.users[user], count.kind, of_user=True)
    return [MetricRow(*series, *numbers, latency=[]) for series, numbers in totals.items()]  # type: ignore[arg-type, misc] # mypy cannot count them


class _UserEndpoints:
    """The endpoints of users who are counted by endpoint, in one minute."""

    def __init__(self, known: Iterable[tuple[str, str]], most: int) -> None:
        self._most = most
        self._names: dict[str, set[str]] = {}
        for user, endpoint in known:
            self._names.setdefault(user, set()).add(endpoint)

    def name_of(self, user: str, endpoint: str) -> str:
        """Where requests are counted: under their endpoint, or with others."""
        names = self._names.setdefault(user, set())
        if endpoint in names or endpoint in _UNNAMED:
            return endpoint
        if len(names - _UNNAMED) >= self._most:
            return OTHER
        names.add(endpoint)
        return endpoint


def _told_apart(counts: Sequence[Count], known: Mapping[Micros, Known], most: int) -> dict[Micros, AbstractSet[str]]:
    """By minute, users with a row of their own: of those who have none yet the ones with most requests."""
    requests_by_user: dict[Micros, dict[str, int]] = {}
    for count in counts:
        add_up(requests_by_user.setdefault(count.minute, {}), named(count.users))
    found: dict[Micros, AbstractSet[str]] = {}
    for minute, users in requests_by_user.items():
        users.pop("", None)
        there = known.get(minute, _NOTHING).users
        room = max(0, most - len(there))
        new = users.keys() - there if there else users.keys()
        if len(new) > room:
            # The order of names among equals: another batch of the same minute then has the same ones.
            new = set(sorted(new, key=lambda user: (-users[user], user))[:room])
        found[minute] = new | there
    return found


def _folded(rows: Iterable[MetricRow], known: Mapping[Micros, Known], bounds: RowBounds) -> list[MetricRow]:
    """The rows, with those that have no room in their minute added to `(other)`."""
    by_minute: dict[Micros, list[MetricRow]] = {}
    for row in rows:
        by_minute.setdefault(row.minute, []).append(row)
    found: list[MetricRow] = []
    for minute, some in by_minute.items():
        room = _Room(known.get(minute, _NOTHING).series, bounds)
        requests: Counter[str] = Counter()
        for row in some:
            requests[row.endpoint] += row.total if not row.rule else 0
        kept: dict[Series, MetricRow] = {}
        for row in sorted(some, key=lambda row: (-requests[row.endpoint], row[1:4])):
            series = room.series_of(row.rule, row.endpoint, row.tier)
            kept[series] = (
                row._replace(endpoint=series[1], tier=series[2]) if series not in kept else _sum(kept[series], row)
            )
        found += kept.values()
    return found


class _Room:
    """The rows of one minute: those that exist, and how many more may be made."""

    def __init__(self, known: AbstractSet[Series], bounds: RowBounds) -> None:
        self._series = set(known)
        self._names = {endpoint for _, endpoint, _ in known} - _UNNAMED
        self._bounds = bounds

    def series_of(self, rule: str, endpoint: str, tier: str) -> Series:
        """Where requests are counted: in a row of their own, or with others of the rule and tier, or of the rule."""
        may_be_named = endpoint in _UNNAMED or endpoint in self._names or len(self._names) < self._bounds.endpoints
        if may_be_named and self._has((rule, endpoint, tier)):
            self._names |= {endpoint} - _UNNAMED
            return (rule, endpoint, tier)
        if self._has((rule, OTHER, tier)):
            return (rule, OTHER, tier)
        return (rule, OTHER, OTHER)

    def _has(self, series: Series) -> bool:
        """Whether a row exists, or has room."""
        if series not in self._series:
            if len(self._series) >= self._bounds.series:
                return False
            self._series.add(series)
        return True


def _sum(one: MetricRow, other: MetricRow) -> MetricRow:
    """Two rows of one series as one."""
    numbers = map(add, one[5:-1], other[5:-1])
    return MetricRow(*one[:5], *numbers, latency=added(one.latency, other.latency))  # type: ignore[misc] # mypy cannot count them


def _add(
    totals: dict[Row, list[int]], row: Row, count: Count, requests: int, kind: str | None, *, of_user: bool = False
) -> None:
    """Add requests of a count to a row; what was known already is not counted by user."""
    numbers = totals.setdefault(row, [0] * _NUMBERS)
    numbers[_TOTAL] += requests
    if kind is not None:
        numbers[_COLUMNS[kind]] += requests
    if count.is_degraded:
        numbers[_DEGRADED] += requests
    if of_user:
        return
    denials, leases, *records = count.caches
    decided = requests - denials - leases if count.charged and not count.is_degraded else 0
    numbers[_CACHES:] = map(add, numbers[_CACHES:], (denials, decided, leases, *records))
