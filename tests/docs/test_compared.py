"""The comparison with other libraries claims only what a test shows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_TEST: Final = re.compile(r"`(test_\w+\.py)::(test_\w+)`")
_CELLS: Final = frozenset({"yes", "no", "partly"})
_COLUMNS: Final = 9


def test_every_row_names_tests_that_exist(root: Path) -> None:
    """Each cell of ours names at least one test, each test exists, and the other cells have one of three words."""
    rows = _rows(root / "docs/explanation/compared.md")
    assert len(rows) > 20
    for name, cells in rows.items():
        assert len(cells) == _COLUMNS - 1, name
        assert set(cells[:-1]) <= _CELLS, name
        named = _TEST.findall(cells[-1])
        assert named, name
        for file, test in named:
            (found,) = (root / "tests/unit").rglob(file)
            assert f"def {test}(" in found.read_text(encoding="utf-8"), test


def test_what_is_asked_for_names_tests_that_exist(root: Path) -> None:
    """Each row says where something was asked for, and yes, no or partly; the tests that it names exist."""
    text = (root / "docs/explanation/compared.md").read_text(encoding="utf-8")
    lines = text.partition("| asked for |")[2].partition("\n\n")[0].splitlines()[2:]
    assert len(lines) >= 20
    for line in lines:
        asked, where, here = (cell.strip() for cell in line.strip("|").split("|"))
        assert "https://github.com/" in where, asked
        assert here.split(maxsplit=1)[0].strip(":,;") in _CELLS, asked
        for file, test in _TEST.findall(here):
            (found,) = (root / "tests/unit").rglob(file)
            assert f"def {test}(" in found.read_text(encoding="utf-8"), test


def test_the_readme_says_the_same(root: Path) -> None:
    """The shorter table of the README has rows of the longer one, with the same cells for the others."""
    rows = _rows(root / "docs/explanation/compared.md")
    short = _rows(root / "README.md", columns=_COLUMNS)
    assert len(short) > 5
    for name, cells in short.items():
        assert cells[:-1] == rows[name][:-1], name
        assert cells[-1] == "yes", name


def _rows(page: Path, columns: int | None = None) -> dict[str, list[str]]:
    """The rows of the comparison on a page, by their names."""
    text = page.read_text(encoding="utf-8").partition("| | slowapi |")[2].partition("\n\n")[0]
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()[2:]]
    assert columns is None or all(len(cells) == columns for cells in lines)
    return {cells[0]: cells[1:] for cells in lines}
