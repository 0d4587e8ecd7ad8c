"""What one counter, check, user and event costs, from what was measured; and what a deployment of some size needs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

_BENCH = Path(__file__).parent
_EVENTS = _BENCH.parent / "docs/explanation/events-figures.md"
_CHAOS = _BENCH.parent / "tests/chaos/figures.json"
_YEAR = 365 * 86_400
SEED_REDIS, SEED_POSTGRES, SEED_PARQUET = 130e9, 10e12, 1e12
"""What was expected of a region's Redis, and of a year's events in PostgreSQL and in Parquet."""


def _read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((_BENCH / name).read_text(encoding="utf-8"))
    return found


def sizing() -> dict[str, Any]:
    """The unit costs with their sources, the sizes that follow, the run with ten million users, and the comparison."""
    rows = {row["name"]: row for row in _read("results.json")["rows"]}
    ten = _read("ten_million.json")
    unit = {
        "counter_bytes": ten["10000000"]["counter_bytes"],
        "log_bytes": rows["redis_bytes_log"]["ours"],
        "redis_micros": rows["redis_server_cpu"]["ours"],
        "service_micros": 1e6 / rows["http_check_one_process"]["ours"],
        "user_bytes": ten["10000000"]["user_bytes"],
        "event_bytes": _event("an event in its table") + _event("an event in indexes"),
        "parquet_bytes": _event("an event in Parquet"),
    }
    chaos = json.loads(_CHAOS.read_text(encoding="utf-8"))["rows"]
    return {
        "unit": unit,
        "seeds": {
            "redis_counters": SEED_REDIS / unit["counter_bytes"],
            "ten_million_counters_gb": 1e7 * unit["counter_bytes"] / 1e9,
            "ten_million_logs_gb": 1e7 * unit["log_bytes"] / 1e9,
            "postgres_events_a_second": SEED_POSTGRES / unit["event_bytes"] / _YEAR,
            "parquet_events_a_second": SEED_PARQUET / unit["parquet_bytes"] / _YEAR,
            "parquet_of_postgres_tb": SEED_POSTGRES / unit["event_bytes"] * unit["parquet_bytes"] / 1e12,
        },
        "compared": _compared(chaos),
        "ten_million": {name: ten[name] for name in ("10000000", "100000")},
    }


def _event(name: str) -> float:
    found = re.search(rf"^\| {re.escape(name)} \| ([\d.,]+)", _EVENTS.read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None, f"{name} is not in {_EVENTS.name}"
    return float(found[1].replace(",", ""))


def _compared(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Of each mode what was predicted and measured, by the chaos suite."""
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        start, _, mode = row["case"].partition(", ")
        if start == "simulated topology":
            found.setdefault(mode, {})[row["name"]] = row["value"]
    return found
