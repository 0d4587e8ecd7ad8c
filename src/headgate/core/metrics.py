"""All metrics, and the text that Prometheus reads, in its format 0.0.4.

`DecisionTotals` sums what was decided since the start, from the counts that are made anyway. The number of sums is
bounded.
"""

from __future__ import annotations

from enum import StrEnum
from itertools import accumulate
from math import isfinite
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.core.counts import outcomes
from headgate.core.histogram import BUCKETS, bounds
from headgate.core.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headgate.core.counts import Count, LatencyBucket


class MetricKind(StrEnum):
    """What Prometheus makes of a metric."""

    COUNTER = "counter"
    """Only ever grows, and is added up over processes."""
    GAUGE = "gauge"
    """How things stand in one process."""
    HISTOGRAM = "histogram"
    """A counter for each of several sizes."""


class Metric(NamedTuple):
    """One metric. None of its labels holds a value that an unauthenticated caller can choose."""

    name: str
    kind: MetricKind
    meaning: str
    labels: tuple[str, ...] = ()


class Sample(NamedTuple):
    """One number."""

    name: str
    """The metric's; of a histogram with ``_bucket``, ``_sum`` or ``_count`` after it."""
    value: float
    labels: tuple[str, ...] = ()
    """Their values, in the metric's order; of a bucket its upper end after them."""


_COUNTER, _GAUGE, _HISTOGRAM = MetricKind
_WORKER: Final = ("worker",)
_SINK: Final = ("stream", "sink")

METRICS: Final = {
    metric.name: metric
    for metric in (
        # Decisions
        Metric("headgate_decisions_total", _COUNTER, "Requests decided, each counted once.", ("outcome", "degraded")),
        Metric(
            "headgate_rule_decisions_total",
            _COUNTER,
            "Requests by each rule that applied and what became of them under it.",
            ("rule", "outcome", "degraded"),
        ),
        Metric("headgate_decision_seconds", _HISTOGRAM, "How long decisions took, of all or of a sample."),
        Metric("headgate_http_requests_total", _COUNTER, "Answers of the decision service.", ("endpoint", "status")),
        Metric(
            "headgate_identity_assumed_total",
            _COUNTER,
            "Requests whose caller's record could not be read, so that tier and limits were assumed.",
        ),
        Metric(
            "headgate_record_cache_hits_total", _COUNTER, "Records of users and keys that were in a process's memory."
        ),
        Metric("headgate_record_cache_misses_total", _COUNTER, "Records that had to be looked up elsewhere."),
        Metric("headgate_record_cache_entries", _GAUGE, "Records, and names without one, in memory.", _WORKER),
        Metric(
            "headgate_connections_closed_total",
            _COUNTER,
            "Connections that the service closed on its own account, by port and reason.",
            ("port", "reason"),
        ),
        Metric(
            "headgate_sign_ins_refused_total",
            _COUNTER,
            "Calls that were refused because their token was missing or wrong, by port and reason.",
            ("port", "reason"),
        ),
        Metric(
            "headgate_malformed_calls_total",
            _COUNTER,
            "Envoy's calls that were denied because a part of them is malformed, by port and reason.",
            ("port", "reason"),
        ),
        # The store
        Metric(
            "headgate_degraded_limits_total",
            _COUNTER,
            "Limits that were answered without the store, by how.",
            ("source",),
        ),
        Metric("headgate_deny_cache_hits_total", _COUNTER, "Requests refused from memory, without asking the store."),
        Metric("headgate_deny_cache_entries", _GAUGE, "Counters that the deny cache knows something of.", _WORKER),
        Metric("headgate_deny_cache_bytes", _GAUGE, "About how much memory the deny cache takes, at most.", _WORKER),
        Metric("headgate_lease_hits_total", _COUNTER, "Requests decided by leases, without asking the store."),
        Metric("headgate_lease_grants_total", _COUNTER, "Blocks that the store was asked for.", ("result",)),
        Metric("headgate_lease_granted_units_total", _COUNTER, "Units of the blocks that were granted."),
        Metric("headgate_lease_returned_units_total", _COUNTER, "Unspent units that were given back."),
        Metric("headgate_lease_expired_units_total", _COUNTER, "Of those, units of blocks that had ended."),
        Metric("headgate_lease_outstanding_units", _GAUGE, "Units counted in the store and not spent yet.", _WORKER),
        Metric(
            "headgate_hot_counter_rate",
            _GAUGE,
            "Units per second of the hottest counter of a rule, over the last minute.",
            ("worker", "rule", "mode"),
        ),
        Metric("headgate_leased_counters", _GAUGE, "Counters of which a process holds blocks.", _WORKER),
        Metric(
            "headgate_store_breaker",
            _GAUGE,
            "The breaker of a server of the store: 0 closed, 1 half open, 2 open.",
            ("worker", "server"),
        ),
        Metric("headgate_checks_in_flight", _GAUGE, "Checks that the store is deciding.", _WORKER),
        Metric("headgate_checks_waiting", _GAUGE, "Checks that wait because too many are in flight.", _WORKER),
        Metric("headgate_checks_shed_total", _COUNTER, "Checks that were refused because they waited too long."),
        Metric(
            "headgate_region_exchange_age_seconds",
            _GAUGE,
            "Seconds since another region's counts were last read, for rules with gossip.",
            ("worker", "region"),
        ),
        Metric(
            "headgate_region_silent",
            _GAUGE,
            "1 if another region's counts cannot be read, so that shares are enforced.",
            ("worker", "region"),
        ),
        Metric(
            "headgate_region_borrowed",
            _GAUGE,
            "Units borrowed from a home region and not spent yet.",
            ("worker", "region"),
        ),
        # Rules
        Metric("headgate_ready", _GAUGE, "1 if the process answers and has rules.", _WORKER),
        Metric("headgate_snapshot", _GAUGE, "The number of the active rules.", _WORKER),
        Metric("headgate_snapshot_age_seconds", _GAUGE, "Seconds since they became active.", _WORKER),
        Metric(
            "headgate_rules_confirmed_age_seconds",
            _GAUGE,
            "Seconds since the active rules were last known to be the newest.",
            _WORKER,
        ),
        Metric("headgate_rules_refused", _GAUGE, "1 if newer rules are there and were refused.", _WORKER),
        Metric("headgate_blocks", _GAUGE, "Active blocks.", _WORKER),
        Metric(
            "headgate_rules_source",
            _GAUGE,
            "1 for the source of the active rules: feed, database, saved, file or none.",
            ("worker", "source"),
        ),
        Metric(
            "headgate_rules_following",
            _GAUGE,
            "1 for where changes are heard of: feed, database or none.",
            ("worker", "source"),
        ),
        # The control plane
        Metric("headgate_feed_up", _GAUGE, "1 if the feed (Redis) tells of changes.", _WORKER),
        Metric("headgate_database_up", _GAUGE, "1 if the database answers the process that leads.", _WORKER),
        Metric("headgate_announcements_missed_total", _COUNTER, "Times that an announcement was lost."),
        Metric("headgate_documents_refused_total", _COUNTER, "Rules and blocks that were refused.", ("reason",)),
        # What is recorded
        Metric("headgate_events_emitted_total", _COUNTER, "Events of decisions."),
        Metric("headgate_events_dropped_total", _COUNTER, "Events that were lost in memory."),
        Metric("headgate_events_left_out_total", _COUNTER, "Refusals and sampled admissions that no event stands for."),
        Metric("headgate_events_waiting", _GAUGE, "Events in memory, not yet on disk.", _WORKER),
        Metric("headgate_sink_stored_total", _COUNTER, "What a sink has stored.", _SINK),
        Metric("headgate_sink_refused_total", _COUNTER, "What a sink can never take.", _SINK),
        Metric("headgate_sink_dropped_total", _COUNTER, "What was lost before a sink could read it.", _SINK),
        Metric("headgate_sink_spooled", _GAUGE, "What is on disk, still to be stored.", ("worker", *_SINK)),
        Metric("headgate_sink_lag_seconds", _GAUGE, "Since when a sink has not had everything.", ("worker", *_SINK)),
        Metric("headgate_sink_up", _GAUGE, "1 if a sink takes what it is given.", ("worker", *_SINK)),
        # The process
        Metric("headgate_build_info", _GAUGE, "Always 1; what runs here.", ("worker", "version", "python")),
        Metric(
            "headgate_process_restarts_total",
            _COUNTER,
            "How often the supervisor has started a process again because it had died.",
            _WORKER,
        ),
        Metric("process_cpu_seconds_total", _COUNTER, "Processor time.", _WORKER),
        Metric("process_resident_memory_bytes", _GAUGE, "Memory.", _WORKER),
        Metric("process_open_fds", _GAUGE, "Open files and connections.", _WORKER),
        Metric("process_max_fds", _GAUGE, "How many there may be.", _WORKER),
        Metric("process_start_time_seconds", _GAUGE, "When the process began to serve, in Unix time.", _WORKER),
    )
}

_PARTS: Final = ("_bucket", "_sum", "_count")


def metric_of(name: str) -> Metric:
    """The metric that a sample of this name belongs to."""
    metric = METRICS.get(name)
    if metric is None:
        metric = next(METRICS[name.removesuffix(part)] for part in _PARTS if name.endswith(part))
    return metric


def summed(samples: Iterable[Sample]) -> list[Sample]:
    """Samples of several processes, those of the same name and labels added up."""
    totals: dict[tuple[str, tuple[str, ...]], float] = {}
    for name, value, labels in samples:
        totals[name, labels] = totals.get((name, labels), 0) + value
    return [Sample(name, value, labels) for (name, labels), value in totals.items()]


CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_MAX_WHOLE: Final = 2**53


def exposition(samples: Iterable[Sample]) -> str:
    """All samples, those of one metric together, in the order of `METRICS`."""
    found: dict[str, list[Sample]] = {name: [] for name in METRICS}
    for sample in samples:
        found[metric_of(sample.name).name].append(sample)
    lines: list[str] = []
    for name, of_metric in found.items():
        if of_metric:
            metric = METRICS[name]
            lines += [f"# HELP {name} {metric.meaning}", f"# TYPE {name} {metric.kind.value}"]
            lines += [_line(metric, sample) for sample in of_metric]
    return "\n".join(lines) + "\n"


def _line(metric: Metric, sample: Sample) -> str:
    labels = metric.labels
    if metric.kind is MetricKind.HISTOGRAM and sample.name.endswith("_bucket"):
        labels = (*labels, "le")
    pairs = ",".join(f'{label}="{text.translate(_ESCAPES)}"' for label, text in zip(labels, sample.labels, strict=True))
    return f"{sample.name}{{{pairs}}} {_number(sample.value)}" if pairs else f"{sample.name} {_number(sample.value)}"


def _number(value: float) -> str:
    is_whole = isfinite(value) and value == int(value) and abs(value) < _MAX_WHOLE
    return str(int(value)) if is_whole else repr(float(value))


MAX_RULES: Final = 200
"""That are counted separately. Each is three or four time series in Prometheus for every process that it scrapes."""
OTHER: Final = "(other)"
_ENDS: Final = tuple(bucket for bucket in range(BUCKETS) if 2**5 <= bounds(bucket)[1] <= 2**23 and bucket % 2)
"""The buckets that end where one of Prometheus ends: twice for each doubling, from 32 µs to 8 s."""
_LATENCY: Final = "headgate_decision_seconds"


class DecisionTotals:
    """Adds up counts of decisions."""

    def __init__(self, most_rules: int = MAX_RULES) -> None:
        """Nothing is counted yet."""
        self._most_rules = most_rules
        self._decisions: dict[tuple[str, str], int] = {}
        self._rules: dict[str, dict[tuple[str, str], int]] = {}
        self._latency = [0] * BUCKETS

    def add(self, counts: Iterable[Count], latencies: Iterable[LatencyBucket]) -> None:
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
        for each in latencies:
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
