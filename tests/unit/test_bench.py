"""The benchmarks' own logic: rows, what is kept of a run, fair timing, and that its parts run at all."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

sys.path.insert(0, str(Path(__file__).parents[2]))  # bench/ is not installed

from bench import measure, report
from bench.rows import Better, Outcome, Row, growth, merged, pace

if TYPE_CHECKING:
    from collections.abc import Callable

PEERS = ("limits", "throttled", "pyrate_limiter", "redis", "matplotlib", "slowapi")
HAS_PEERS = all(importlib.util.find_spec(name) for name in PEERS)


class Silence:
    """A watch that counts and shows nothing."""

    def __init__(self) -> None:
        self.expected = self.done = 0

    def begin(self, text: str, steps: int) -> None:
        assert text
        self.expected += steps

    def step(self) -> None:
        self.done += 1


def row(name: str = "a_row", *, ours: float = 6, bar: float | None = None, better: Better = Better.HIGHER) -> Row:
    return Row(name, ours, 2, "checks/s", "a peer", bar, better)


@pytest.mark.parametrize(
    ("bar", "better", "met"),
    [
        (None, Better.HIGHER, None),
        (3, Better.HIGHER, True),
        (3.1, Better.HIGHER, False),
        (3, Better.LOWER, True),
        (2.9, Better.LOWER, False),
    ],
)
def test_a_bar_is_met_in_the_direction_that_is_better(bar: float | None, better: Better, met: bool | None) -> None:  # noqa: FBT001 (a parameter)
    """A ratio that must be high is met from the bar upwards, one that must be low from the bar downwards."""
    assert row(bar=bar, better=better).met is met


def test_a_row_survives_results_json() -> None:
    """Written and read again, a row is the same, and what it holds is what the design asks for."""
    before = row(bar=3)
    written = json.loads(json.dumps(before.as_dict()))
    assert (
        written.items()
        >= {
            "name": "a_row",
            "ours": 6,
            "reference": 2,
            "unit": "checks/s",
            "ratio": 3,
            "bar": 3,
            "met": True,
        }.items()
    )
    assert Row.from_dict(written) == before


def test_paces_and_costs_are_ratios_of_the_best_rounds() -> None:
    """Half the time is twice the pace; a cost is compared as it is. The medians are kept beside."""
    ours, other = measure.Timing((0.25, 1, 1)), measure.Timing((0.5, 1, 2))
    faster, dearer = pace("p", ours, other, "x"), growth("g", other, ours, "x")
    assert (faster.ratio, faster.median_ratio, faster.better) == (2, 1, Better.HIGHER)
    assert (dearer.ratio, dearer.median_ratio, dearer.better) == (2, 1, Better.LOWER)
    assert (faster.ours, dearer.ours) == (4, 500_000)


def test_a_part_replaces_its_own_rows_only() -> None:
    """Rows of parts that were not run stay as they were."""
    kept = merged([], Outcome("redis", [row("one")]), "monday")
    kept = merged(kept, Outcome("memory", [row("two"), row("gone")]), "monday")
    kept = merged(kept, Outcome("memory", [row("two", ours=8)]), "tuesday")
    assert [(each.name, each.part, each.ours, each.date) for each in kept] == [
        ("one", "redis", 6, "monday"),
        ("two", "memory", 8, "tuesday"),
    ]


def test_results_keep_what_was_found_earlier(tmp_path: Path) -> None:
    """results.json holds the machine, all rows and all figures, whichever part was run last."""
    path = tmp_path / "results.json"
    report.keep(Outcome("redis", [row("one")], {"hits": [{"best": 1}]}), path)
    results = report.keep(Outcome("memory", [row("two")]), path)
    assert json.loads(path.read_text(encoding="utf-8")) == results
    assert [each["name"] for each in results["rows"]] == ["one", "two"]
    assert results["figures"] == {"redis": {"hits": [{"best": 1}]}, "memory": {}}
    assert results["machine"].keys() == {"cpu", "cores", "system", "python", "libraries", "date"}
    assert results["machine"]["cpu"]
    assert results["machine"]["libraries"]["headgate"]


@pytest.mark.parametrize("width", [80, 130])
def test_the_table_fits_the_terminal(width: int) -> None:
    """The table shows every row with its ratio and whether the bar is met, and on wide terminals against whom."""
    console = Console(width=width, record=True, file=None, quiet=False, force_terminal=False)
    with console.capture() as captured:
        console.print(
            report.table(
                [
                    row("memory_hit_sliding_window_counter", ours=1_500_000),
                    row("met", bar=3),
                    row("missed", bar=3, better=Better.LOWER, ours=8),
                    Row("cost", 12.5, 10, "µs/check", "x"),
                    row("a_name_so_long_that_a_narrow_terminal_has_no_room_for_all_of_it", ours=5_430),
                ],
                width,
            )
        )
    lines = captured.get().splitlines()
    assert [line.split()[0] for line in lines[:2]] == ["row", "met"]
    assert "…" not in captured.get()
    assert "≥ 3  met" in lines[1]
    assert "≤ 3  not met" in lines[2]
    assert "1.50 M/s" in captured.get()
    assert "12.50 µs" in captured.get()
    assert all(len(line) <= width for line in lines)
    assert ("a peer" in lines[1]) is (width > 80)


def test_all_contestants_run_equally_often_and_in_turn() -> None:
    """Each round begins with another contestant, and the first round is not counted."""
    ran: list[str] = []
    runs: dict[str, Callable[[], object]] = {name: lambda name=name: ran.append(name) for name in "abc"}  # type: ignore[misc] # a default binds the name
    watch = Silence()
    timings = measure.race("a race", runs, 10, 2, watch)
    assert "".join(ran) == "abcbcacab"
    assert {name: len(timing.rounds) for name, timing in timings.items()} == {"a": 2, "b": 2, "c": 2}
    assert watch.done == watch.expected == 9


def test_who_does_not_limit_is_not_timed() -> None:
    """A contestant that admits too much, or too little, stops the benchmark."""
    measure.guarded("honest", len, "abc", 3)()
    with pytest.raises(measure.DoesNotLimit, match="generous admitted 4 where 3 should have passed"):
        measure.guarded("generous", len, "abcd", 3)()


def test_progress_is_shown_race_by_race() -> None:
    """The progress bar has a line for each race."""
    console = Console(width=100, force_terminal=True)
    with console.capture() as captured, report.Bar(console) as bar:
        for text in ("first race", "second race"):
            bar.begin(text, 2)
            bar.step()
            bar.step()
    assert "first race" in captured.get()
    assert "second race" in captured.get()


MEMORY_BARS = {
    "memory_hit": (3, Better.HIGHER),
    "memory_hit_async": (1.2, Better.HIGHER),
    "memory_check_1000_rules": (1, Better.HIGHER),
    "rules_growth": (1.5, Better.LOWER),
}
REDIS_BARS = {
    "redis_async_many_keys": (8, Better.HIGHER),
    "redis_single_latency": (0.5, Better.LOWER),
    "redis_sync_threads": (2, Better.HIGHER),
    "redis_core_share": (0.6, Better.HIGHER),
    "redis_bytes_counter": (1, Better.LOWER),
    "redis_bytes_log": (0.2, Better.LOWER),
}
SDK_BARS = {"sdk_time": (1.1, Better.LOWER), "sdk_refused": (0.02, Better.LOWER)}


HTTP_BARS = {
    "http_check": (0.4, Better.HIGHER),
    "check_p99_added": (2, Better.LOWER),
}


@pytest.mark.skipif(not HAS_PEERS, reason="the peers are in .venv-bench only (make bench)")
@pytest.mark.parametrize(
    ("part", "bars", "drawn"),
    [("memory", MEMORY_BARS, 4), ("redis", REDIS_BARS, 4), ("http", HTTP_BARS, 2), ("sdk", SDK_BARS, 1)],
)
def test_a_part_measures_every_row_of_the_design(
    part: str, bars: dict[str, object], drawn: int, tmp_path: Path
) -> None:
    """A run with tiny counts goes through everything and leaves all rows and pictures."""
    running, plots = importlib.import_module(f"bench.{part}"), importlib.import_module("bench.plots")
    watch = Silence()
    outcome: Outcome = running.run(watch, quick=True)
    assert {each.name: (each.bar, each.better) for each in outcome.rows if each.bar is not None} == bars
    assert watch.done == watch.expected
    results = report.keep(outcome, tmp_path / "results.json")
    pictures = list(plots.draw(results, tmp_path / "plots"))
    assert len(pictures) == drawn
    assert all(picture.stat().st_size > 10_000 for picture in pictures)


@pytest.mark.skipif(not HAS_PEERS, reason="the peers are in .venv-bench only (make bench)")
def test_the_frameworks_part_measures_its_row() -> None:
    """A run with tiny counts starts every form of the application, and each of them limits."""
    watch = Silence()
    outcome: Outcome = importlib.import_module("bench.frameworks").run(watch, quick=True)
    assert {each.name: each.bar for each in outcome.rows if each.bar is not None} == {"fastapi_redis": 4}
    assert watch.done == watch.expected
