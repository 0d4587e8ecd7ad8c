"""The shape of the source: short files, documented errors, one tree of exceptions."""

from __future__ import annotations

import ast
import builtins
from functools import cache
from typing import TYPE_CHECKING, Final

import pytest
from tests.architecture.source import files, name_of, tree

if TYPE_CHECKING:
    from pathlib import Path

LONGEST: Final = 350
PYTHONS_OWN: Final = {
    name for name, thing in vars(builtins).items() if isinstance(thing, type) and issubclass(thing, BaseException)
}


@pytest.mark.parametrize("file", files(), ids=name_of)
def test_files_are_short(file: Path) -> None:
    """A file has one subject, and so no more than 350 lines."""
    assert len(file.read_text(encoding="utf-8").splitlines()) <= LONGEST


@pytest.mark.parametrize("file", files(), ids=name_of)
def test_files_say_what_they_are_about(file: Path) -> None:
    """Every file begins with a sentence about its subject."""
    assert ast.get_docstring(tree(file))


@cache
def _exceptions() -> dict[str, list[tuple[str, ast.ClassDef]]]:
    """Every exception class by name, with where it is; found through the names of its bases."""
    classes = [
        (name_of(file), node) for file in files() for node in ast.walk(tree(file)) if isinstance(node, ast.ClassDef)
    ]
    found: dict[str, list[tuple[str, ast.ClassDef]]] = {}
    known = set(PYTHONS_OWN)
    while True:
        more = [
            (where, node)
            for where, node in classes
            if (where, node) not in found.get(node.name, []) and known & {ast.unparse(base) for base in node.bases}
        ]
        if not more:
            return found
        for where, node in more:
            found.setdefault(node.name, []).append((where, node))
            known.add(node.name)


def test_every_exception_is_documented() -> None:
    """Each exception says in a sentence what it means that it was raised."""
    undocumented = [name for name, places in _exceptions().items() for _, node in places if not ast.get_docstring(node)]
    assert undocumented == []


def test_exceptions_are_defined_in_one_place() -> None:
    """What a call can raise is defined in headgate.errors; all else is private to a module, a protocol or the edge."""
    elsewhere = {
        f"{where}.{name}"
        for name, places in _exceptions().items()
        for where, _ in places
        if where != "headgate.errors"
        and not where.startswith(("headgate.edge.", "headgate.protocols."))
        and not name.startswith("_")
    }
    assert elsewhere == set()


def test_the_tree_of_exceptions_is_found() -> None:
    """These tests see the whole tree, down to its leaves."""
    found = {name for name, places in _exceptions().items() if places[0][0] == "headgate.errors"}
    assert found >= {"HeadgateError", "InvalidLimit", "InvalidRules", "Refused", "StoreError"}
