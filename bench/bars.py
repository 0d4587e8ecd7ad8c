"""The bars that rows are judged by: one table, which README.md repeats and a test compares."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from bench.rows import Better

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench.rows import Row

_HIGHER, _LOWER = Better.HIGHER, Better.LOWER


class Bar(NamedTuple):
    """What the ratio of a row should reach."""

    value: float
    better: Better
    part: str
    """The part that measures the row."""
    aim: str = ""
    """What it should reach one day."""

    def __str__(self) -> str:
        return f"{'≥' if self.better is _HIGHER else '≤'} {self.value:g}"


BARS: Final = {
    "memory_hit": Bar(3, _HIGHER, "memory"),
    "memory_hit_async": Bar(2, _HIGHER, "memory"),
    "memory_check_1000_rules": Bar(1, _HIGHER, "memory"),
    "rules_growth": Bar(1.5, _LOWER, "memory"),
    "import_time": Bar(1, _LOWER, "imports"),
    "redis_async_many_keys": Bar(5, _HIGHER, "redis", "aim 8"),
    "redis_single_latency": Bar(1.3, _LOWER, "redis"),
    "redis_single_peer": Bar(1.35, _LOWER, "redis"),
    "redis_sync_threads": Bar(2, _HIGHER, "redis"),
    "redis_core_share": Bar(1.5, _HIGHER, "redis"),
    "deny_flood": Bar(4, _HIGHER, "redis"),
    "deny_flood_peers": Bar(20, _HIGHER, "redis"),
    "redis_bytes_counter": Bar(1, _LOWER, "redis"),
    "redis_bytes_log": Bar(0.2, _LOWER, "redis"),
    "leased_hot_key": Bar(5, _HIGHER, "leases"),
    "leased_hot_key_check": Bar(2, _HIGHER, "leases"),
    "leased_calls": Bar(0.02, _LOWER, "leases"),
    "leased_over": Bar(0, _LOWER, "leases"),
    "redis_single_auto": Bar(0.1, _LOWER, "leases"),
    "lease_hit": Bar(1.3, _LOWER, "leases"),
    "lease_check": Bar(1.3, _LOWER, "leases"),
    "http_check_leased": Bar(1.4, _HIGHER, "leases"),
    "http_check_leased_cost": Bar(1.15, _LOWER, "leases"),
    "http_check_auto_cost": Bar(1.15, _LOWER, "leases"),
    "rls_leased": Bar(1.4, _HIGHER, "leases"),
    "rls_leased_cost": Bar(1.15, _LOWER, "leases"),
    "rls_auto_cost": Bar(1.15, _LOWER, "leases"),
    "events_cost_service": Bar(0.9, _HIGHER, "recording"),
    "http_check": Bar(0.45, _HIGHER, "http"),
    "check_p99_added": Bar(1.5, _LOWER, "http", "aim 1"),
    "check_p99_added_auto": Bar(0.5, _LOWER, "http"),
    "cold_users": Bar(0.5, _HIGHER, "cold_users"),
    "rls": Bar(4, _HIGHER, "rls"),
    "rls_p99": Bar(1, _LOWER, "rls"),
    "rls_cpu_envoy": Bar(0.5, _LOWER, "rls"),
    "flood_admitted": Bar(0, _LOWER, "flood"),
    "fastapi_redis": Bar(4, _HIGHER, "frameworks"),
    "flask_redis_flask_limiter": Bar(4, _HIGHER, "routes"),
    "django_redis_django_ratelimit": Bar(4, _HIGHER, "routes"),
    "drf_redis_rest_framework": Bar(4, _HIGHER, "routes"),
    "fastapi_memory_slowapi_added": Bar(0.5, _LOWER, "routes"),
    "flask_memory_flask_limiter_added": Bar(0.5, _LOWER, "routes"),
    "django_memory_django_ratelimit_added": Bar(0.5, _LOWER, "routes"),
    "drf_memory_rest_framework_added": Bar(0.5, _LOWER, "routes"),
    "sdk_time": Bar(1.1, _LOWER, "sdk"),
    "sdk_refused": Bar(0.02, _LOWER, "sdk"),
}


def judged(rows: Iterable[Row]) -> list[Row]:
    """The rows with the bars of today, also those that were measured when there were others."""
    return [_judged(row, BARS.get(row.name)) for row in rows]


def _judged(row: Row, bar: Bar | None) -> Row:
    if bar is None:
        return replace(row, bar=None, note="")
    return replace(row, bar=bar.value, better=bar.better, note=bar.aim)


def table() -> str:
    """All bars, as README.md has them."""
    lines = ["| row | part | bar |", "|---|---|---|"]
    for name, bar in BARS.items():
        aim = f", {bar.aim}" if bar.aim else ""
        lines.append(f"| `{name}` | {bar.part} | {bar}{aim} |")
    return "\n".join(lines) + "\n"
