"""Rates of the last seconds, from the counters that all processes of the service report.

The counters are read once a second, and once more when they are asked for and the last reading is older than a
quarter of a second. A decision is in the counters within half a second, or within a second if another process of the
service made it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.adapters.clock import monotonic

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from headgate.core.metrics import Sample
    from headgate.core.units import Micros

OUTCOMES: Final = ("allowed", "denied", "throttled", "blocked", "shadow", "degraded")
"""What became of requests; `degraded` ones are in the others too."""
MAX_HISTORY: Final = 300
"""Readings that are kept: five minutes."""
WINDOW: Final = 60.0
"""Seconds that the figures of rules and decision times are over."""
_SECONDS_BETWEEN: Final = 1.0
FRESH: Final = 0.25
"""Seconds for which a reading, and what is made of it, is as good as new."""
_SMOOTHING: Final = 3.0
"""Counts arrive every half second, so the rate over one second would jump by as much."""
_SECONDS_BETWEEN_DETAILS: Final = 5.0
_TRUE: Final = "true"
_DEGRADED: Final = "degraded"
_INFINITE: Final = "+Inf"


class Reading(NamedTuple):
    """The counters at one time."""

    at: float
    """By a clock that only goes forward, in seconds."""
    time: Micros
    totals: Mapping[str, float]
    """By outcome."""
    others: Mapping[tuple[str, str], float]
    """Counters that tell of trouble, by metric and first label."""


class Details(NamedTuple):
    """What is kept for a minute only."""

    at: float
    rules: Mapping[tuple[str, str], float]
    """By rule and outcome."""
    latencies: Mapping[str, float]
    """By the upper end of a bucket, as the metric has it; each counts those below it too."""


TROUBLE: Final = (
    "headgate_checks_shed_total",
    "headgate_degraded_limits_total",
    "headgate_events_dropped_total",
    "headgate_sink_dropped_total",
)
"""Counters whose growth is a reason for concern."""


class LiveRates:
    """Reads the counters, and says how fast they grow."""

    def __init__(
        self, gather: Callable[[], Sequence[Sample]], wall: Callable[[], Micros], clock: Callable[[], float] = monotonic
    ) -> None:
        """`gather` gives the samples of all processes."""
        self._gather = gather
        self._wall = wall
        self._clock = clock
        self._readings: deque[Reading] = deque(maxlen=MAX_HISTORY + int(_SMOOTHING) + 1)
        self._details: deque[Details] = deque(maxlen=int(WINDOW / _SECONDS_BETWEEN_DETAILS) + 1)
        self._newest: Details | None = None
        self.samples: Sequence[Sample] = ()
        """All samples at the last reading."""

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        """Read the counters inside the block."""
        task = asyncio.create_task(self._keep_reading())
        try:
            yield
        finally:
            task.cancel()

    async def _keep_reading(self) -> None:
        while True:
            self.read()
            await asyncio.sleep(_SECONDS_BETWEEN)

    def refresh(self) -> None:
        """Read the counters, unless that was just done."""
        if self._newest is None or self._clock() - self._newest.at >= FRESH:
            self.read(keep=False)

    def read(self, *, keep: bool = True) -> None:
        """Read the counters; without `keep` they take the place of the last reading, which is just as old."""
        now = self._clock()
        self.samples = samples = self._gather()
        totals = dict.fromkeys(OUTCOMES, 0.0)
        others: dict[tuple[str, str], float] = {}
        rules: dict[tuple[str, str], float] = {}
        latencies: dict[str, float] = {}
        for name, value, labels in samples:
            if name == "headgate_decisions_total":
                totals[labels[0]] = totals.get(labels[0], 0.0) + value
                if labels[1] == _TRUE:
                    totals[_DEGRADED] += value
            elif name == "headgate_rule_decisions_total":
                key = labels[0], labels[1]
                rules[key] = rules.get(key, 0.0) + value
            elif name == "headgate_decision_seconds_bucket":
                latencies[labels[-1]] = value
            elif name in TROUBLE:
                which = name, labels[0] if labels else ""
                others[which] = others.get(which, 0.0) + value
        self._newest = Details(now, rules, latencies)
        reading = Reading(now, self._wall(), totals, others)
        if not keep and self._readings:
            self._readings[-1] = reading
            return
        self._readings.append(reading)
        if not self._details or now - self._details[-1].at >= _SECONDS_BETWEEN_DETAILS:
            self._details.append(self._newest)

    def rates(self) -> dict[str, float]:
        """Requests per second of each outcome, over the last three seconds."""
        if not self._readings:
            return dict.fromkeys(OUTCOMES, 0.0)
        return self._rates_at(len(self._readings) - 1)

    def history(self, most: int) -> list[tuple[Micros, dict[str, float]]]:
        """The rates at each of the last seconds, the oldest first."""
        first = max(1, len(self._readings) - most)
        return [(self._readings[index].time, self._rates_at(index)) for index in range(first, len(self._readings))]

    def _rates_at(self, index: int) -> dict[str, float]:
        readings, last = self._readings, self._readings[index]
        first = last
        for before in range(index - 1, max(-1, index - int(_SMOOTHING) - 2), -1):
            first = readings[before]
            if last.at - first.at >= _SMOOTHING:
                break
        seconds = last.at - first.at
        if seconds <= 0:
            return dict.fromkeys(OUTCOMES, 0.0)
        return {name: max(0.0, total - first.totals.get(name, 0.0)) / seconds for name, total in last.totals.items()}

    def grown(self, name: str, label: str | None = None, seconds: float = 10.0) -> float:
        """By how much a counter of `TROUBLE` has grown in the last seconds: one label's, or all of them together."""
        if not self._readings:
            return 0.0
        last = self._readings[-1]
        first = next((each for each in self._readings if last.at - each.at <= seconds), last)
        return sum(
            max(0.0, value - first.others.get(key, 0.0))
            for key, value in last.others.items()
            if key[0] == name and label in (None, key[1])
        )

    def rules(self) -> dict[str, dict[str, float]]:
        """Requests per second by rule and outcome, over the last minute."""
        newest, oldest, seconds = self._minute()
        found: dict[str, dict[str, float]] = {}
        if newest is None or oldest is None or seconds <= 0:
            return found
        for (rule, outcome), value in newest.rules.items():
            grown = value - oldest.rules.get((rule, outcome), 0.0)
            if grown > 0:
                found.setdefault(rule, {})[outcome] = grown / seconds
        return found

    def decision_times(self) -> tuple[int, float | None, float | None]:
        """How many decisions of the last minute were timed, and their median and 99th percentile in seconds."""
        newest, oldest, _ = self._minute()
        if newest is None or oldest is None:
            return 0, None, None
        grown = [
            (float("inf") if end == _INFINITE else float(end), value - oldest.latencies.get(end, 0.0))
            for end, value in newest.latencies.items()
        ]
        grown.sort()
        total = grown[-1][1] if grown else 0.0
        if total <= 0:
            return 0, None, None
        return int(total), _quantile(grown, 0.5 * total), _quantile(grown, 0.99 * total)

    def _minute(self) -> tuple[Details | None, Details | None, float]:
        newest = self._newest
        oldest = self._details[0] if self._details else None
        return newest, oldest, 0.0 if newest is None or oldest is None else newest.at - oldest.at


def _quantile(cumulative: Sequence[tuple[float, float]], wanted: float) -> float:
    """The time below which `wanted` of all are, evenly spread within a bucket."""
    low, below = 0.0, 0.0
    for high, count in cumulative:
        if count >= wanted and count > below:
            return low if high == float("inf") else low + (high - low) * (wanted - below) / (count - below)
        low, below = high, count
    return low  # pragma: no cover (the last bucket counts all)
