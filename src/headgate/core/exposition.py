"""Samples as text that Prometheus reads, in its format 0.0.4."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Final

from headgate.core.metrics import METRICS, MetricKind, metric_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.core.metrics import Metric, Sample

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_LARGEST_WHOLE: Final = 2**53


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
    is_whole = isfinite(value) and value == int(value) and abs(value) < _LARGEST_WHOLE
    return str(int(value)) if is_whole else repr(float(value))
