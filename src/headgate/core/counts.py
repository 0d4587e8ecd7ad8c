"""Exact counts of what was decided, by minute, however few decisions are recorded as events.

A process counts alike requests together (`Count`, `LatencyBucket`). Where they are kept they become rows of the
tables: by rule, endpoint, tier and user (`headgate.core.metric_rows`), and `usage_columns` by day, rule and user.

There may be very many users, so work on each of them is done by methods of `dict`, not by loops in Python.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice, repeat
from operator import add
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from headgate.core.event import EventKind
from headgate.core.units import DAY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from headgate.core.units import Micros

K = TypeVar("K")

OTHER: Final = "(other)"
_PASSED: Final = frozenset({EventKind.ALLOWED, EventKind.THROTTLED, EventKind.SHADOW})


class CacheUse(NamedTuple):
    """How often a request was answered, or a record found, without a call."""

    denials: int = 0
    """Requests that were refused from memory: the deny cache knew."""
    leases: int = 0
    """Requests that were decided by a lease that the process held."""
    record_hits: int = 0
    """Users and API keys whose record was in memory."""
    record_misses: int = 0
    """Those whose record had to be looked up."""


NO_CACHE_USE: Final = CacheUse()


class Count(NamedTuple):
    """Requests of one minute that are alike, but for who made them."""

    minute: Micros
    """When it began."""
    users: Mapping[str | None, int]
    """How many requests each has made; None and '' stand for requests without a user."""
    tier: str | None
    endpoint: str | None
    """The route, where a framework names it, or the path; only a bounded number of them is counted separately."""
    is_degraded: bool
    charged: tuple[str | int, ...]
    """The enforced limits: pairs of a rule's id and what it charges."""
    kind: str
    """An `EventKind`, as text."""
    rule: str | None
    """The id of the rule that denied, blocked, held back or would have denied."""
    also: tuple[str | None, ...] = ()
    """See `headgate.core.event.beside`: rules that charge nothing, and those that made a request wait."""
    caches: CacheUse = NO_CACHE_USE
    """Of all of them together."""

    @property
    def requests(self) -> int:
        """How many there are of all users."""
        return sum(self.users.values())


class LatencyBucket(NamedTuple):
    """The number of decisions in one minute that took about the same time."""

    minute: Micros
    tier: str | None
    endpoint: str | None
    rules: tuple[str, ...]
    bucket: int
    """See `headgate.core.histogram`."""
    requests: int


class KeyCount(NamedTuple):
    """Requests of one day with one API key."""

    day: Micros
    """When it began."""
    key: str
    """The key's id, or the digest of one that is not ours; `(other)` for those that are not counted separately."""
    requests: int
    denied: int
    """Of these, those that were refused."""


class CountBatch(NamedTuple):
    """Counts that are sent together. A sink stores each batch id once."""

    id: str
    server: str
    region: str
    counts: list[Count]
    latencies: list[LatencyBucket]
    keys: tuple[KeyCount, ...] = ()

    @property
    def size(self) -> int:
        """How many numbers of its stream a batch takes: one for each user of each count, each time and each key."""
        return sum([len(count.users) for count in self.counts]) + len(self.latencies) + len(self.keys)


class UsageColumns(NamedTuple):
    """What is added to users' days under each rule; the rule '' counts each request once, and charges nothing.

    The user '' stands for requests without a user, so that all rows of a day add up to all requests.
    """

    days: list[Micros]
    rules: list[str]
    users: list[str]
    requests: list[int]
    denied: list[int]
    costs: list[int]


def cut(counts: Iterable[Count], most: int) -> Iterator[list[Count]]:
    """The same counts in parts with a bounded number of users each: a larger count is split over several parts."""
    part: list[Count] = []
    room = most
    for count in counts:
        if len(count.users) < room:  # nearly always: nothing to cut
            part.append(count)
            room -= len(count.users)
            continue
        users = iter(count.users.items())
        caches = count.caches  # in one part of it only
        while some := dict(islice(users, room)):
            part.append(count._replace(users=some, caches=caches))
            caches = NO_CACHE_USE
            room -= len(some)
            if not room:
                yield part
                part, room = [], most
    if part:
        yield part


def add_up(totals: dict[K, int], more: Mapping[K, int]) -> None:
    """Add numbers to those that exist under the same names."""
    if totals:
        totals.update(zip(more, map(add, more.values(), map(totals.get, more, repeat(0))), strict=True))
    else:
        totals.update(more)


def added_up(batches: Sequence[CountBatch]) -> CountBatch:
    """Batches of one region as one, under the name of the first."""
    if len(batches) == 1:
        return batches[0]
    users: dict[tuple[Any, ...], dict[str | None, int]] = {}
    uses: dict[tuple[Any, ...], CacheUse] = {}
    keys: dict[tuple[Micros, str], list[int]] = {}
    times: Counter[LatencyBucket] = Counter()
    for batch in batches:
        for minute, of_each, *alike, caches in batch.counts:
            add_up(users.setdefault((minute, *alike), {}), of_each)
            if caches != NO_CACHE_USE:
                uses[minute, *alike] = CacheUse(*map(add, uses.get((minute, *alike), NO_CACHE_USE), caches))
        for day, key, *numbers in batch.keys:
            keys[day, key] = [*map(add, keys.get((day, key), (0, 0)), numbers)]
        for each in batch.latencies:
            times[each._replace(requests=0)] += each.requests
    counts = [
        Count(minute, of_each, *alike)._replace(caches=uses.get((minute, *alike), NO_CACHE_USE))
        for (minute, *alike), of_each in users.items()
    ]
    return batches[0]._replace(
        counts=counts,
        latencies=[each._replace(requests=many) for each, many in times.items()],
        keys=tuple([KeyCount(day, key, *numbers) for (day, key), numbers in keys.items()]),
    )


def usage_columns(batch: CountBatch) -> UsageColumns:
    """All rows of users' days that a batch adds to: each once, in the order of day, rule and user."""
    totals: dict[tuple[Micros, str], tuple[dict[str, int], dict[str, int], dict[str, int]]] = {}
    for count in batch.counts:
        day, users, has_passed = count.minute - count.minute % DAY, named(count.users), count.kind in _PASSED
        for rule, cost in {"": 0, **dict(_pairs(count.charged))}.items():
            requests, denied, costs = totals.setdefault((day, rule), ({}, {}, {}))
            add_up(requests, users)
            if not has_passed and rule in {"", count.rule}:
                add_up(denied, users)
            if has_passed and cost:
                add_up(costs, users if cost == 1 else {user: cost * number for user, number in users.items()})
    columns = UsageColumns([], [], [], [], [], [])
    for (day, rule), (requests, denied, costs) in sorted(totals.items()):
        names = sorted(requests)
        columns.days.extend(repeat(day, len(names)))
        columns.rules.extend(repeat(rule, len(names)))
        columns.users.extend(names)
        columns.requests.extend(map(requests.__getitem__, names))
        columns.denied.extend(map(denied.get, names, repeat(0)))
        columns.costs.extend(map(costs.get, names, repeat(0)))
    return columns


def named(users: Mapping[str | None, int]) -> Mapping[str, int]:
    """The same counts, with all requests without a user under ''."""
    if None not in users:
        return users  # type: ignore[return-value] # all keys are texts
    unnamed = users[None] + users.get("", 0)
    return {**{user: number for user, number in users.items() if user}, "": unnamed}


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
