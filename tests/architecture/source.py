"""The source code as trees, for tests of what it may say."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[2]
PACKAGE: Final = ROOT / "src" / "headgate"


def files(below: str = "") -> list[Path]:
    """All Python files of the product, or of one part of it."""
    found = sorted((PACKAGE / below).rglob("*.py"))
    assert found, f"nothing below {below}"
    return found


def name_of(file: Path) -> str:
    """``headgate.core.units`` for ``src/headgate/core/units.py``."""
    return ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


@cache
def tree(file: Path) -> ast.Module:
    """A file as a tree."""
    return ast.parse(file.read_text(encoding="utf-8"), str(file))


def imported(file: Path) -> set[str]:
    """The modules that a file imports, at its top or anywhere inside; for types only as well."""
    found: set[str] = set()
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file} imports from its neighbours by dots"
            found.add(node.module or "")
    return found


def attributes(file: Path) -> Iterator[tuple[str, str, int]]:
    """Every ``left.right`` in a file as (left, right, line); left is only its last name."""
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Attribute):
            left = node.value
            owner = left.id if isinstance(left, ast.Name) else left.attr if isinstance(left, ast.Attribute) else ""
            yield owner, node.attr, node.lineno


def imported_names(file: Path) -> Iterator[tuple[str, str, int]]:
    """Every ``from module import name`` in a file as (module, name, line)."""
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield node.module or "", alias.name, node.lineno
