"""What people read: sentences on standard error, results on standard output, colours only on a terminal."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Final

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headgate.cli.tables import cell, columns, fitting, lines, printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headgate.cli.tables import Column

_WIDE: Final = 200
_NAME: Final = 40
_FIELD: Final = 1_000
"""What of a field is shown, at most."""


def console() -> Console:
    """Standard output, for people. Text is never marked up: it can come from anywhere."""
    out = Console(highlight=False, markup=False, emoji=False)
    if not out.is_terminal:
        out.width = _WIDE  # a file or a pipe has no width, and whole lines can be searched
    return out


def table() -> Table:
    """A table without columns yet."""
    return Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))


def counted(count: int, noun: str) -> str:
    """A number of things: ``1 rule``, ``8 rules``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def complain(sentence: str, *details: str) -> None:
    """Say what went wrong, or what will surprise."""
    said = "\n".join([f"headgate: {sentence}", *(f"  {line}" for line in details)])
    sys.stderr.write("".join(f"{printable(line)}\n" for line in said.split("\n")))


def print_json(data: object) -> None:
    """A result for programs."""
    sys.stdout.write(json.dumps(data, indent=2) + "\n")


def print_rows(
    headings: Sequence[str],
    rows: Sequence[Sequence[str | Text]],
    *,
    numbers: Sequence[str] = (),
    whole: Sequence[str] = (),
    long: Sequence[str] = (),
    below: Sequence[str] = (),
    spare: Sequence[str] = (),
) -> None:
    """A table, as wide as its terminal.

    Numbers stand on the right, and like times and columns that are `whole` they are never folded; texts are, and are
    cut after a glance unless they are `long`. If there is no room, columns that are `spare` are left out, those that
    may stand `below` each row do, and then the last ones. Texts below that are the same in all rows are written once.
    """
    if not rows:
        print_note("there are none")
        return
    out = console()
    visible = columns(headings, rows, numbers, whole, long)
    under: list[Column] = []
    width = out.width if out.is_terminal else sys.maxsize
    widths = fitting(visible, width)
    if not widths:
        visible = [column for column in visible if column.heading.plain not in spare]
        widths = fitting(visible, width)
    if not widths:
        under = [column for column in visible if column.heading.plain in below]
        visible = [column for column in visible if column.heading.plain not in below]
        widths = fitting(visible, width)
    while not widths and len(visible) > 1:
        under.insert(0, visible.pop())
        widths = fitting(visible, width)
    same = [column for column in under if column.is_same]
    under = [column for column in under if not column.is_same]
    for line in lines(out, visible, widths or [max(1, width - 1)], under):
        out.print(line, soft_wrap=True)
    if same:
        print_note(" all: " + ", ".join(f"{column.heading.plain} {column.cells[0].plain}" for column in same))


def print_line(text: Text) -> None:
    """A sentence: on a terminal it is broken between words, elsewhere it stays one line."""
    out = console()
    out.print(text, soft_wrap=not out.is_terminal)


def print_fields(fields: Mapping[str, str | Text | list[str]]) -> None:
    """One thing, a line for each of its fields, or more for a list; empty ones are left out."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in fields.items():
        if value:
            parts = value if isinstance(value, list) else [value]
            grid.add_row(printable(name, _NAME), Text("\n").join(cell(part, _FIELD) for part in parts))
    console().print(grid)


def print_done(word: str, what: str) -> None:
    """That something was done: ``created  tier pro``."""
    print_line(Text.assemble((word, "bold green"), f"  {printable(what)}"))


def print_applied(applied: str) -> None:
    """How far a change has got, from ``2/3``: ``applied by 2 of 3 processes``."""
    have_it, _, processes = applied.partition("/")
    if not processes:
        return
    line = f"applied by {have_it} of {processes} process{'' if processes == '1' else 'es'}"
    if processes == "0":
        line = "no process runs on this database now; it holds for those that start"
    elif have_it != processes:
        line += "; 'headgate processes' shows which"
    print_line(Text(line, "dim" if have_it == processes else "yellow"))


def print_secret(secret: str, *, alone: bool) -> None:
    """A secret, the one time that it is shown."""
    if alone:
        sys.stdout.write(f"{secret}\n")
        return
    out = console()
    out.print(Text.assemble("\n  ", (secret, "bold yellow"), "\n"), soft_wrap=True)
    out.print(Text("It is shown this one time and stored nowhere; keep it now.", "yellow"))


def print_note(sentence: str) -> None:
    """Something beside the result, for people."""
    print_line(Text(printable(sentence), "dim"))


def print_more(limit: int) -> None:
    """That a list goes on."""
    print_note(f"there are more; --limit {10 * limit} shows more of them")


def state(word: str) -> Text:
    """Whether a key or token is good, in its colour."""
    return Text(word, {"active": "green", "expired": "yellow", "revoked": "red"}.get(word, ""))


def moment(text: str | None, *, precise: bool = False) -> str:
    """A time as the API answers it, for people: ``2026-10-31 12:00``, in UTC; with seconds if `precise`."""
    return "" if text is None else text[: 19 if precise else 16].replace("T", " ")


def write_text(text: str) -> None:
    """A result as it is."""
    sys.stdout.write(text)


def give_up_output() -> None:
    """The reader of standard output has closed it: discard what is still to be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
