"""The pictures in bench/plots/, drawn from results.json."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from statistics import median
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
    machine = results["machine"]
    note = f"{machine.get('cpu')}, {machine.get('python')}, {str(machine.get('date'))[:10]}"
    for part, table, name, title, fill in (
        ("memory", "hits", "memory_hits", "One limit, memory store, 10,000 keys, all allowed", _paces),
        ("memory", "denied hits", "memory_hits_denied", "One limit, memory store, 10,000 keys, all denied", _paces),
        ("memory", "async hits", "memory_hits_async", "One limit, memory store, with await, 10,000 keys", _paces),
        (
            "memory",
            "rules",
            "rules_growth",
            "What a check costs when there are more rules, one of which matches",
            _growth,
        ),
        (
            "redis",
            "async hits",
            "redis_hits_async",
            "One limit, one Redis server, with await, 64 tasks",
            _process_paces,
        ),
        ("redis", "threads", "redis_hits_threads", "One limit, one Redis server, 8 threads", _process_paces),
        ("redis", "tasks", "redis_tasks", "One limit, one Redis server, with await, more and more tasks", _tasks),
        ("leases", "shares", "lease_shares", "Four processes, hits by the share of traffic on one key", _shares),
        ("redis", "server", "redis_server", "What a check takes of the Redis server, 64 tasks", _server),
        ("sdk", "timeline", "sdk_calls", "20 tasks call a server limited to 50 a second, 1,000 times", _timeline),
        ("http", "saturation", "http_saturation", "The decision service on Redis, 64 connections", _http_paces),
        ("http", "latency", "http_latency", "The decision service at half of what it can do, p99", _http_latencies),
    ):
        if rows := results["figures"].get(part, {}).get(table):
            yield _drawn(folder / f"{name}.png", title, note, partial(fill, rows=rows))


def _drawn(path: Path, title: str, note: str, fill: Callable[[Axes], None]) -> Path:
    figure, axes = plt.subplots(figsize=_SIZE, dpi=_DOTS, layout="constrained")
    axes.set_title(title, loc="left", fontsize=12, fontweight="bold")
    axes.spines[["top", "right"]].set_visible(False)
    fill(axes)
    figure.supxlabel(note, fontsize=8, color="#666666", x=0.99, ha="right")
    figure.savefig(path)
    plt.close(figure)
    return path


def _paces(axes: Axes, rows: list[dict[str, Any]], who: str = "one thread") -> None:
    """How many a second."""
    _bars(axes, rows, "best", 1e-3, ",.0f")
    axes.set_xlabel(f"thousand checks a second, {who}")
    _legend_below(axes)


def _process_paces(axes: Axes, rows: list[dict[str, Any]]) -> None:
    _paces(axes, rows, "one process")


def _server(axes: Axes, rows: list[dict[str, Any]]) -> None:
    """All that the server does for a check, and the script or command itself as the darker part of it."""
    _bars(axes, rows, "cpu", 1, ".1f", alpha=0.5)
    _bars(axes, rows, "script", 1, "")
    axes.set_xlabel("µs of the server's core per check (dark: in the script or command itself)")
    _legend_below(axes)


def _legend_below(axes: Axes, columns: int = 4) -> None:
    """Below everything, where no bar or line can be in its way; of two with the same name, the later one."""
    handles, names = axes.get_legend_handles_labels()
    by_name = dict(zip(names, handles, strict=True))
    axes.figure.legend(by_name.values(), by_name, loc="outside lower left", ncols=columns, frameon=False, fontsize=9)


def _bars(axes: Axes, rows: list[dict[str, Any]], field: str, scale: float, shown: str, alpha: float = 1) -> None:
    """Horizontal bars, grouped by algorithm, with their numbers beside them where a format for them is given."""
    algorithms = list(dict.fromkeys(row["algorithm"] for row in rows))
    position, ticks = 0.0, []
    named = set()
    for algorithm in algorithms:
        group = [row for row in rows if row["algorithm"] == algorithm]
        ticks.append((position + (len(group) - 1) / 2, algorithm.replace("_", " ")))
        for row in group:
            library, value = row["library"], row[field] * scale
            label = None if library in named else library
            named.add(library)
            axes.barh(position, value, 0.85, color=_COLOURS[library], label=label, alpha=alpha)
            if shown:
                variant = row["variant"].rpartition(", ")[2]
                text = f"{value:{shown}}" + (f"  ({variant})" if variant else "")
                axes.text(value, position, f" {text}", va="center", fontsize=8)
            position += 1
        position += 0.7
    axes.set_yticks([place for place, _ in ticks], [name for _, name in ticks])
    axes.set_ylim(position - 1, -0.7)
    axes.tick_params(axis="y", length=0)


def _tasks(axes: Axes, rows: list[dict[str, Any]]) -> None:
    """A line for each contestant."""
    counts = sorted({row["tasks"] for row in rows})
    lines: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        lines.setdefault((row["library"], row["variant"] or row["algorithm"]), []).append(row["best"] / 1000)
    for number, ((library, which), paces) in enumerate(lines.items()):
        style = "--" if library in {earlier for earlier, _ in list(lines)[:number]} else "-"
        label = f"{library} {which.replace('_', ' ')}"
        axes.plot(counts, paces, style, marker="o", color=_COLOURS[library], label=label)
    axes.set_xscale("log", base=2)
    axes.set_xticks(counts, [f"{count:,}" for count in counts])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.set_xlabel("tasks that check at the same time, in one process")
    axes.set_ylabel("thousand checks a second")
    _legend_below(axes, 2)


def _timeline(axes: Axes, rows: list[dict[str, Any]]) -> None:
    """What was answered and what was refused, as it added up."""
    for client, colour, name in (("headgate", "#0b6e4f", "headgate.client"), ("naive", "#e08e45", "naive client")):
        line = [row for row in rows if row["client"] == client]
        seconds = [row["second"] for row in line]
        axes.plot(seconds, [row["answered"] for row in line], color=colour, label=f"{name}: answered")
        refused = [row["refused"] for row in line]
        axes.plot(seconds, refused, "--", color=colour, label=f"{name}: refused ({refused[-1]:,})")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("seconds")
    axes.set_ylabel("calls")
    _legend_below(axes, 2)


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


def _http_paces(axes: Axes, rows: list[dict[str, Any]]) -> None:
    """The best round, with all rounds as dots."""
    _by_kind(axes, rows, "rates", 1e-3, max)
    axes.set_xlabel("thousand requests a second, two processes (bar: the best round, dots: all rounds)")


def _http_latencies(axes: Axes, rows: list[dict[str, Any]]) -> None:
    """The usual round, with all rounds as dots."""
    _by_kind(axes, rows, "p99_ms", 1, median)
    axes.set_xlabel(
        f"milliseconds at {rows[0]['pace']:,.0f} requests a second (bar: the median round, dots: all rounds)"
    )


def _by_kind(
    axes: Axes, rows: list[dict[str, Any]], field: str, scale: float, shown: Callable[[list[float]], float]
) -> None:
    names = {"constant": "the server's constant answer", "check": "/v1/check", "auto": "/v1/check, one user, auto"}
    for position, row in enumerate(rows):
        rounds = [value * scale for value in row[field]]
        colour = _COLOURS["pyrate-limiter" if row["kind"] == "constant" else "headgate"]
        axes.barh(position, shown(rounds), 0.6, color=colour)
        axes.plot(rounds, [position] * len(rounds), "o", color="#222222", markersize=4)
        axes.text(shown(rounds), position + 0.36, f"{shown(rounds):.2f}", ha="right", fontsize=9)
    axes.set_yticks(range(len(rows)), [names[row["kind"]] for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(left=0)
    axes.tick_params(axis="y", length=0)


def _shares(axes: Axes, rows: list[dict[str, Any]]) -> None:
    """A line for each spread."""
    for spread, colour in (("auto", _COLOURS["headgate"]), ("exact", _COLOURS["limits"])):
        points = [(100 * row["share"], row["pace"] / 1_000) for row in rows if row["spread"] == spread]
        axes.plot(*zip(*points, strict=True), "o-", color=colour, label=f"spread: {spread}")
    axes.set_xlabel("% of the traffic on one key")
    axes.set_ylabel("thousand hits a second")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
