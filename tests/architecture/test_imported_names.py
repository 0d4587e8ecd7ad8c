"""What programs around the product import from it exists, also for types only, which no run of them would show."""

from __future__ import annotations

import ast
from functools import cache
from typing import TYPE_CHECKING, Final

import pytest
from tests.architecture.source import PACKAGE, ROOT, imported_names, tree

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

FOLDERS: Final = ("bench", "deploy", "docs", "examples", "tools")


def _file_of(module: str) -> Path | None:
    path = PACKAGE.parent.joinpath(*module.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


@cache
def _names(file: Path) -> frozenset[str]:
    """What a module binds at its top, also below an `if` or a `try`."""
    return frozenset(_bound(tree(file).body))


def _bound(statements: Sequence[ast.stmt]) -> Iterator[str]:
    for node in statements:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name))
        for block in ("body", "orelse", "finalbody") if isinstance(node, ast.If | ast.Try) else ():
            yield from _bound(getattr(node, block, []))


def _exists(module: str, name: str) -> bool:
    file = _file_of(module)
    if file is None:
        return False
    if name in _names(file) or _file_of(f"{module}.{name}") is not None:
        return True
    # Modules that load their public names on first use list them.
    return "__getattr__" in _names(file) and f'"{name}"' in file.read_text(encoding="utf-8")


@pytest.mark.parametrize("folder", FOLDERS)
def test_imported_names_exist(folder: str) -> None:
    """Every `from headgate… import name`, anywhere in a file."""
    missing = [
        f"{file.relative_to(ROOT)}:{line}: {module}.{name}"
        for file in sorted((ROOT / folder).rglob("*.py"))
        for module, name, line in imported_names(file)
        if module.partition(".")[0] == "headgate" and not _exists(module, name)
    ]
    assert missing == []


def test_missing_names_are_found() -> None:
    """A module, a name and a type that are not there; and some that are, in every way in which a module has names."""
    assert not _exists("headgate.cor.limit", "Limit")
    assert not _exists("headgate.core.limit", "Limt")
    assert not _exists("headgate", "Limter")
    assert _exists("headgate.core.limit", "Limit")
    assert _exists("headgate.core", "limit")
    assert _exists("headgate", "Limiter")
    assert _exists("headgate.adapters.redis.scripts", "Batch")
