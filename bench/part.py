"""One part of the benchmark, in a process of its own: ``python -m bench.part NAME [--quick]``."""

from __future__ import annotations

import argparse
import importlib

from bench import report
from bench.bars import judged
from bench.parts import PARTS


def main() -> None:
    """Measure the part, with a progress bar, and keep what it found; a quick run only shows it."""
    parser = argparse.ArgumentParser(prog="python -m bench.part", description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    console = report.console()
    with report.Bar(console) as bar:
        outcome = importlib.import_module(f"bench.{arguments.part}").run(bar, quick=arguments.quick)
    if arguments.quick:
        report.show(console, judged(outcome.rows))
        for sentence in outcome.skipped:
            console.print(sentence)
    else:
        report.keep(outcome)


if __name__ == "__main__":
    main()
