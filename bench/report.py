"""What people see of a run, and what is kept of it: a table, results.json, a progress bar."""

from __future__ import annotations

import json
import os
import platform
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.bars import judged
from bench.rows import Better, Outcome, Row, merged
from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

RESULTS = Path(__file__).parent / "results.json"
_WITHOUT_A_TERMINAL = 10_000
"""How wide a pipe or a file counts as, so that lines are whole."""
_LIBRARIES = ("headgate", "limits", "throttled-py", "pyrate-limiter", "redis", "valkey", "matplotlib", "rich")


def keep(outcome: Outcome, path: Path = RESULTS) -> dict[str, Any]:
    """Write what was found into results.json, beside what other parts found earlier, and return all of it."""
    before = read(path)
    date = datetime.now(UTC).isoformat(timespec="seconds")
    rows = merged([Row.from_dict(row) for row in before["rows"]], outcome, date)
    results = {
        "machine": machine(),
        "rows": [row.as_dict() for row in judged(rows)],
        "figures": {**before["figures"], outcome.part: outcome.figures},
        "skipped": {**before["skipped"], outcome.part: outcome.skipped},
    }
    path.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return results


def read(path: Path = RESULTS) -> dict[str, Any]:
    """What results.json holds; nothing, if there is none yet."""
    nothing: dict[str, Any] = {"machine": {}, "rows": [], "figures": {}, "skipped": {}}
    return {**nothing, **json.loads(path.read_text(encoding="utf-8"))} if path.exists() else nothing


def machine() -> dict[str, Any]:
    """What the numbers were measured on and with."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "libraries": {name: _version(name) for name in _LIBRARIES},
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


def _version(library: str) -> str | None:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return None


def console() -> Console:
    """Where a run is shown: the terminal, or a pipe or file, where no line is broken or cut."""
    made = Console()
    if not made.is_terminal:
        made.width = _WITHOUT_A_TERMINAL
    return made


def show(where: Console, rows: list[Row]) -> None:
    """The rows for people, those with a bar first: a line for each, or two where a line has no room for all of it."""
    ordered = sorted(rows, key=lambda row: row.bar is None)
    wide = _table(("row", "ours", "reference", "ratio", "bar", "", "against"))
    for row in ordered:
        wide.add_row(row.name, *_figures(row), *_verdict(row), row.against)
    if where.measure(wide, options=where.options.update(width=_WITHOUT_A_TERMINAL)).maximum <= where.width:
        where.print(wide)
        return
    narrow = _table(("row", "ratio", "bar", ""))
    for row in ordered:
        narrow.add_row(row.name, *_verdict(row))
        ours, reference = _figures(row)
        narrow.add_row(Padding(f"{ours} against {reference}: {row.against}", (0, 0, 0, 4), style="dim"))
    where.print(narrow)


def _table(headings: tuple[str, ...]) -> Table:
    made = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold underline")
    for heading in headings:
        if heading in {"ours", "reference", "ratio"}:
            made.add_column(heading, justify="right", no_wrap=True)
        else:
            made.add_column(heading, overflow="fold", no_wrap=heading not in {"row", "against"})
    return made


def _figures(row: Row) -> tuple[str, str]:
    return _number(row.ours, row.unit), _number(row.reference, row.unit)


def _verdict(row: Row) -> tuple[str, str, str]:
    note = f" ({row.note})" if row.note else ""
    return f"[bold]{row.ratio:.2f}[/bold]", _bar(row) + note, _mark(row)


def _number(value: float, unit: str) -> str:
    """Short enough for a table: 1.18 M/s, 94.1 k/s, 8.1 µs."""
    what, _, per = unit.partition("/")
    if per == "s":
        return f"{value / 1e6:.2f} M/s" if value >= 1e6 else f"{value / 1e3:,.3g} k/s"
    return f"{value:,.0f} B" if what == "bytes" else f"{value:,.3g} {what}" if value < 1e3 else f"{value:,.0f} {what}"


def _bar(row: Row) -> str:
    if row.bar is None:
        return ""
    return f"{'≥' if row.better is Better.HIGHER else '≤'} {row.bar:g}"


def _mark(row: Row) -> str:
    return {True: "[green]met[/green]", False: "[red]not met[/red]", None: ""}[row.met]


class Bar:
    """A `Watch` that draws a progress bar."""

    def __init__(self, console: Console) -> None:
        columns = (TextColumn("{task.description:32}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=console)
        self._task = self._progress.add_task("making ready", total=None)
        self._is_first = True

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, _failed: type[BaseException] | None, _value: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def begin(self, text: str, steps: int) -> None:
        """See `Watch.begin`."""
        if self._is_first:
            self._progress.update(self._task, description=text, total=steps)
            self._is_first = False
        else:
            self._task = self._progress.add_task(text, total=steps)

    def step(self) -> None:
        """See `Watch.step`."""
        self._progress.advance(self._task)
