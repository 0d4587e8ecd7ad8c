"""Questions about the syntax of a Python module."""

from __future__ import annotations

import ast


def root_of(node: ast.AST) -> str:
    """The package that an import is of; empty for anything else."""
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").partition(".")[0]
    return node.names[0].name.partition(".")[0] if isinstance(node, ast.Import) else ""


def name_of(node: ast.AST) -> str:
    """The last part of a dotted name."""
    return dotted(node).rpartition(".")[2]


def dotted(node: ast.AST) -> str:
    """A dotted name as it is written; empty for anything else."""
    return ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) else ""


def argument(call: ast.Call, name: str, index: int | None = None) -> ast.expr | None:
    """An argument of a call, by its name or its index."""
    found = next((keyword.value for keyword in call.keywords if keyword.arg == name), None)
    if found is None and index is not None and index < len(call.args):
        return call.args[index]
    return found


def texts_of(node: ast.expr | None) -> list[str]:
    """The texts of a literal list; none if it is anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]
    if not isinstance(node, ast.List | ast.Tuple):
        return []
    values = [each.value for each in node.elts if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return values if len(values) == len(node.elts) else []


def is_true(node: ast.expr) -> bool:
    """Whether it is the word True."""
    return isinstance(node, ast.Constant) and node.value is True
