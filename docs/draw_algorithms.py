"""Draw the picture of each algorithm, from what the real algorithm answers; run by `make pictures`.

The same code gives the same bytes: no dates, no random identifiers, letters as outlines.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import histories as story
import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from headgate.core.meter import Algorithm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FOLDER = Path(__file__).parent / "algorithms"
INK, GREY, FAINT = "#24292f", "#6e7781", "#d0d7de"
BLUE, PALE_BLUE, PALE_SAND = "#1f6feb", "#cfe2ff", "#f3e3bf"
RED = "#cf222e"
STYLE = {
    "svg.hashsalt": "headgate",
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": INK,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
}
STEPS_PER_SECOND = 50
ADMITTED = Line2D([], [], marker="o", color=BLUE, linestyle="none", label="admitted")
REFUSED = Line2D([], [], marker="x", color=RED, linestyle="none", markeredgewidth=1.8, label="refused")


def canvas(end: float, strips: float = 0.34) -> tuple[Figure, Axes, Axes]:
    """A figure with a strip of arrivals above and the level below, on one time axis."""
    figure, (top, below) = plt.subplots(
        2, 1, sharex=True, figsize=(7.0, 3.3), height_ratios=(strips, 1), layout="constrained"
    )
    top.set(yticks=[], ylim=(-1, 1))
    top.spines[["left", "bottom"]].set_visible(False)
    top.tick_params(bottom=False)
    top.set_ylabel("arrivals", rotation=0, ha="right", va="center")
    below.set(xlim=(0, end), xlabel="seconds")
    below.yaxis.set_major_locator(MaxNLocator(integer=True))
    return figure, top, below


def arrivals(axes: Axes, answers: Sequence[story.Answer], height: float = 0) -> None:
    """Mark who was admitted and who was not."""
    good = [answer.at for answer in answers if answer.allowed]
    bad = [answer.at for answer in answers if not answer.allowed]
    axes.plot(good, [height] * len(good), "o", color=BLUE, markersize=6.5)
    axes.plot(bad, [height] * len(bad), "x", color=RED, markersize=6.5, markeredgewidth=1.8)


def legend(figure: Figure, *more: Patch | Line2D) -> None:
    """One line of explanation above everything."""
    figure.legend(handles=[ADMITTED, REFUSED, *more], loc="outside upper center", ncols=6, handletextpad=0.5)


def moments(end: float) -> list[float]:
    """The times at which levels are drawn."""
    return [step / STEPS_PER_SECOND for step in range(round(end * STEPS_PER_SECOND) + 1)]


def corners(times: Sequence[float], *lines: Sequence[float]) -> list[list[float]]:
    """The times and levels without the points that lie on a straight line between their neighbours."""
    kept = [
        step
        for step in range(len(times))
        if step in {0, len(times) - 1}
        or any(abs(line[step + 1] - 2 * line[step] + line[step - 1]) > 1e-9 for line in lines)
    ]
    return [[line[step] for step in kept] for line in (times, *lines)]


def limit_line(axes: Axes, height: float, text: str) -> None:
    """A dashed line, named at its right end, above it."""
    axes.axhline(height, color=INK, linestyle=(0, (5, 3)), linewidth=1)
    axes.annotate(text, (1, height), (0, 3), xycoords=("axes fraction", "data"), textcoords="offset points", ha="right")


def boundaries(axes: Axes) -> None:
    """Where one window ends and the next begins."""
    for at in range(0, round(story.WINDOW_END) + 1, 10):
        axes.axvline(at, color=FAINT, linewidth=1.2, zorder=0)


def fixed_window() -> Figure:
    """The count of each window, and the burst around a boundary that it lets through."""
    answers = story.answers(Algorithm.FIXED_WINDOW)
    figure, top, below = canvas(story.WINDOW_END)
    arrivals(top, answers)
    times = moments(story.WINDOW_END)
    counts = []
    for at in times:
        state = story.state_at(answers, at)
        this_window = story.instant(at) - story.instant(at) % 10_000_000
        counts.append(state[1] if state is not None and state[0] == this_window else 0)
    times, counts = corners(times, counts)
    below.fill_between(times, counts, step="post", color=PALE_BLUE, linewidth=0)
    below.step(times, counts, where="post", color=BLUE, linewidth=1.5)
    limit_line(below, 5, "limit 5")
    for axes in (top, below):
        boundaries(axes)
    around = [answer.at for answer in answers if answer.allowed][:10]
    top.annotate(
        "", (around[0] - 0.3, -0.85), (around[-1] + 0.3, -0.85), arrowprops={"arrowstyle": "<->", "color": GREY}
    )
    below.text(
        10.2,
        5.95,
        "10 pass in 6 s: a boundary lies between",
        va="center",
        ha="center",
        color=GREY,
        backgroundcolor="white",
    )
    below.set(ylim=(0, 6.6), ylabel="count of the window")
    legend(figure)
    return figure


def sliding_window_counter() -> Figure:
    """The two parts of the estimate, one upon the other."""
    answers = story.answers(Algorithm.SLIDING_WINDOW_COUNTER)
    figure, top, below = canvas(story.WINDOW_END)
    arrivals(top, answers)
    times = moments(story.WINDOW_END)
    parts = [story.window_parts(answers, at) for at in times]
    times, current, total = corners(times, [part[1] for part in parts], [sum(part) for part in parts])
    below.fill_between(times, current, step="post", color=PALE_BLUE, linewidth=0)
    below.fill_between(times, current, total, step="post", color=PALE_SAND, linewidth=0)
    below.step(times, total, where="post", color=BLUE, linewidth=1.5)
    limit_line(below, 5, "limit 5")
    for axes in (top, below):
        boundaries(axes)
    below.set(ylim=(0, 6.6), ylabel="used, as estimated")
    legend(
        figure, Patch(color=PALE_BLUE, label="this window"), Patch(color=PALE_SAND, label="last window, still in view")
    )
    return figure


def sliding_window_log() -> Figure:
    """Every admission as a bar of one period; no moment is under more than five of them."""
    answers = story.answers(Algorithm.SLIDING_WINDOW_LOG)
    figure, top, below = canvas(story.WINDOW_END)
    arrivals(top, answers)
    admitted = [answer.at for answer in answers if answer.allowed]
    places: list[float] = [0.0] * 5
    for at in admitted:
        row = next(row for row, free_from in enumerate(places) if free_from <= at)
        below.barh(row + 0.5, 10, left=at, height=0.66, color=PALE_BLUE, edgecolor=BLUE, linewidth=1.2)
        below.plot(at, row + 0.5, "o", color=BLUE, markersize=5)
        places[row] = at + 10
    limit_line(below, 5, "limit 5")
    below.set(ylim=(0, 6.0), ylabel="in view")
    legend(figure, Patch(facecolor=PALE_BLUE, edgecolor=BLUE, label="counts for one period"))
    return figure


def token_bucket() -> Figure:
    """Tokens left: bursts take them at once, time brings them back."""
    answers = story.answers(Algorithm.TOKEN_BUCKET)
    figure, top, below = canvas(story.TOKEN_END)
    arrivals(top, answers)
    times = moments(story.TOKEN_END)
    tokens = [4 - story.in_bucket(answers, at, Algorithm.TOKEN_BUCKET) for at in times]
    times, tokens = corners(times, tokens)
    below.fill_between(times, tokens, color=PALE_BLUE, linewidth=0)
    below.plot(times, tokens, color=BLUE, linewidth=1.5)
    limit_line(below, 4, "capacity 4")
    below.set(ylim=(0, 5.0), ylabel="tokens left")
    legend(figure)
    return figure


def leaky_bucket() -> Figure:
    """From arrival to departure: bursts come in, an even stream goes out."""
    answers = story.answers(Algorithm.LEAKY_BUCKET)
    figure, top, below = canvas(story.LEAKY_END, strips=0.62)
    arrivals(top, answers, 0.8)
    for answer in answers:
        if answer.allowed:
            out = answer.at + answer.delay
            top.plot([answer.at, out], [0.8, -0.8], color=FAINT, linewidth=1.2, zorder=0)
            top.plot(out, -0.8, "o", color=BLUE, markerfacecolor="white", markersize=6.5, markeredgewidth=1.5)
    top.set(ylim=(-1.3, 1.3), yticks=[0.8, -0.8], yticklabels=["in", "out"], ylabel="")
    top.tick_params(left=False)
    times = moments(story.LEAKY_END)
    queue = [story.in_bucket(answers, at, Algorithm.LEAKY_BUCKET) for at in times]
    times, queue = corners(times, queue)
    below.fill_between(times, queue, color=PALE_BLUE, linewidth=0)
    below.plot(times, queue, color=BLUE, linewidth=1.5)
    limit_line(below, 4, "capacity 4")
    below.set(ylim=(0, 5.0), ylabel="in the queue")
    goes_out = Line2D([], [], marker="o", color=BLUE, linestyle="none", markerfacecolor="white", label="goes out")
    legend(figure, goes_out)
    return figure


def concurrency() -> Figure:
    """Who holds a slot, from when to when."""
    figure, axes = plt.subplots(figsize=(7.0, 3.3), layout="constrained")
    slots = story.slots()
    for row, slot in enumerate(reversed(slots)):
        if not slot.allowed:
            axes.plot(slot.asked, row, "x", color=RED, markersize=6.5, markeredgewidth=1.8)
            continue
        axes.barh(row, slot.ended - slot.asked, left=slot.asked, height=0.56, color=PALE_BLUE, edgecolor=BLUE)
        axes.plot(slot.asked, row, "o", color=BLUE, markersize=6.5)
        if slot.renewed is not None:
            axes.plot(slot.renewed, row, "|", color=BLUE, markersize=11, markeredgewidth=2)
            axes.text(slot.renewed + 0.15, row, "renews", va="center", color=GREY)
        end = "dies: its ttl frees the slot" if slot.died else "released"
        axes.text(slot.ended + 0.2, row, end, va="center", color=GREY)
    axes.set(
        xlim=(0, story.SLOTS_END),
        xlabel="seconds",
        yticks=range(len(slots)),
        yticklabels=[slot.name for slot in reversed(slots)],
        ylabel="3 slots, asked for by",
    )
    axes.tick_params(left=False)
    legend(figure, Patch(facecolor=PALE_BLUE, edgecolor=BLUE, label="holds a slot"))
    return figure


PICTURES = {
    Algorithm.FIXED_WINDOW: fixed_window,
    Algorithm.SLIDING_WINDOW_COUNTER: sliding_window_counter,
    Algorithm.SLIDING_WINDOW_LOG: sliding_window_log,
    Algorithm.TOKEN_BUCKET: token_bucket,
    Algorithm.LEAKY_BUCKET: leaky_bucket,
    Algorithm.CONCURRENCY: concurrency,
}


def main(folder: Path, suffix: str) -> None:
    """Draw all pictures into a folder."""
    mpl.use("Agg")
    plt.style.use(STYLE)
    for algorithm, draw in PICTURES.items():
        figure = draw()
        path = folder / f"{algorithm}.{suffix}"
        drawn_from = f"drawn from the answers {story.fingerprint(algorithm)}"
        metadata = {"Date": None, "Creator": None, "Description": drawn_from} if suffix == "svg" else None
        figure.savefig(path, metadata=metadata, dpi=100, facecolor="white")
        plt.close(figure)
        print(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER, sys.argv[2] if len(sys.argv) > 2 else "svg")
