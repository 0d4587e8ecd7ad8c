"""What the recorder counts: groups of alike requests, and the bounds on what they take of memory and disk.

Callers choose paths, tiers, costs and users. So bounds hold for the names that are counted separately in each minute,
and for the groups, and the users in them, between two calls of `take` (these are only reached if the disk hangs).
What exceeds a bound is counted together, exactly: the sums of requests and of costs stay the same.
"""

from __future__ import annotations

from collections import Counter
from operator import add
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from headgate.core.counts import OTHER, CacheUse, Count, LatencyBucket
from headgate.core.event import EventKind
from headgate.core.histogram import bucket_of
from headgate.core.units import MINUTE, SECOND

if TYPE_CHECKING:
    Group: TypeAlias = tuple[list[str | None], list[float], list[int]]
    """The user of each of some alike requests, how long those took that were timed, and how many were refused by the
    deny cache and decided by a lease."""
    Charged: TypeAlias = tuple[str | int, ...]
    """The limits that are enforced: the id of the rule and what it charges, one pair after the other."""
    Outcome: TypeAlias = tuple[Any, ...]
    """`PLAIN`, `DENIED`, or as `PLAIN`: kind, rule, whether it is degraded, and what is beside."""
    Key: TypeAlias = tuple[int, str | None, str | None, Charged, Outcome]
    """All that is counted of a request but the user: minutes since 1970, tier, endpoint, and these two."""

MAX_ENDPOINTS: Final = 1_000
"""Names of endpoints that this process counts separately in a minute."""
MAX_TIERS: Final = 100
_MINUTES: Final = 4
"""Whose names are remembered: servers whose clocks differ decide in several minutes at once."""
MAX_GROUPS: Final = 20_000
"""Groups of alike requests between two calls of `take`."""
MAX_USERS: Final = 200_000
"""Users in all groups between two calls of `take`. With the longest names they take about 80 MB."""
MAX_NAME: Final = 255
"""Characters of a user's id, an endpoint or a key. A longer one is counted under `(other)`."""
PLAIN: Final = (EventKind.ALLOWED.value, None, False, ())
"""What became of requests that simply passed; it is not part of keys."""
DENIED: Final = (EventKind.DENIED.value,)
"""The end of a key: the one rule that applied has denied. By far the most frequent of what does not simply pass."""


class Groups:
    """The requests since the last `take`."""

    def __init__(self) -> None:
        """Nothing yet."""
        self._groups: dict[Key, Group] = {}
        self._counted: dict[Key, Counter[str | None]] = {}
        self._times: dict[Key, Counter[int]] = {}
        """How often requests took about how long."""
        self._above: dict[Key, list[int]] = {}
        """What has no group: requests, and what each rule has charged for all of them."""
        self._names: dict[int, tuple[_Names, _Names]] = {}
        """Endpoints and tiers that are counted separately, by minute."""

    def of(self, key: Key) -> Group | None:
        """The lists that requests of a key are appended to; None if there are too many, and this one is counted."""
        return self._groups.get(key) or self._new(key)

    def fold(self) -> None:
        """Count users and times instead of keeping each of them."""
        is_full = sum(map(len, self._counted.values())) >= MAX_USERS
        for key, (users, latencies, _) in self._groups.items():
            if users:
                counted = self._counted.setdefault(key, Counter())
                counted.update([user if user in counted else None for user in users] if is_full else users)
                users.clear()
            if latencies:
                buckets = [bucket_of(int(latency * SECOND)) for latency in latencies]
                self._times.setdefault(key, Counter()).update(buckets)
                latencies.clear()

    def take(self) -> tuple[list[Count], list[LatencyBucket]]:
        """Everything since the last call."""
        self.fold()
        counts = [
            Count(
                minute * MINUTE,
                users,
                tier,
                endpoint,
                *_end(charged, outcome),
                CacheUse(*self._groups[minute, tier, endpoint, charged, outcome][2]),
            )
            for (minute, tier, endpoint, charged, outcome), users in self._counted.items()
        ]
        latencies = [
            LatencyBucket(minute * MINUTE, tier, endpoint, _rules(charged, outcome), bucket, number)
            for (minute, tier, endpoint, charged, outcome), buckets in self._times.items()
            for bucket, number in buckets.items()
        ]
        for key, (requests, *costs) in self._above.items():
            counts += _ungrouped(key, requests, costs)
        self._counted, self._times, self._above = {}, {}, {}
        self._groups.clear()
        return counts, latencies

    def _new(self, key: Key) -> Group | None:
        minute, tier, endpoint, charged, outcome = key
        if minute not in self._names:
            if len(self._names) >= _MINUTES:
                del self._names[next(iter(self._names))]
            self._names[minute] = _Names(MAX_ENDPOINTS), _Names(MAX_TIERS)
        endpoints, tiers = self._names[minute]
        key = (minute, tiers.name(tier), endpoints.name(endpoint), charged, outcome)
        if len(self._groups) < MAX_GROUPS or key in self._groups:
            return self._groups.setdefault(key, ([], [], [0, 0]))
        above = self._above.setdefault((minute, OTHER, OTHER, charged[::2], outcome), [0, *[0] * (len(charged) // 2)])
        above[:] = map(add, above, (1, *charged[1::2]))
        return None


class _Names:
    """Names that are counted separately."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: set[str] = set()

    def name(self, name: str | None) -> str | None:
        """The name itself, or `(other)` where there are too many or it is too long."""
        if not name or name in self._known:
            return name or None
        if len(self._known) >= self._most or len(name) > MAX_NAME:
            return OTHER
        self._known.add(name)
        return name


def _ungrouped(key: Key, requests: int, costs: list[int]) -> list[Count]:
    """What has no group as counts: one request has all costs, and the others cost nothing."""
    minute, tier, endpoint, rules, outcome = key
    found = []
    for number, charges in ((requests - 1, [0] * len(costs)), (1, costs)):
        charged = tuple([part for pair in zip(rules, charges, strict=True) for part in pair])
        found.append(Count(minute * MINUTE, {None: number}, tier, endpoint, *_end(charged, outcome)))
    return [count for count in found if count.requests]


def _end(charged: Charged, outcome: Outcome) -> tuple[bool, Charged, str, str | None, tuple[str | None, ...]]:
    """The end of a count."""
    if outcome is DENIED:
        return False, charged, EventKind.DENIED.value, str(charged[0]), ()
    kind, rule, is_degraded, also = outcome
    return is_degraded, charged, kind, rule, also


def _rules(charged: Charged, outcome: Outcome) -> tuple[str, ...]:
    """All rules that applied."""
    return (*charged[::2], *_end(charged, outcome)[4][::2])  # type: ignore[arg-type] # names at every other index
