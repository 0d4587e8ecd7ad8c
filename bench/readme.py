"""The table of measured figures in README.md, written from results.json by every run, or by python -m bench.readme."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from bench.bars import BARS

_HERE = Path(__file__).parent
README = _HERE.parent / "README.md"
_BETWEEN = re.compile(r"(?<=<!-- measured -->\n).*?(?=<!-- end of measured -->)", re.DOTALL)
_SHOWN = {
    "redis_async_many_keys": "Redis, `await`, 64 tasks, many keys",
    "redis_sync_threads": "Redis, 8 threads without `await`",
    "redis_single_latency": "Redis, one check at a time, beside the round trip itself",
    "redis_single_peer": "Redis, one check at a time, beside the fastest peer",
    "redis_single_auto": "Redis, one check at a time, `spread: auto` on a hot key",
    "leased_hot_key": "one hot key, four processes, `spread: leased`",
    "memory_hit": "memory store, one limit",
    "memory_check_1000_rules": "memory store, 1,000 rules, three match",
    "import_time": "import, and a limiter in memory",
    "rules_growth": "10,000 rules instead of 10",
    "fastapi_redis": "a FastAPI application on Redis",
    "rls": "Envoy's rate-limit service",
    "rls_cpu_envoy": "Envoy's rate-limit service on Redis, processor time",
    "http_check": "the HTTP service on Redis",
    "check_p99_added": "p99 that a check adds, at half of saturation",
    "deny_flood_peers": "denied checks, one caller",
    "flood_admitted": "a flood on a used-up limit",
    "redis_bytes_counter": "memory of a counter in Redis",
    "redis_bytes_log": "memory of a full log, limit 1,000",
}


def table(results: dict[str, Any]) -> str:
    """The rows that people ask about first, then all that missed their bar."""
    rows = {row["name"]: row for row in results["rows"]}
    lines = ["| | Headgate | reference | ratio | bar |", "|---|---|---|---|---|"]
    lines += [_line(text, rows[name]) for name, text in _SHOWN.items() if name in rows]
    judged = [row for row in rows.values() if row["met"] is not None]
    missed = [f"`{row['name']}` {row['ratio']:.2f} (bar {_bar(row)})" for row in judged if not row["met"]]
    lines += ["", f"{len(judged) - len(missed)} of {len(judged)} bars are met. Missed: {', '.join(missed) or 'none'}."]
    if unknown := [f"`{name}`" for name in BARS if name not in rows]:
        lines[-1] += f" Not measured yet: {', '.join(unknown)}."
    return "\n".join(lines) + "\n"


def _line(text: str, row: dict[str, Any]) -> str:
    against = str(row["against"]).split(";")[0]
    met = {True: "met", False: "**missed**", None: ""}[row["met"]]
    return (
        f"| {text} | {_number(row['ours'])} {row['unit']} | {_number(row['reference'])}: {against} "
        f"| {row['ratio']:.2f} | {_bar(row)} {met} |"
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 100 else f"{value:.1f}"


def _bar(row: dict[str, Any]) -> str:
    if row["bar"] is None:
        return ""
    return f"{'≥' if row['better'] == 'higher' else '≤'} {row['bar']:g}"


def updated(readme: str, results: dict[str, Any]) -> str:
    """The README with today's table."""
    return _BETWEEN.sub(lambda _: table(results), readme)


def write() -> None:
    """Bring the README up to date."""
    results = json.loads((_HERE / "results.json").read_text(encoding="utf-8"))
    README.write_text(updated(README.read_text(encoding="utf-8"), results), encoding="utf-8")


if __name__ == "__main__":
    write()
