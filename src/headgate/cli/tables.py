"""A table of cells in a width that is given: numbers and times stay whole, texts are folded, columns stand below rows.

Cells come from anywhere. What a terminal would obey is written out, and what is longer than a glance is cut.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console

_MAX_CELL: Final = 100
_READABLE: Final = 12
"""The width below which no text is folded."""
_MAX_LINES: Final = 3
"""How many lines a text is folded into."""
_GAP: Final = 2
_MARGIN: Final = 1


def printable(text: str, most: int | None = None) -> str:
    r"""A text in one line, with what cannot be printed as ``\x1b``, and not longer than `most`."""
    if most is not None and len(text) > most:
        text = f"{text[: most - 1]}…"
    if text.isprintable():
        return text
    written = "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)
    return written if most is None or len(written) <= most else f"{written[: most - 1]}…"


def cell(content: str | Text, most: int | None = None) -> Text:
    """What stands in a cell, in one line."""
    if isinstance(content, str):
        return Text(printable(content, most))
    if content.plain.isprintable() and (most is None or len(content) <= most):
        return content
    return Text(printable(content.plain, most), content.style)


@dataclass(frozen=True, slots=True)
class Column:
    """A heading, and what stands below it."""

    heading: Text
    cells: Sequence[Text]
    side: Literal["left", "right"]
    is_whole: bool
    is_long: bool

    @property
    def widest(self) -> int:
        """The width in which nothing is folded."""
        return max(self.heading.cell_len, *(each.cell_len for each in self.cells))

    @property
    def is_same(self) -> bool:
        """Whether it says the same of several rows: a name or a word, no figure and nothing that is to be copied."""
        texts = {each.plain for each in self.cells}
        is_text = self.side == "left" and not (self.is_whole or self.is_long)
        return is_text and len(self.cells) > 1 and len(texts) == 1 and texts != {""}

    @property
    def narrowest(self) -> int:
        """The width that it has to have, so that nothing of it is cut."""
        least = 0 if self.is_long else -(-self.widest // _MAX_LINES)
        return self.widest if self.is_whole else min(self.widest, max(_READABLE, self.heading.cell_len, least))


def columns(
    headings: Sequence[str],
    rows: Sequence[Sequence[str | Text]],
    numbers: Sequence[str],
    whole: Sequence[str],
    long: Sequence[str],
) -> list[Column]:
    """Columns of rows. Numbers, times and what is `whole` are never folded; what is `long` is never cut."""
    found = []
    for heading, contents in zip(headings, zip(*rows, strict=True), strict=True):
        is_number = heading in numbers
        is_whole = is_number or heading in whole or heading.endswith("(UTC)")
        is_long = is_whole or heading in long
        most = None if is_long else _MAX_CELL
        cells = [cell(each, most) for each in contents]
        found.append(Column(cell(heading, _MAX_CELL), cells, "right" if is_number else "left", is_whole, is_long))
    return found


def fitting(found: Sequence[Column], width: int) -> list[int]:
    """The widths of columns that stand in `width`, the widest texts folded; none if there is not enough for all."""
    left = width - _MARGIN - _GAP * (len(found) - 1)
    widths = [column.widest for column in found]
    while sum(widths) > left:
        room = [have - column.narrowest for have, column in zip(widths, found, strict=True)]
        if not any(room):
            return []
        widest = max((have, index) for index, have in enumerate(widths) if room[index])[1]
        widths[widest] -= 1
    return widths


def lines(out: Console, found: Sequence[Column], widths: Sequence[int], below: Sequence[Column] = ()) -> Iterator[Text]:
    """The lines of a table; what stands `below` has lines of its own under each row, with its heading."""
    yield Text()
    yield from _row(out, found, widths, [column.heading for column in found], "bold")
    yield Text(" " * _MARGIN + "─" * (sum(widths) + _GAP * (len(widths) - 1)))
    for index in range(len(found[0].cells)):
        yield from _row(out, found, widths, [column.cells[index] for column in found])
        yield from _below(out, [(column.heading, column.cells[index]) for column in below if column.cells[index]])


def _below(out: Console, named: Sequence[tuple[Text, Text]]) -> Iterator[Text]:
    """Cells with their names, as many in a line as there is room for."""
    indent = " " * (_MARGIN + _GAP)
    width = max(1, out.width - len(indent)) if out.is_terminal else sys.maxsize
    line = Text()
    for heading, content in named:
        part = Text.assemble((heading.plain, "dim"), " ", content) if heading else content.copy()
        if line and line.cell_len + _GAP + part.cell_len > width:
            yield Text(indent).append(line)
            line = Text()
        if line:
            line.append(" " * _GAP)
        line.append(part)
        if line.cell_len > width:
            for piece in line.wrap(out, width, overflow="fold"):
                yield Text(indent).append(piece)
            line = Text()
    if line:
        yield Text(indent).append(line)


def _row(
    out: Console, found: Sequence[Column], widths: Sequence[int], cells: Sequence[Text], style: str = ""
) -> Iterator[Text]:
    folded = []
    for whole, width, column in zip(cells, widths, found, strict=True):
        each = whole.copy()
        if not column.is_long:
            each.truncate(_MAX_LINES * width, overflow="ellipsis")
        folded.append(each.wrap(out, width, justify=column.side, overflow="fold"))
    for number in range(max(map(len, folded))):
        words = [
            part[number] if number < len(part) else Text(" " * width)
            for part, width in zip(folded, widths, strict=True)
        ]
        line = Text(" " * _MARGIN, style).append(Text(" " * _GAP).join(words))
        line.rstrip()
        yield line
