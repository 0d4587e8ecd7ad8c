"""The plots of docs/explanation/scale.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from bench.scale_page import is_possible

mpl.use("svg")
import matplotlib.pyplot as plt

if TYPE_CHECKING:
    from pathlib import Path

_COLOURS = ("#9fb3c8", "#0062b1")


def draw(topology: dict[str, Any], redis_micros: float, folder: Path) -> None:
    """Redis operations for each request, and what is wrongly admitted or refused against the wait, by mode."""
    plt.rcParams["svg.hashsalt"] = "scale"
    _operations(topology, folder / "scale_operations.svg")
    _trade(topology, redis_micros, folder / "scale_trade.svg")


def _operations(topology: dict[str, Any], into: Path) -> None:
    figure, axes = plt.subplots(figsize=(8, 4))
    width = 0.8 / len(topology)
    for number, (rate, found) in enumerate(sorted(topology.items(), key=lambda item: float(item[0]))):
        rows = found["modes"]
        places = [index + number * width for index in range(len(rows))]
        values = [row["redis_operations_per_second"] for row in rows]
        axes.bar(places, values, width, label=f"{float(rate):,.0f} requests/s", color=_COLOURS[number % 2])
        axes.set_xticks([index + width / 2 for index in range(len(rows))], [row["mode"] for row in rows])
    axes.set_yscale("log")
    axes.set_ylabel("Redis operations a second, all servers")
    axes.legend()
    figure.tight_layout()
    figure.savefig(into, metadata={"Date": None})


def _trade(topology: dict[str, Any], redis_micros: float, into: Path) -> None:
    rows = topology[max(topology, key=float)]["modes"]
    figure, axes = plt.subplots(figsize=(8, 4))
    for row in rows:
        wrong = 100 * (row["over"] + row["under"])
        colour = "#0062b1" if is_possible(row, redis_micros) else "#c43d00"
        axes.scatter([row["p99_ms"]], [wrong], color=colour)
        axes.annotate(row["mode"], (row["p99_ms"], wrong), xytext=(5, 4), textcoords="offset points")
    axes.set_xscale("symlog", linthresh=0.1)
    axes.set_xlabel("p99 of the wait for a store, ms")
    axes.set_ylabel("wrongly admitted or refused, % of the limit")
    figure.tight_layout()
    figure.savefig(into, metadata={"Date": None})
