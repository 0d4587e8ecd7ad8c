"""Changes to the text of a Python module that leave everything else as it is written."""

from __future__ import annotations

import ast
from typing import NamedTuple


class _Edit(NamedTuple):
    start: int
    end: int
    text: str


class Edits:
    """Replacements by the places of syntax nodes."""

    def __init__(self, source: str) -> None:
        """Nothing is changed yet."""
        self._source = source
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._edits: list[_Edit] = []

    def text_of(self, node: ast.AST) -> str:
        """The source of a node."""
        return ast.get_source_segment(self._source, node) or ast.unparse(node)

    def replace(self, node: ast.expr | ast.stmt, text: str) -> None:
        """Put a text in the place of a node."""
        start, end = self._span(node)
        self._edits.append(_Edit(start, end, text))

    def remove(self, statement: ast.stmt) -> None:
        """Remove a statement with its line."""
        start, end = self._span(statement)
        start = self._starts[statement.lineno - 1]
        rest = self._source[end : self._starts[statement.end_lineno or statement.lineno]]
        self._edits.append(
            _Edit(start, end + len(rest) if not rest.strip() or rest.lstrip().startswith("#") else end, "")
        )

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None  # noqa: S101 (the parser sets both)
        assert node.end_col_offset is not None  # noqa: S101 (as above)
        return self._offset(node.lineno, node.col_offset), self._offset(node.end_lineno, node.end_col_offset)

    def _offset(self, line: int, column: int) -> int:
        """Columns count bytes of UTF-8."""
        begin = self._starts[line - 1]
        text = self._source[begin : self._starts[line]]
        return begin + len(text.encode()[:column].decode())

    def result(self) -> str:
        """The whole text with all changes."""
        parts, position = [], 0
        for start, end, text in sorted(self._edits):
            if start < position:  # inside of something that was replaced as a whole
                continue
            parts += [self._source[position:start], text]
            position = end
        return "".join([*parts, self._source[position:]])
