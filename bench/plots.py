"""The pictures in bench/plots/, drawn from results.json."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib import pyplot as plt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from matplotlib.axes import Axes

FOLDER = Path(__file__).parent / "plots"
_COLOURS = {"headgate": "#0b6e4f", "limits": "#e08e45", "throttled-py": "#8d6a9f", "pyrate-limiter": "#7a8b99"}
_KINDS = {"path": "#0b6e4f", "attribute": "#e08e45", "tier": "#8d6a9f", "address": "#3b6ea5"}
_SIZE, _DOTS = (8, 4.6), 100  # 800 pixels wide

mpl.use("Agg")


def draw(results: dict[str, Any], folder: Path = FOLDER) -> Iterator[Path]:
    """Draw everything there are figures for."""
    folder.mkdir(exist_ok=True)
    figures = results["figures"].get("memory", {})
    machine = results["machine"]
    note = f"{machine.get('cpu')}, {machine.get('python')}, {str(machine.get('date'))[:10]}"
    for table, name, title in (
        ("hits", "memory_hits.png", "One limit, memory store, 10,000 keys, all allowed"),
        ("denied hits", "memory_hits_denied.png", "One limit, memory store, 10,000 keys, all denied"),
        ("async hits", "memory_hits_async.png", "One limit, memory store, with await, 10,000 keys, all allowed"),
    ):
        if table in figures:
            yield _drawn(folder / name, title, note, partial(_paces, rows=figures[table]))
    if "rules" in figures:
        title = "What a check costs when there are more rules, one of which matches"
        yield _drawn(folder / "rules_growth.png", title, note, partial(_growth, rows=figures["rules"]))


def _drawn(path: Path, title: str, note: str, fill: Callable[[Axes], None]) -> Path:
    figure, axes = plt.subplots(figsize=_SIZE, dpi=_DOTS, layout="constrained")
    axes.set_title(title, loc="left", fontsize=12, fontweight="bold")
    axes.spines[["top", "right"]].set_visible(False)
    fill(axes)
    figure.supxlabel(note, fontsize=8, color="#666666", x=0.99, ha="right")
    figure.savefig(path)
    plt.close(figure)
    return path


def _paces(axes: Axes, rows: list[dict[str, Any]]) -> None:
    """Horizontal bars, grouped by algorithm."""
    algorithms = list(dict.fromkeys(row["algorithm"] for row in rows))
    position, ticks = 0.0, []
    named = set()
    for algorithm in algorithms:
        group = [row for row in rows if row["algorithm"] == algorithm]
        ticks.append((position + (len(group) - 1) / 2, algorithm.replace("_", " ")))
        for row in group:
            library = row["library"]
            label = None if library in named else library
            named.add(library)
            axes.barh(position, row["best"] / 1000, 0.85, color=_COLOURS[library], label=label)
            text = f"{row['best'] / 1000:,.0f}" + (f"  ({row['variant']})" if row["variant"] else "")
            axes.text(row["best"] / 1000, position, f" {text}", va="center", fontsize=8)
            position += 1
        position += 0.7
    axes.set_yticks([place for place, _ in ticks], [name for _, name in ticks])
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("thousand checks a second, one thread")
    axes.legend(loc="lower right", frameon=False)


def _growth(axes: Axes, rows: list[dict[str, Any]]) -> None:
    """A line for each way in which the rules differ."""
    for kind, colour in _KINDS.items():
        line = [row for row in rows if row["kind"] == kind]
        counts, costs = [row["rules"] for row in line], [row["best"] for row in line]
        grown = costs[-1] / costs[0]
        axes.plot(counts, costs, marker="o", color=colour, label=f"rules differ by {kind}: × {grown:.2f}")
    axes.set_xscale("log")
    counts = sorted({row["rules"] for row in rows})
    axes.set_xticks(counts, [f"{count:,}" for count in counts])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.set_xlabel("rules")
    axes.set_ylabel("µs per check")
    axes.legend(loc="lower left", frameon=False)
