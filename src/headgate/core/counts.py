"""How often what happened, counted exactly whatever is recorded as events, minute by minute.

A process counts alike requests together (`Count`, `Took`). Where they are kept they become rows of the
tables: `metric_rows` by rule, endpoint, tier and user, and `usage_columns` by day, rule and user.

There may be very many users, so what is done for each of them is done by `dict`, not step by step.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain, islice, repeat
from operator import add
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

from headgate.core.event import EventKind
from headgate.core.histogram import histogram
from headgate.core.units import DAY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from headgate.core.units import Micros

    Place: TypeAlias = tuple[Micros, str, str, str, str]

K = TypeVar("K")

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
    """Requests of one minute that are alike, but for who made them."""

    minute: Micros
    """Its beginning."""
    users: Mapping[str | None, int]
    """How many requests each has made; None and '' are nobody in particular."""
    tier: str | None
    endpoint: str | None
    """The route, where a framework names it, or the path; only so many of them are told apart."""
    is_degraded: bool
    charged: tuple[str | int, ...]
    """The limits that are enforced: the name of the rule and what it charges, one pair after the other."""
    kind: str
    """An `EventKind`, as text."""
    rule: str | None
    """The rule that denied, blocked, held back or would have denied."""
    also: tuple[str | None, ...] = ()
    """See `headgate.core.event.beside`: rules that charge nothing, and those that made a request wait."""

    @property
    def requests(self) -> int:
        """How many there are of all users."""
        return sum(self.users.values())


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

    @property
    def size(self) -> int:
        """So many numbers of its stream a batch takes: one for each user of each count, and one for each time."""
        return sum([len(count.users) for count in self.counts]) + len(self.took)


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


class UsageColumns(NamedTuple):
    """What is added to users' days under each rule; the rule '' counts each request once, and charges nothing.

    The user '' is nobody in particular, so that all rows of a day add up to all requests.
    """

    days: list[Micros]
    rules: list[str]
    users: list[str]
    requests: list[int]
    denied: list[int]
    costs: list[int]


def cut(counts: Iterable[Count], most: int) -> Iterator[list[Count]]:
    """The same counts in parts, each with so many users at most: what is larger is in several of them."""
    part: list[Count] = []
    room = most
    for count in counts:
        if len(count.users) < room:  # nearly always: nothing to cut
            part.append(count)
            room -= len(count.users)
            continue
        users = iter(count.users.items())
        while some := dict(islice(users, room)):
            part.append(count._replace(users=some))
            room -= len(some)
            if not room:
                yield part
                part, room = [], most
    if part:
        yield part


def add_up(totals: dict[K, int], more: Mapping[K, int]) -> None:
    """Add numbers to those that are there under the same names."""
    if totals:
        totals.update(zip(more, map(add, more.values(), map(totals.get, more, repeat(0))), strict=True))
    else:
        totals.update(more)


def added_up(batches: Sequence[CountBatch]) -> CountBatch:
    """Batches of one region as one, under the name of the first."""
    if len(batches) == 1:
        return batches[0]
    users: dict[tuple[Any, ...], dict[str | None, int]] = {}
    times: Counter[Took] = Counter()
    for batch in batches:
        for minute, of_each, *alike in batch.counts:
            add_up(users.setdefault((minute, *alike), {}), of_each)
        for took in batch.took:
            times[took._replace(requests=0)] += took.requests
    counts = [Count(minute, of_each, *alike) for (minute, *alike), of_each in users.items()]
    return batches[0]._replace(counts=counts, took=[took._replace(requests=many) for took, many in times.items()])


def metric_rows(
    batch: CountBatch, most_users: int = MOST_USERS, most_endpoints: int = MOST_ENDPOINTS
) -> list[MetricRow]:
    """All rows of the minutes that a batch adds to: each place once."""
    batch = _told_apart(batch, most_endpoints)
    totals: dict[Place, list[int]] = {}
    for count in batch.counts:
        endpoint, tier, requests = count.endpoint or "", count.tier or "", count.requests
        _add(totals, (count.minute, "", endpoint, tier, ""), count, requests, count.kind)
        for rule, kind in outcomes(count).items():
            _add(totals, (count.minute, rule, endpoint, tier, ""), count, requests, kind)
    busiest = _busiest(batch.counts, most_users)
    for count in batch.counts:
        for user in busiest[count.minute].keys() & count.users.keys():
            _add(totals, (count.minute, "", "", "", user), count, count.users[user], count.kind)
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


def _busiest(counts: Sequence[Count], most: int) -> dict[Micros, dict[str, int]]:
    """By minute, those users who asked most, so many in all (one at least)."""
    asked: dict[Micros, dict[str, int]] = {}
    for count in counts:
        add_up(asked.setdefault(count.minute, {}), _named(count.users))
    for users in asked.values():
        users.pop("", None)
    if sum(map(len, asked.values())) <= most:
        return asked
    numbers = sorted(chain.from_iterable(map(dict.values, asked.values())), reverse=True)
    least = numbers[most - 1]
    room = most - numbers.index(least)  # for those who asked no more often than the last of them
    busiest: dict[Micros, dict[str, int]] = {}
    for minute, users in sorted(asked.items()):
        more = [user for user, requests in users.items() if requests > least]
        last = [user for user, requests in users.items() if requests == least]
        # By name, so that another batch of the same minute has the same ones.
        busiest[minute] = {user: users[user] for user in more + sorted(last)[:room]}
        room = max(0, room - len(last))
    return busiest


def usage_columns(batch: CountBatch) -> UsageColumns:
    """All rows of users' days that a batch adds to: each once, in the order of day, rule and user."""
    totals: dict[tuple[Micros, str], tuple[dict[str, int], dict[str, int], dict[str, int]]] = {}
    for count in batch.counts:
        day, users, has_passed = count.minute - count.minute % DAY, _named(count.users), count.kind in _PASSED
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


def _named(users: Mapping[str | None, int]) -> Mapping[str, int]:
    """The same with nobody under one name, which is ''."""
    if None not in users:
        return users  # type: ignore[return-value] # all keys are texts
    nobody = users[None] + users.get("", 0)
    return {**{user: number for user, number in users.items() if user}, "": nobody}


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


def _add(totals: dict[Place, list[int]], place: Place, count: Count, requests: int, kind: str | None) -> None:
    """Add so many requests of a count to a row."""
    numbers = totals.setdefault(place, [0] * 7)
    numbers[_TOTAL] += requests
    if kind is not None:
        numbers[_COLUMNS[kind]] += requests
    if count.is_degraded:
        numbers[_DEGRADED] += requests
