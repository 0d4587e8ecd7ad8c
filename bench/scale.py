"""The figures of the page about scale: ``python -m bench.scale simulate --rate N [--modes …] | write``.

`simulate` runs `headgate simulate topology` for one rate, mode by mode, and keeps each row in scale_figures.json.
`write` adds what others have measured (results.json, ten_million.json, the events' figures, those of the chaos suite),
draws the plots if matplotlib is there, and puts all tables into docs/explanation/scale.md.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from bench.scale_page import write_page
from bench.scale_sizing import sizing
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from headgate.simulate.topology.deployment import Deployment, Mode
from headgate.simulate.topology.layers import run_deployment
from headgate.simulate.topology.report import report

FILE = Path(__file__).with_name("scale_figures.json")


def simulate(rate: float, modes: list[Mode], jobs: int) -> None:
    """Keep the rows of these modes; each is kept as soon as it is there."""
    columns = (TextColumn("{task.description:22}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns) as bar:
        task = bar.add_task("", total=None)

        def progress(text: str, done: int, total: int) -> None:
            bar.update(task, description=text, completed=done, total=total)

        deployment = Deployment(rate=rate)
        for result in run_deployment(deployment, modes, progress, jobs):
            found = report(deployment, [result])
            kept = _kept()
            rows = kept.setdefault("topology", {}).setdefault(f"{rate:.0f}", {"modes": []})
            others = [row for row in rows["modes"] if row["mode"] != result.mode.value]
            order = [mode.value for mode in Mode]
            found["modes"] = sorted([*others, *found["modes"]], key=lambda row: order.index(row["mode"]))
            kept["topology"][f"{rate:.0f}"] = found
            _keep(kept)


def _kept() -> dict[str, Any]:
    kept: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    return kept


def _keep(kept: dict[str, Any]) -> None:
    FILE.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> None:
    """Do one step."""
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("step", choices=["simulate", "write"])
    parser.add_argument("--rate", type=float, default=100_000)
    parser.add_argument("--modes", default=",".join(mode.value.replace(" ", "-") for mode in Mode))
    parser.add_argument("--jobs", type=int, default=0)
    given = parser.parse_args()
    if given.step == "simulate":
        simulate(given.rate, [Mode(each.replace("-", " ")) for each in given.modes.split(",")], given.jobs)
    else:
        kept = _kept()
        kept |= sizing()
        _keep(kept)
        write_page(kept)


if __name__ == "__main__":
    main()
