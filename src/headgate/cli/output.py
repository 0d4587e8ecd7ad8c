"""What people read: sentences on standard error, results on standard output, colours only on a terminal."""

from __future__ import annotations

import json
import os
import sys
from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table

_WIDE: Final = 200


def console() -> Console:
    """Standard output, for people. Text is never marked up: it can come from anywhere."""
    out = Console(highlight=False, markup=False, emoji=False)
    if not out.is_terminal:
        out.width = _WIDE  # nobody looks at its width, and lines that stay whole can be searched
    return out


def table() -> Table:
    """A table without columns yet."""
    return Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))


def counted(count: int, noun: str) -> str:
    """A number of things: ``1 rule``, ``8 rules``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def complain(sentence: str, *details: str) -> None:
    """Say what went wrong, or what will surprise."""
    lines = [f"headgate: {sentence}", *(f"  {line}" for line in details)]
    sys.stderr.write("".join(f"{line}\n" for line in lines))


def print_json(data: object) -> None:
    """A result for programs."""
    sys.stdout.write(json.dumps(data, indent=2) + "\n")


def give_up_output() -> None:
    """Whoever read standard output has gone; what is still to be written goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
