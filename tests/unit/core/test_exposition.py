"""Metrics as text, read by the parser of Prometheus's own client."""

from __future__ import annotations

from math import inf, nan

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headgate.core.metrics import METRICS, MetricKind, Sample, exposition, metric_of, summed


def test_samples_are_read_back_as_they_were_written() -> None:
    """Name, labels and value come back, whatever is in a label, and those of one metric stand together."""
    odd = 'a "quoted" \\ rule\nof two lines, {with} braces=='
    samples = [
        Sample("headgate_rule_decisions_total", 3, (odd, "denied", "false")),
        Sample("headgate_blocks", 7, ("1",)),
        Sample("headgate_rule_decisions_total", 2**60, ("b", "allowed", "false")),
        Sample("headgate_decision_seconds_bucket", 1, ("0.001",)),
        Sample("headgate_decision_seconds_bucket", 2, ("+Inf",)),
        Sample("headgate_decision_seconds_sum", 0.125),
        Sample("headgate_decision_seconds_count", 2),
    ]
    read = [*text_string_to_metric_families(exposition(samples))]
    assert {family.name: family.type for family in read} == {
        "headgate_rule_decisions": "counter",
        "headgate_blocks": "gauge",
        "headgate_decision_seconds": "histogram",
    }
    found = {(sample.name, *sample.labels.values()): sample.value for family in read for sample in family.samples}
    assert found == {(sample.name, *sample.labels): sample.value for sample in samples}
    assert all(family.documentation == metric_of(f"{family.samples[0].name}").meaning for family in read)


@pytest.mark.parametrize("value", [0, -1, 0.1, 1e-9, 2**53 + 2, 1e300, inf, -inf, nan])
def test_every_number_is_written_in_full(value: float) -> None:
    """Numbers of any size are read back as they were."""
    (family,) = text_string_to_metric_families(exposition([Sample("headgate_events_emitted_total", value)]))
    assert repr(float(family.samples[0].value)) == repr(float(value))


def test_sums_are_by_name_and_labels() -> None:
    """What several processes report is added up where name and labels are the same."""
    samples = [Sample("a", 1, ("x",)), Sample("a", 2, ("y",)), Sample("a", 4, ("x",)), Sample("b", 8)]
    assert summed(samples) == [Sample("a", 5, ("x",)), Sample("a", 2, ("y",)), Sample("b", 8)]


def test_names_follow_the_custom() -> None:
    """Counters end in _total, nothing else does, gauges have the worker they belong to, and all are explained."""
    for name, metric in METRICS.items():
        assert name.endswith("_total") == (metric.kind is MetricKind.COUNTER), name
        assert metric.kind is not MetricKind.GAUGE or "worker" in metric.labels, name
        assert metric.meaning.endswith(".")
        assert "\n" not in metric.meaning
