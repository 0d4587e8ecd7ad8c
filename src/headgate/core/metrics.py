"""Every metric there is, and the numbers that are reported under them."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable


class MetricKind(StrEnum):
    """What Prometheus makes of a metric."""

    COUNTER = "counter"
    """Only ever grows, and is added up over processes."""
    GAUGE = "gauge"
    """How things stand in one process."""
    HISTOGRAM = "histogram"
    """A counter for each of several sizes."""


class Metric(NamedTuple):
    """One metric. None of its labels holds what a stranger can choose."""

    name: str
    kind: MetricKind
    meaning: str
    labels: tuple[str, ...] = ()


class Sample(NamedTuple):
    """One number."""

    name: str
    """The metric's; of a histogram with ``_bucket``, ``_sum`` or ``_count`` behind it."""
    value: float
    labels: tuple[str, ...] = ()
    """Their values, in the metric's order; of a bucket its upper end behind them."""


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
            "headgate_connections_closed_total",
            _COUNTER,
            "Connections that the service closed on its own account, by port and reason.",
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
        Metric(
            "headgate_store_breaker",
            _GAUGE,
            "The breaker of a server of the store: 0 closed, 1 half open, 2 open.",
            ("worker", "server"),
        ),
        Metric("headgate_checks_in_flight", _GAUGE, "Checks that the store is deciding.", _WORKER),
        Metric("headgate_checks_waiting", _GAUGE, "Checks that wait because too many are in flight.", _WORKER),
        Metric("headgate_checks_shed_total", _COUNTER, "Checks that were refused because they waited too long."),
        # Rules
        Metric("headgate_ready", _GAUGE, "1 if the process answers and has rules.", _WORKER),
        Metric("headgate_snapshot", _GAUGE, "The number of the rules in force.", _WORKER),
        Metric("headgate_snapshot_age_seconds", _GAUGE, "Since when they are in force.", _WORKER),
        Metric(
            "headgate_rules_confirmed_age_seconds",
            _GAUGE,
            "Since when nobody could say whether the rules in force are the newest.",
            _WORKER,
        ),
        Metric("headgate_rules_refused", _GAUGE, "1 if newer rules are there and were refused.", _WORKER),
        Metric("headgate_blocks", _GAUGE, "Blocks in force.", _WORKER),
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
