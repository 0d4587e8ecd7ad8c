"""What was decided since the start, in sums of a bounded number: from the counts that are made anyway."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Final

from headgate.core.counts import outcomes
from headgate.core.histogram import BUCKETS, bounds
from headgate.core.metrics import Sample
from headgate.core.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headgate.core.counts import Count, Took

MOST_RULES: Final = 200
"""That are told apart. Each is three or four time series in Prometheus, in every process that it asks."""
OTHER: Final = "(other)"
_ENDS: Final = tuple(bucket for bucket in range(BUCKETS) if 2**5 <= bounds(bucket)[1] <= 2**23 and bucket % 2)
"""The buckets that end where one of Prometheus ends: twice for each doubling, from 32 µs to 8 s."""
_LATENCY: Final = "headgate_decision_seconds"


class DecisionTotals:
    """Adds up counts of decisions."""

    def __init__(self, most_rules: int = MOST_RULES) -> None:
        """Nothing is counted yet."""
        self._most_rules = most_rules
        self._decisions: dict[tuple[str, str], int] = {}
        self._rules: dict[str, dict[tuple[str, str], int]] = {}
        self._latency = [0] * BUCKETS

    def add(self, counts: Iterable[Count], took: Iterable[Took]) -> None:
        """Add what was counted since the last time."""
        # Many differ in their minute, tier or endpoint only, so what is worked out for each is next to nothing.
        alike: dict[tuple[object, ...], tuple[Count, int]] = {}
        for count in counts:
            key, requests = count[4:], count.requests
            before = alike.get(key)
            alike[key] = (count, requests if before is None else before[1] + requests)
        for count, requests in alike.values():
            degraded = "true" if count.is_degraded else "false"
            _add(self._decisions, (count.kind, degraded), requests)
            for rule, outcome in outcomes(count).items():
                if outcome is not None:  # else another rule has denied it
                    _add(self._of(rule), (outcome, degraded), requests)
        for each in took:
            self._latency[each.bucket] += each.requests

    def samples(self) -> Iterator[Sample]:
        """The sums so far."""
        for labels, number in self._decisions.items():
            yield Sample("headgate_decisions_total", number, labels)
        for rule, found in self._rules.items():
            for labels, number in found.items():
                yield Sample("headgate_rule_decisions_total", number, (rule, *labels))
        below = [*accumulate(self._latency)]
        for bucket in _ENDS:
            yield Sample(f"{_LATENCY}_bucket", below[bucket], (f"{bounds(bucket)[1] / SECOND}",))
        yield Sample(f"{_LATENCY}_bucket", below[-1], ("+Inf",))
        yield Sample(f"{_LATENCY}_count", below[-1])
        # Each time is known to its bucket only, so it is taken for the middle of it.
        middles = sum(number * sum(bounds(bucket)) / 2 for bucket, number in enumerate(self._latency))
        yield Sample(f"{_LATENCY}_sum", middles / SECOND)

    def _of(self, rule: str) -> dict[tuple[str, str], int]:
        if rule not in self._rules and len(self._rules) >= self._most_rules:
            rule = OTHER
        return self._rules.setdefault(rule, {})


def _add(numbers: dict[tuple[str, str], int], key: tuple[str, str], number: int) -> None:
    numbers[key] = numbers.get(key, 0) + number
