"""The composition root only constructs."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

import pytest
from tests.architecture.source import files, name_of, tree

if TYPE_CHECKING:
    from pathlib import Path

LONGEST: Final = 150
LOOPS: Final = (ast.For, ast.AsyncFor, ast.While)
TASKS: Final = frozenset({"create_task", "ensure_future", "TaskGroup", "gather", "run_until_complete", "sleep"})


def _names(file: Path) -> set[str]:
    nodes = list(ast.walk(tree(file)))
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return attributes | {node.id for node in nodes if isinstance(node, ast.Name)}


@pytest.mark.parametrize("file", files("wiring"), ids=name_of)
def test_a_module_of_the_wiring_is_short(file: Path) -> None:
    """A module that puts objects together has at most 150 lines."""
    assert len(file.read_text(encoding="utf-8").splitlines()) <= LONGEST


@pytest.mark.parametrize("file", files("wiring"), ids=name_of)
def test_the_wiring_has_no_loops(file: Path) -> None:
    """A loop is work, and work belongs to what is constructed. Comprehensions make collections, and are fine."""
    assert [node.lineno for node in ast.walk(tree(file)) if isinstance(node, LOOPS)] == []


@pytest.mark.parametrize("file", files("wiring"), ids=name_of)
def test_the_wiring_starts_no_tasks(file: Path) -> None:
    """Tasks belong to a runtime, which starts and stops them: `headgate.controlplane.runtime`, for example."""
    assert _names(file) & TASKS == set()


@pytest.mark.parametrize("file", files("wiring"), ids=name_of)
def test_the_wiring_only_assembles(file: Path) -> None:
    """Classes of the wiring are tuples of parts: what has methods with effects is constructed here, not defined."""
    classes = [node for node in ast.walk(tree(file)) if isinstance(node, ast.ClassDef)]
    assert [node.name for node in classes if "NamedTuple" not in {ast.unparse(base) for base in node.bases}] == []
