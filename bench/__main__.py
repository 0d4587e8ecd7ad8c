"""The benchmarks: ``python -m bench [PART …] [--quick]``; without names of parts, everything."""

from __future__ import annotations

import argparse

from bench import (
    cold_users,
    flood,
    frameworks,
    http,
    leases,
    memory,
    plots,
    readme,
    recording,
    redis,
    report,
    rls,
    routes,
    sdk,
)
from bench.rows import Row
from rich.console import Console

PARTS = {
    part.PART: part.run
    for part in (memory, redis, leases, recording, http, cold_users, rls, flood, frameworks, routes, sdk)
}
PLOTS = "plots"


def main() -> None:
    """Run the parts that were asked for, one after the other, and show what they found."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="part", help=f"{', '.join(PARTS)}, or {PLOTS} to draw them again")
    parser.add_argument("--quick", action="store_true", help="only show that everything works; nothing is kept")
    arguments = parser.parse_args()
    if unknown := set(arguments.parts) - {*PARTS, PLOTS}:
        parser.error(f"there is no part {', '.join(sorted(unknown))}")
    console = Console()
    if not console.is_terminal:
        console.width = report.WITHOUT_A_TERMINAL
    for part in [name for name in PARTS if name in (arguments.parts or PARTS)]:
        with report.Bar(console) as bar:
            outcome = PARTS[part](bar, quick=arguments.quick)
        if arguments.quick:
            console.print(report.table(outcome.rows, console.width))
        else:
            report.keep(outcome)
    if arguments.quick:
        return
    results = report.read()
    console.print(report.table([Row.from_dict(row) for row in results["rows"]], console.width))
    for picture in plots.draw(results):
        console.print(f"drawn: {picture}")
    readme.write()


if __name__ == "__main__":
    main()
