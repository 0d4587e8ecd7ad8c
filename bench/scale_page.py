"""The tables, computed sentences and plots of docs/explanation/scale.md, from scale_figures.json.

`tables` is also what a test compares.
"""

from __future__ import annotations

import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PAGE = Path(__file__).parents[1] / "docs/explanation/scale.md"
_PLACE = r"<!-- {name} -->\n.*?<!-- end -->"
_NOT_WHOLE = {
    "identity_assumed": "checks decided without the user's record",
    "degraded_limits": "limits decided without Redis",
    "checks_shed": "checks shed",
}
_IMPOSSIBLE = " (impossible)"


def write_page(kept: dict[str, Any]) -> None:
    """Put all tables into the page, and draw the plots where that is possible."""
    text = PAGE.read_text(encoding="utf-8")
    for name, lines in tables(kept).items():
        place = _PLACE.format(name=name)
        assert re.search(place, text, re.DOTALL), f"the page has no place for {name}"
        table = f"<!-- {name} -->\n\n" + "\n".join(lines) + "\n\n<!-- end -->"
        before, after = re.split(place, text, maxsplit=1, flags=re.DOTALL)
        text = before + table + after
    PAGE.write_text(text, encoding="utf-8")
    if find_spec("matplotlib") is not None:
        # Matplotlib is in the environment of the benchmarks only.
        import_module("bench.scale_plots").draw(kept["topology"], kept["unit"]["redis_micros"], PAGE.parent)


def tables(kept: dict[str, Any]) -> dict[str, list[str]]:
    """The lines of each table, by its name in the page."""
    unit = kept["unit"]
    found = {f"topology {rate}": _topology(each, unit["redis_micros"]) for rate, each in kept["topology"].items()}
    return found | {
        "impossible": _impossible(unit),
        "compared": _compared(kept["compared"]),
        "sizing": _sizing(unit),
        "a million": _a_million(unit),
        "seeds": _seeds(kept["seeds"]),
        "ten million": _ten_million(kept["ten_million"]),
    }


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    line = "|".join(["---", *["---:"] * (len(headings) - 1)])
    return [f"| {' | '.join(headings)} |", f"|{line}|", *(f"| {' | '.join(row)} |" for row in rows)]


def _topology(found: dict[str, Any], redis_micros: float) -> list[str]:
    """The simulator counts operations; what they take of a core is by the newest measurement."""
    headings = (
        "mode",
        "limit of",
        "Redis operations/s",
        "for each request",
        "Redis cores",
        "hottest key, operations/s",
    )
    more = ("over", "worst", "under", "without Redis", "p50 ms", "p99 ms")
    rows = [
        (
            f"`{row['mode']}`",
            row["limit_of"],
            f"{row['redis_operations_per_second']:,.0f}",
            f"{row['operations_per_request']:.3f}",
            f"{row['redis_operations_per_second'] * redis_micros / 1e6:.1f}",
            f"{row['hottest_key_operations_per_second']:,.0f}{'' if is_possible(row, redis_micros) else _IMPOSSIBLE}",
            f"{row['over']:.2%}",
            f"{max(0.0, row['worst_over']):.1%}",
            f"{row['under']:.2%}",
            f"{row['without_redis']:.0%}",
            f"{row['p50_ms']:.2f}",
            f"{row['p99_ms']:.2f}",
        )
        for row in found["modes"]
    ]
    return _table((*headings, *more), rows)


def is_possible(row: dict[str, Any], redis_micros: float) -> bool:
    """Whether one core of a Redis server bears the hottest key: a key is on one server."""
    return bool(row["hottest_key_operations_per_second"] * redis_micros <= 1e6)


def _impossible(unit: dict[str, float]) -> list[str]:
    return [
        f'"Impossible" means that one key needs more than one core of a Redis server at {unit["redis_micros"]:.1f} µs',
        "for an operation, and no number of servers helps, because a key is on one of them.",
    ]


def _compared(found: dict[str, dict[str, float]]) -> list[str]:
    names = (
        "operations a request, predicted",
        "operations a request, measured",
        "admitted, predicted",
        "admitted, measured",
    )
    rows = []
    for mode, figures in found.items():
        first, second, third, fourth = (figures[name] for name in names)
        rows.append((f"`{mode}`", f"{first:.3f}", f"{second:.3f}", f"{third:,.0f}", f"{fourth:,.0f}"))
    return _table(("mode", *names), rows)


def _sizing(unit: dict[str, float]) -> list[str]:
    rows = (
        ("a counter in Valkey, of 10 million", f"{unit['counter_bytes']:.0f} bytes", "`ten_million.json`"),
        ("a full log of 1,000 admissions", f"{unit['log_bytes']:,.0f} bytes", "`results.json`, `redis_bytes_log`"),
        (
            "processor time of Redis for a check",
            f"{unit['redis_micros']:.1f} µs: {1e6 / unit['redis_micros']:,.0f} a second and core",
            "`results.json`, `redis_server_cpu`",
        ),
        (
            "processor time of the service for `/v1/check`",
            f"{unit['service_micros']:.0f} µs: {1e6 / unit['service_micros']:,.0f} a second and core",
            "`results.json`, `http_check_one_process`",
        ),
        ("a user in PostgreSQL, with indexes", f"{unit['user_bytes']:.0f} bytes", "`ten_million.json`"),
        ("an event in PostgreSQL, with indexes", f"{unit['event_bytes']:.0f} bytes", "`events-figures.md`"),
        ("an event in Parquet", f"{unit['parquet_bytes']:.0f} bytes", "`events-figures.md`"),
    )
    return _table(("what", "figure", "measured in"), rows)


def _a_million(unit: dict[str, float]) -> list[str]:
    redis, service = f"{unit['redis_micros']:.1f}", f"{unit['service_micros']:.0f}"
    return [
        f"So for each million checks a second: {redis} cores of Redis if every check has one exact counter, and",
        f"{service} cores of the decision service. Two counters in a check are two operations. `leased` makes the",
        "first figure small, where few counters have most of the traffic.",
    ]


def _seeds(found: dict[str, float]) -> list[str]:
    rows = (
        (
            "Redis, 130 GB for each region",
            (
                f"{found['redis_counters'] / 1e9:.2f} billion counters. Ten million users with one counter each take "
                f"{found['ten_million_counters_gb']:.1f} GB; with a full log of 1,000 each "
                f"{found['ten_million_logs_gb']:.0f} GB"
            ),
        ),
        (
            "PostgreSQL, 10 TB a year",
            (
                f"{found['postgres_events_a_second']:,.0f} events a second, day and night; of 90 days, as kept, "
                f"{10 * 90 / 365:.1f} TB"
            ),
        ),
        (
            "Parquet, 1 TB a year",
            (
                f"{found['parquet_events_a_second']:,.0f} events a second; those of the 10 TB take "
                f"{found['parquet_of_postgres_tb']:.2f} TB"
            ),
        ),
    )
    return _table(("expected", "is, as measured here"), rows)


def _ten_million(found: dict[str, dict[str, Any]]) -> list[str]:
    sides = (found["100000"], found["10000000"])
    rows = [
        ("users loaded into PostgreSQL in", *(f"{each['load_users_seconds']:,.0f} s" for each in sides), ""),
        ("counters made in Valkey in", *(f"{each['load_counters_seconds']:,.0f} s" for each in sides), ""),
        ("a user in PostgreSQL, with indexes", *(f"{each['user_bytes']:.0f} bytes" for each in sides), ""),
        ("a counter in Valkey", *(f"{each['counter_bytes']:.0f} bytes" for each in sides), ""),
        ("resident memory of Valkey", *(f"{each['valkey_resident_bytes'] / 1e6:,.0f} MB" for each in sides), ""),
    ]
    if all("checks" in each for each in sides):
        rows += _of_checks(*sides)
    return _table(("", "100,000 users", "10,000,000 users", ""), rows)


def _of_checks(*sides: dict[str, Any]) -> Iterable[tuple[str, ...]]:
    slower = sides[0]["median_slice"] / sides[1]["median_slice"]
    more = sides[1]["service_cpu_us"] / sides[0]["service_cpu_us"]
    yield ("checks", *(f"{each['checks']:,} in {each['seconds']:.0f} s" for each in sides), "")
    yield ("checks/s, mean", *(f"{each['checks_a_second']:,.0f}" for each in sides), "")
    medians = (f"{each['median_slice']:,.0f}" for each in sides)
    yield ("checks/s, median of the slices", *medians, f"{slower:.2f} times slower")
    yield ("p50", *(f"{each['p50_ms']:.1f} ms" for each in sides), "")
    yield ("p99", *(f"{each['p99_ms']:.1f} ms" for each in sides), "")
    times = (f"{each['service_cpu_us']:.0f} µs" for each in sides)
    yield ("processor time of the service for a check", *times, f"{more:.2f} times as much")
    yield ("that of PostgreSQL", *(f"{each['postgres_cpu_us']:.0f} µs" for each in sides), "")
    yield ("that of Valkey", *(f"{each['valkey_cpu_us']:.0f} µs" for each in sides), "")
    yield ("record-cache hits", *(f"{each['record_hit_rate']:.1%}" for each in sides), "")
    yield ("the same at the end", *(f"{each['record_hit_rates'][-1]:.1%}" for each in sides), "")
    yield ("records in memory", *(f"{each['records_in_memory']:,.0f}" for each in sides), "")
    for name, words in _NOT_WHOLE.items():
        yield (words, *(f"{each[name]:,.0f}" for each in sides), "")
    for process in sides[1]["megabytes"]:
        yield (f"memory of {process}", *(f"{each['megabytes'].get(process, 0):,.0f} MB" for each in sides), "")
