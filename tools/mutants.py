"""Plant small faults in `core/` and `dataplane/`, one at a time, and see whether the tests notice.

    .venv/bin/python tools/mutants.py --sample 200 --seed 7

Each fault (a mutant) is one changed operator, number or condition. Tests are chosen by coverage: every test file of
`tests/unit`, `tests/property` and `tests/contract` is traced once, and a mutant is shown to the files that reach its
line, the quickest first, until one fails. What no test notices is listed: either a test is missing, or the change
makes no difference. It works on a copy of the tree and changes nothing here. Takes an hour or two.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
PACKAGES: Final = ("src/headgate/core", "src/headgate/dataplane")
TESTS: Final = ("tests/unit/core", "tests/unit/dataplane", "tests/property", "tests/contract")
_TIMEOUT_SECONDS: Final = 300
_COMPARISONS: Final = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
_OPERATORS: Final = {ast.Add: "-", ast.Sub: "+", ast.Mult: "//", ast.FloorDiv: "*", ast.Mod: "+"}


class Mutant(NamedTuple):
    """One change of the source."""

    path: str
    line: int
    start: int
    """In the file's bytes."""
    end: int
    old: str
    new: str


def mutants_of(path: Path) -> list[Mutant]:
    """Every change that can be made in one file."""
    source = path.read_text()
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    data = source.encode()
    name = str(path.relative_to(ROOT))
    found: list[Mutant] = []

    for node in _code(ast.parse(source)):
        new = _changed(node)
        if new is not None and isinstance(node, ast.expr):
            assert node.end_lineno is not None  # noqa: S101 (parsed from text)
            assert node.end_col_offset is not None  # noqa: S101 (parsed from text)
            start = starts[node.lineno - 1] + node.col_offset
            end = starts[node.end_lineno - 1] + node.end_col_offset
            found.append(Mutant(name, node.lineno, start, end, data[start:end].decode(), new))
    return found


def _changed(node: ast.AST) -> str | None:  # noqa: PLR0911 (one for each kind)
    """The text of the node with one thing changed; None if there is nothing to change."""
    text = ast.unparse
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARISONS:
            return f"({text(left)} {_COMPARISONS[type(op)]} {text(right)})"
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return f"({text(left)} {_OPERATORS[type(op)]} {text(right)})"
        case ast.BoolOp(op=op, values=values):
            other = " or " if isinstance(op, ast.And) else " and "
            return f"({other.join(f'({text(value)})' for value in values)})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return f"bool({text(operand)})"
        case ast.Constant(value=bool() as value):
            return str(not value)
        case ast.Constant(value=int() as value):
            return str(value + 1)
    return None


def _code(tree: ast.Module) -> list[ast.AST]:
    """The nodes that run: no annotations, no assertions, no imports for the type checker, no texts for people."""
    nodes: list[ast.AST] = []
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, (ast.Assert, ast.JoinedStr, ast.Raise)):
            continue
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.FunctionDef) and node.name == "__repr__":
            continue
        nodes.append(node)
        for field, value in ast.iter_fields(node):
            if field not in {"annotation", "returns", "decorator_list"}:
                parts = value if isinstance(value, list) else [value]
                todo += [part for part in parts if isinstance(part, ast.AST)]
    return nodes


class Traced(NamedTuple):
    """What one test file reaches, and how long it takes."""

    test: str
    seconds: float
    lines: dict[str, list[int]]


def trace(tree: Path, test: str) -> Traced:
    """Run one test file under coverage."""
    data = tree / ".coverage.mutants"
    began = time.monotonic()
    command = [sys.executable, "-m", "coverage", "run", f"--data-file={data}", "--branch", "-m", "pytest", "-q", test]
    _run(command, tree)
    report = tree / "mutants.json"
    _run([sys.executable, "-m", "coverage", "json", "-q", f"--data-file={data}", "-o", str(report)], tree)
    if not report.exists():
        return Traced(test, time.monotonic() - began, {})
    files = json.loads(report.read_text())["files"]
    report.unlink()
    return Traced(test, time.monotonic() - began, {name: each["executed_lines"] for name, each in files.items()})


def _run(command: list[str], tree: Path) -> int:
    environment = os.environ | {"PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        ended = subprocess.run(  # noqa: S603 (our own commands)
            command, cwd=tree, env=environment, capture_output=True, timeout=_TIMEOUT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return -1
    return ended.returncode


def is_killed(tree: Path, mutant: Mutant, traced: list[Traced]) -> bool:
    """Whether a test fails with this change."""
    path = tree / mutant.path
    data = path.read_bytes()
    path.write_bytes(data[: mutant.start] + mutant.new.encode() + data[mutant.end :])
    try:
        for each in sorted(traced, key=lambda each: each.seconds):
            if mutant.line not in each.lines.get(mutant.path, ()):
                continue
            if _run([sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", each.test], tree) != 0:
                return True
        return False
    finally:
        path.write_bytes(data)


def main() -> None:
    """Plant, run, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=200)
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    files = sorted(file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))
    every = [mutant for file in files for mutant in mutants_of(file)]
    chosen = random.Random(given.seed).sample(every, min(given.sample, len(every)))  # noqa: S311 (a sample, no secret)
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".git", ".venv*", ".servers", ".headgate", "*.pyc"))
        tests = sorted(str(file.relative_to(ROOT)) for name in TESTS for file in (ROOT / name).rglob("test_*.py"))
        traced = []
        for number, test in enumerate(tests, 1):
            sys.stderr.write(f"\rtracing {number} of {len(tests)}")
            traced.append(trace(tree, test))
        killed = 0
        for number, mutant in enumerate(chosen, 1):
            if is_killed(tree, mutant, traced):
                killed += 1
            else:
                sys.stdout.write(f"survived: {mutant.path}:{mutant.line}: {mutant.old} -> {mutant.new}\n")
                sys.stdout.flush()
            sys.stderr.write(f"\r{number} of {len(chosen)}, {killed} killed")
    sys.stdout.write(f"\n{killed} of {len(chosen)} killed; {len(every)} could be planted\n")


if __name__ == "__main__":
    main()
