"""The benchmarks: ``python -m bench [PART …] [--quick]``; without names of parts, everything."""

from __future__ import annotations

import argparse
import sys
import time

from bench import bars, parts, plots, readme, report
from bench.rows import Row

PLOTS = "plots"


def main() -> int:
    """Run the parts that were asked for, one after the other, and show what they found."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    names = ", ".join(parts.PARTS)
    parser.add_argument("parts", nargs="*", metavar="part", help=f"{names}, or {PLOTS} to draw them again")
    parser.add_argument("--quick", action="store_true", help="only show that everything works; nothing is kept")
    arguments = parser.parse_args()
    if unknown := set(arguments.parts) - {*parts.PARTS, PLOTS}:
        parser.error(f"there is no part {', '.join(sorted(unknown))}")
    console = report.console()
    chosen = [name for name in parts.PARTS if name in (arguments.parts or parts.PARTS)]
    failed = {}
    for number, part in enumerate(chosen, 1):
        began = time.monotonic()
        console.print(f"[bold]{part}[/bold], part {number} of {len(chosen)}, at most {parts.PARTS[part]:,} seconds")
        reason = parts.run(part, ["--quick"] if arguments.quick else [])
        console.print(f"{part} {reason or 'measured'} in {time.monotonic() - began:.0f} seconds")
        if reason is not None:
            failed[part] = reason
    if not arguments.quick:
        _show(console)
    for part, reason in failed.items():
        console.print(f"[red]failed:[/red] {part} {reason}; its rows are those of an earlier run, or missing")
    return 1 if failed else 0


def _show(console: report.Console) -> None:
    """All rows, of this run and of earlier ones, and what is missing; then the pictures and the README's table."""
    results = report.read()
    rows = bars.judged([Row.from_dict(row) for row in results["rows"]])
    report.show(console, rows)
    for sentence in results["skipped"].values():
        console.print(*sentence)
    if missing := sorted(bars.BARS.keys() - {row.name for row in rows}):
        console.print(f"not measured yet: {', '.join(missing)}")
    for picture in plots.draw(results):
        console.print(f"drawn: {picture}")
    readme.write()


if __name__ == "__main__":
    sys.exit(main())
