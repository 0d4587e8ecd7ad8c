"""Figures of the control plane: shown as a table, and kept in control_plane.json for the documentation."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from bench.report import machine
from rich.console import Console
from rich.table import Table

FILE = Path(__file__).with_name("control_plane.json")


class Figure(NamedTuple):
    """One number."""

    name: str
    value: float
    unit: str


def keep(part: str, figures: list[Figure]) -> None:
    """Show what a part has measured, and put it in the file in place of what it measured last."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(part)
    table.add_column(justify="right")
    table.add_column()
    for figure in figures:
        table.add_row(
            figure.name, f"{figure.value:,.4g}" if figure.value < 1_000 else f"{figure.value:,.0f}", figure.unit
        )
    Console().print(table, soft_wrap=True)
    kept = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    about = {"date": datetime.now(UTC).isoformat(timespec="seconds"), "load": round(os.getloadavg()[0], 1)}
    kept["machine"] = machine()
    kept[part] = about | {"figures": [figure._asdict() for figure in figures]}
    FILE.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def share(values: list[float], part: float) -> float:
    """The value that this part of them does not exceed."""
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


def resident_megabytes() -> float:
    """Memory of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
