"""The comparison with other libraries claims only what a test shows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_TEST: Final = re.compile(r"`(test_\w+\.py)::(test_\w+)`")
_CELLS: Final = frozenset({"yes", "no", "partly", "?"})
_COLUMNS: Final = 9


def test_every_row_names_tests_that_exist(root: Path) -> None:
    """Each cell of ours names at least one test, each test exists, and the other cells have one of four words."""
    text = (root / "docs/explanation/compared.md").read_text(encoding="utf-8")
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 20
    for row in rows:
        cells = [cell.strip() for cell in row]
        assert len(cells) == _COLUMNS, cells[0]
        assert set(cells[1:-1]) <= _CELLS, cells[0]
        named = _TEST.findall(cells[-1])
        assert named, cells[0]
        for file, test in named:
            source = (root / "tests/unit/frameworks" / file).read_text(encoding="utf-8")
            assert f"def {test}(" in source, test
