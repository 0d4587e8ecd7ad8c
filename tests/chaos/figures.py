"""What a run has measured: shown as a table when it ends, and kept in figures.json for the documentation."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import Final, NamedTuple

FILE: Final = Path(__file__).with_name("figures.json")
_WIDTHS: Final = (46, 34, 12, 12)


class Figure(NamedTuple):
    """One number, with the bar that it may not exceed, where there is one."""

    case: str
    name: str
    value: float
    unit: str
    bar: float | None = None

    @property
    def met(self) -> bool:
        """Whether the value is no greater than its bar."""
        return self.bar is None or self.value <= self.bar


class Figures:
    """All figures of a run."""

    def __init__(self) -> None:
        """None yet."""
        self.taken: list[Figure] = []

    def note(self, case: str, name: str, value: float, unit: str, bar: float | None = None) -> None:
        """Keep a number that should be at most `bar`."""
        self.taken.append(Figure(case, name, round(value, 4), unit, bar))

    def check(self, case: str, name: str, value: float, unit: str, bar: float) -> None:
        """Keep a number that must be at most `bar`."""
        self.note(case, name, value, unit, bar)
        assert value <= bar, f"{case}: {name} is {value:g} {unit}, and may be {bar:g} at most"

    def write(self) -> None:
        """Put this run's figures in the file, in place of earlier ones of the same cases."""
        cases = {figure.case for figure in self.taken}
        earlier = json.loads(FILE.read_text(encoding="utf-8"))["rows"] if FILE.exists() else []
        rows = [row for row in earlier if row["case"] not in cases]
        rows += [{**figure._asdict(), "met": figure.met} for figure in self.taken]
        rows.sort(key=lambda row: row["case"])
        machine = {"cores": os.cpu_count(), "python": platform.python_version(), "system": platform.system()}
        FILE.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n", encoding="utf-8")

    def table(self) -> list[str]:
        """Lines to show."""
        rows = [("case", "what", "measured", "at most")]
        for case, name, value, unit, bar in self.taken:
            rows.append((case, name, f"{value:,g} {unit}", "" if bar is None else f"{bar:,g} {unit}"))
        return ["  ".join(cell.ljust(width) for cell, width in zip(row, _WIDTHS, strict=True)) for row in rows]
