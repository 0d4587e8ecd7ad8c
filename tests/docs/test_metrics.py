"""Every metric is documented, and dashboard and alerts name only metrics that exist."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

import yaml

from headgate.core.event import EventKind
from headgate.core.metrics import METRICS, MetricKind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_NAME: Final = re.compile(r"\b(?:headgate|process)_\w+")
_SELECTOR: Final = re.compile(r"\b((?:headgate|process)_\w+)\{([^}]*)\}")
_LABEL: Final = re.compile(r'(\w+)\s*=~?\s*"')
_PARTS: Final = ("_bucket", "_sum", "_count")
_OF_PROMETHEUS: Final = {"instance", "job", "le"}


def _series() -> dict[str, set[str]]:
    """The names of all time series, with their labels."""
    found: dict[str, set[str]] = {}
    for metric in METRICS.values():
        parts = _PARTS if metric.kind is MetricKind.HISTOGRAM else ("",)
        found |= {metric.name + part: {*metric.labels} for part in parts}
    return found


def _expressions(root: Path) -> dict[str, str]:
    """All expressions of the dashboard and of the alerts, by where they are."""
    board = json.loads((root / "deploy/grafana/headgate.json").read_text(encoding="utf-8"))
    alerts = yaml.safe_load((root / "deploy/prometheus/alerts.yaml").read_text(encoding="utf-8"))
    found = {f"panel {panel['title']} {target['refId']}": target["expr"] for panel, target in _targets(board)}
    found |= {rule["alert"]: rule["expr"] for group in alerts["groups"] for rule in group["rules"]}
    return found | {each["name"]: each["definition"] for each in board["templating"]["list"] if "definition" in each}


def _targets(board: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    return ((panel, target) for panel in board["panels"] for target in panel["targets"])


def test_every_metric_is_documented(root: Path) -> None:
    """The table has every metric with its type, its labels and its meaning, and no other."""
    page = (root / "docs/reference/metrics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (counter|gauge|histogram) \| (.*?) \| (.*) \|$", page, re.MULTILINE)
    assert rows == [
        (metric.name, metric.kind.value, " ".join(f"`{label}`" for label in metric.labels) or "none", metric.meaning)
        for metric in METRICS.values()
    ]


def test_every_label_is_documented(root: Path) -> None:
    """The second table says what each label can be, every outcome included."""
    table = (root / "docs/reference/metrics.md").read_text(encoding="utf-8").partition("## Labels")[2]
    rows = dict(re.findall(r"^\| ((?:`\w+` ?)+) \| (.*) \|$", table, re.MULTILINE))
    assert {label for names in rows for label in re.findall(r"\w+", names)} == {
        label for metric in METRICS.values() for label in metric.labels
    }
    assert all(f"`{kind.value}`" in rows["`outcome`"] for kind in EventKind)


def test_dashboard_and_alerts_ask_for_what_there_is(root: Path) -> None:
    """Every name in an expression is that of a time series, and every label in a selector is one of its labels."""
    series = _series()
    for place, expression in _expressions(root).items():
        names = set(_NAME.findall(expression))
        assert names, place
        assert names <= set(series), place
        for name, selector in _SELECTOR.findall(expression):
            assert {*_LABEL.findall(selector)} <= series[name] | _OF_PROMETHEUS, (place, name)


def test_the_dashboard_has_panels_that_do_not_overlap(root: Path) -> None:
    """Every panel has a title, an id of its own and a place of its own on Grafana's grid of 24 columns."""
    board = json.loads((root / "deploy/grafana/headgate.json").read_text(encoding="utf-8"))
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert panel["title"]
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    assert len({panel["title"] for panel in board["panels"]}) == len(board["panels"])


def test_every_panel_says_what_it_shows_and_what_to_do(root: Path) -> None:
    """A description of its own: what is shown, and then what a bad value means; other panels are named in quotes."""
    panels = json.loads((root / "deploy/grafana/headgate.json").read_text(encoding="utf-8"))["panels"]
    titles = [panel["title"] for panel in panels]
    described = [panel.get("description", "") for panel in panels]
    for title, text in zip(titles, described, strict=True):
        shown, _, advice = text.partition(". ")
        assert shown, title
        assert advice.endswith("."), title
        assert {*_NAME.findall(text)} <= {*_series()}, title
        assert {*re.findall(r'"(.*?)"', text)} <= {*titles}, title
    assert len({*described}) == len(panels)


def test_every_alert_says_what_to_do(root: Path) -> None:
    """Every alert has a severity, a summary and a runbook, which names only metrics that exist."""
    alerts = yaml.safe_load((root / "deploy/prometheus/alerts.yaml").read_text(encoding="utf-8"))
    for rule in alerts["groups"][0]["rules"]:
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["runbook"].endswith(".")
        assert set(_NAME.findall(rule["annotations"]["runbook"])) <= set(_series())


def test_every_metric_is_watched(root: Path) -> None:
    """What is reported is on the dashboard or in an alert, but for what only people look up."""
    watched = {name for expression in _expressions(root).values() for name in _NAME.findall(expression)}
    looked_up = {
        "headgate_build_info",
        "process_max_fds",
        "process_start_time_seconds",
        "headgate_announcements_missed_total",
        "headgate_documents_refused_total",
    }
    assert {name for name in METRICS if name not in watched and f"{name}_bucket" not in watched} == looked_up
