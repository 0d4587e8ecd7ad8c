"""The benchmarks' own logic: rows, what is kept of a run, fair timing, and that its parts run at all."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import select
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

sys.path.insert(0, str(Path(__file__).parents[2]))  # bench/ is not installed

from bench import bars, measure, parts, report
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
    return Row(name, ours, 2, "checks/s", "a peer", better, bar=bar)


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
def test_the_table_loses_nothing(width: int) -> None:
    """Every row has its figures, its ratio, whether the bar is met, and against whom, on narrow terminals too."""
    console = Console(width=width, force_terminal=False)
    long_name = "a_name_so_long_that_a_narrow_terminal_has_no_room_for_all_of_it"
    rows = [
        row("memory_hit_sliding_window_counter", ours=1_500_000),
        replace(row("met", bar=3), note="aim 8"),
        row("missed", bar=3, better=Better.LOWER, ours=8),
        Row("cost", 12.5, 10, "µs/check", "x"),
        row(long_name, ours=5_430),
    ]
    with console.capture() as captured:
        report.show(console, rows)
    lines = captured.get().splitlines()
    assert [line.split()[0] for line in lines[:2]] == ["row", "met"]
    assert "…" not in captured.get()
    assert "≥ 3 (aim 8)  met" in lines[1]
    assert any("≤ 3          not met" in line for line in lines)
    assert "1.50 M/s" in captured.get()
    assert "12.5 µs" in captured.get()
    assert all(len(line) <= width for line in lines)
    assert captured.get().count("a peer") == 4
    assert long_name[:20] in captured.get()
    assert long_name[-3:] in captured.get()


def test_a_pipe_gets_whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a terminal every row is one line, however long it is."""
    monkeypatch.setenv("COLUMNS", "80")
    console = report.console()
    assert not console.is_terminal
    against = "a reference that takes many words to say what it is, " * 9
    with console.capture() as captured:
        report.show(console, [Row("a_row", 1, 2, "checks/s", against.strip(), bar=3)])
    assert against.strip() in captured.get().splitlines()[1]


def test_the_readme_has_every_bar() -> None:
    """The table of bars in bench/README.md is the one that rows are judged by, and each belongs to a part."""
    text = (Path(__file__).parents[2] / "bench/README.md").read_text(encoding="utf-8")
    _, _, behind = text.partition("<!-- bars -->\n")
    assert behind.partition("<!-- end of bars -->")[0] == bars.table()
    assert {bar.part for bar in bars.BARS.values()} <= parts.PARTS.keys()


def test_rows_are_judged_by_the_bars_of_today() -> None:
    """A row that was measured when its bar was another one has today's, and one whose bar is gone has none."""
    old = [row("rls", ours=9, bar=2.5), row("events_cost", bar=0.9), row("rls_cpu_envoy", ours=1)]
    judged = bars.judged(old)
    assert [(each.bar, each.met, each.better) for each in judged] == [
        (4, True, Better.HIGHER),
        (None, None, Better.HIGHER),
        (0.5, True, Better.LOWER),
    ]


def test_results_json_is_judged_by_the_bars_of_today() -> None:
    """What is kept of the last run has today's bars and names."""
    rows = report.read()["rows"]
    assert [each.as_dict() for each in bars.judged(Row.from_dict(each) for each in rows)] == rows
    assert len({each["name"] for each in rows}) == len(rows)


def test_a_part_that_fails_is_said_and_ends_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that raises, and one that takes too long, end with a sentence; what they have started ends with them."""
    left = tmp_path / "left"
    program = tmp_path / "python"
    program.write_text(
        f"#!/bin/sh\nsleep 600 &\necho $! > {left}.new\nmv {left}.new {left}\n[ $3 = sdk ] && exit 3\nwait\n",
        encoding="utf-8",
    )
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    assert parts.run("sdk", []) == "ended with code 3"
    assert _has_ended(int(left.read_text(encoding="utf-8")))
    left.unlink()
    assert parts.run("http", ["--quick"], seconds=0.5) == "stopped after 0.5 seconds"
    assert not left.exists() or _has_ended(int(left.read_text(encoding="utf-8")))


def _has_ended(process: int) -> bool:
    """Whether a process that was killed is gone, within a minute."""
    try:
        handle = os.pidfd_open(process)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], 60)[0])
    finally:
        os.close(handle)


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


PICTURES = {"memory": 4, "redis": 4, "leases": 1, "http": 2, "sdk": 1}


@pytest.mark.skipif(not HAS_PEERS, reason="the peers are in .venv-bench only (make bench)")
@pytest.mark.parametrize("part", parts.PARTS)
def test_a_part_measures_every_row_that_has_a_bar(part: str, tmp_path: Path) -> None:
    """A run with tiny counts goes through everything and leaves all rows and pictures."""
    running, plots = importlib.import_module(f"bench.{part}"), importlib.import_module("bench.plots")
    assert part == running.PART
    watch = Silence()
    outcome: Outcome = running.run(watch, quick=True)
    expected = {name: bar.better for name, bar in bars.BARS.items() if bar.part == part}
    for sentence in outcome.skipped:
        del expected[sentence.split()[0]]
    assert {each.name: each.better for each in outcome.rows if each.name in bars.BARS} == expected
    assert watch.done == watch.expected
    results = report.keep(outcome, tmp_path / "results.json")
    pictures = list(plots.draw(results, tmp_path / "plots"))
    assert len(pictures) == PICTURES.get(part, 0)
    assert all(picture.stat().st_size > 10_000 for picture in pictures)
