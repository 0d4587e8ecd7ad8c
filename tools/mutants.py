"""Plant small faults in `core/` and `dataplane/`, one at a time, and see whether the tests notice.

    .venv/bin/python tools/mutants.py --sample 200 --seed 7

Each fault (a mutant) is one changed operator, number or condition. Tests are chosen by coverage: `tests/unit`,
`tests/property` and `tests/contract` are traced once, test by test, and a mutant is shown to the tests that run its
line, the file named after its module first, then the quickest, until one fails. A line that runs at import is shown to
every test that runs any line of its module. What no test notices is listed: either a test is missing, or the change
makes no difference. It works on a copy of the tree and changes nothing here.

Everything is kept in `build/mutants`: begun again, it goes on where it was interrupted. Remove the folder after the
source or the tests have changed.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import coverage
import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGES: Final = ("src/headgate/core", "src/headgate/dataplane")
TESTS: Final = ("tests/unit", "tests/property", "tests/contract")
_BATCH_SECONDS: Final = 4.0
"""How much testing one process does, by the times of the traced run."""
_CPU_SECONDS: Final = 60
_WALL_SECONDS: Final = 600
"""A mutant that runs longer is caught in a loop: it counts as noticed."""
_PRELOADED: Final = (
    "hypothesis",
    "httpx",
    "fastapi",
    "yaml",
    "hiredis",
    "msgspec",
    "starlette",
    "jwt",
    "typer",
    "rich",
)
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


def mutants_of(path: Path, tree: Path) -> list[Mutant]:
    """Every change that can be made in one file."""
    source = path.read_text()
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    data = source.encode()
    name = str(path.relative_to(tree))
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
            return f"(({text(left)}) {_COMPARISONS[type(op)]} ({text(right)}))"
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return f"(({text(left)}) {_OPERATORS[type(op)]} ({text(right)}))"
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


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """This file is a plugin of the traced run: it notes what each test runs, and how long it takes."""
    current = coverage.Coverage.current()
    if current is not None:
        current.switch_context(item.nodeid)
    began = time.process_time()
    try:
        return (yield)
    finally:
        taken = time.process_time() - began
        with Path(os.environ["MUTANTS_TIMES"]).open("a", encoding="utf-8") as times:
            times.write(json.dumps([item.nodeid, taken]) + "\n")
        if current is not None:
            current.switch_context("")


class Reach(NamedTuple):
    """Which tests run which lines."""

    lines: dict[str, dict[int, list[str]]]
    """Tests by file and line."""
    seconds: dict[str, float]

    def tests(self, mutant: Mutant) -> list[str]:
        """The tests that a mutant is shown to, in order."""
        lines = self.lines.get(mutant.path, {})
        of_line = [test for test in lines.get(mutant.line, []) if test]
        found = of_line or {test for tests in lines.values() for test in tests if test}
        stem = Path(mutant.path).stem

        def rank(test: str) -> tuple[bool, float]:
            return f"test_{stem}" not in test.partition("::")[0], self.seconds.get(test, 1.0)

        return sorted(found, key=rank)


def trace(folder: Path) -> Reach:
    """What the tests run, from a run of them under coverage; made once."""
    tree, times, data = folder / "tree", folder / "times.jsonl", folder / "coverage"
    if not data.exists():
        shutil.rmtree(folder, ignore_errors=True)
        left = shutil.ignore_patterns(".git", ".venv*", ".servers", ".headgate*", "build", "__pycache__", ".*_cache")
        shutil.copytree(ROOT, tree, ignore=left)
        settings = folder / "coveragerc"
        dirs = "\n  ".join(str(tree / package) for package in PACKAGES)
        settings.write_text(f"[run]\nparallel = true\npatch = subprocess\nsource_dirs =\n  {dirs}\n", encoding="utf-8")
        run = ["-m", "coverage", "run", f"--rcfile={settings}", f"--data-file={data}"]
        plugins = ["-p", "mutants", "-n", "2", "--dist", "worksteal", "-m", "not serial"]
        environment = _environment(tree) | {"MUTANTS_TIMES": str(times)}
        python = sys.executable
        tested = [python, *run, "-m", "pytest", "-q", *plugins, *TESTS]
        subprocess.run(tested, cwd=tree, env=environment, check=True)  # noqa: S603 (our own)
        joined = [python, "-m", "coverage", "combine", "-q", f"--rcfile={settings}", f"--data-file={data}"]
        subprocess.run(joined, cwd=tree, env=environment, check=True)  # noqa: S603 (our own)
    measured = coverage.CoverageData(str(data))
    measured.read()
    lines = {str(Path(name).relative_to(tree)): measured.contexts_by_lineno(name) for name in measured.measured_files()}
    seconds = dict(json.loads(line) for line in times.read_text(encoding="utf-8").splitlines())
    return Reach(lines, seconds)


def _environment(tree: Path) -> dict[str, str]:
    found = os.pathsep.join([str(tree / "src"), str(ROOT / "tools")])
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | {
        "PYTHONPATH": found
    }


def _batches(tests: list[str], reach: Reach) -> Iterator[list[str]]:
    """A few at first, then as many as take a while; at most 200 at once."""
    batch: list[str] = []
    total, most = 0.0, 12
    for test in tests:
        batch.append(test)
        total += reach.seconds.get(test, 1.0)
        if total >= _BATCH_SECONDS or len(batch) >= most:
            yield batch
            batch, total, most = [], 0.0, 200
    if batch:
        yield batch


def noticed_by(tree: Path, mutant: Mutant, reach: Reach) -> str | None:
    """The tests that fail with this change, or None."""
    path, kept = tree / mutant.path, _kept(tree)
    shutil.copy2(path, kept / path.name)
    (kept / "path").write_text(mutant.path, encoding="utf-8")
    data = path.read_bytes()
    path.write_bytes(data[: mutant.start] + mutant.new.encode() + data[mutant.end :])
    try:
        for batch in _batches(reach.tests(mutant), reach):
            failed = _failed(tree, batch)
            if failed is not None:
                return failed
        return None
    finally:
        restore(tree)


def _kept(tree: Path) -> Path:
    folder = tree.parent / "original"
    folder.mkdir(exist_ok=True)
    return folder


def restore(tree: Path) -> None:
    """Undo the last change, also one of a run that was killed; with the file's old time its bytecode is right again."""
    kept = _kept(tree)
    if (kept / "path").exists():
        path = tree / (kept / "path").read_text(encoding="utf-8")
        shutil.copy2(kept / path.name, path)
        (kept / "path").unlink()


def _failed(tree: Path, tests: list[str]) -> str | None:
    """The first test that fails, in a process that begins with everything loaded but the product and its tests."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        os.close(reading)
        resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS))
        _run_tests(tree, tests, writing)
    os.close(writing)
    deadline = time.monotonic() + _WALL_SECONDS
    ended, status = os.waitpid(child, os.WNOHANG)
    while not ended:
        if time.monotonic() > deadline:
            os.killpg(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            break
        time.sleep(0.02)
        ended, status = os.waitpid(child, os.WNOHANG)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what the tests have started
    with os.fdopen(reading, encoding="utf-8") as said:
        failed = said.read()
    return (
        None if status == 0 else failed or f"time ran out, or the process ended ({status}): {tests[0]} or a later one"
    )


class _FirstFailure:
    """A plugin that writes down which test fails."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            os.write(self._descriptor, report.nodeid.encode())

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            os.write(self._descriptor, f"import of {report.nodeid}".encode())


def _run_tests(tree: Path, tests: list[str], descriptor: int) -> None:
    code = 1
    try:
        os.chdir(tree)
        sys.dont_write_bytecode = True
        sys.path[:] = [str(tree / "src"), *(each for each in sys.path if not each.startswith(f"{ROOT}/src"))]
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        options = ["-q", "-x", "-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of what is loaded already
        for plugin in ("cacheprovider", "xdist", "schemathesis", "faker"):
            options += ["-p", f"no:{plugin}"]
        code = int(pytest.main([*options, *tests], plugins=[_FirstFailure(descriptor)]))
    finally:
        os._exit(code)


def main() -> None:
    """Plant, run, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=200)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--folder", type=Path, default=ROOT / "build/mutants", help="where everything is kept")
    given = parser.parse_args()
    folder = given.folder.resolve()
    reach = trace(folder)
    tree = folder / "tree"
    restore(tree)
    files = sorted(file for package in PACKAGES for file in (tree / package).rglob("*.py"))
    every = [mutant for file in files for mutant in mutants_of(file, tree)]
    chosen = random.Random(given.seed).sample(every, min(given.sample, len(every)))  # noqa: S311 (a sample, no secret)
    results = folder / f"results-{given.seed}.jsonl"
    known = dict(map(json.loads, results.read_text(encoding="utf-8").splitlines())) if results.exists() else {}
    for name in _PRELOADED:
        importlib.import_module(name)
    sound = _failed(tree, next(_batches(reach.tests(chosen[0]), reach)))
    if sound is not None:
        sys.exit(f"tests fail without a change: {sound}")
    outcome: dict[bool, list[Mutant]] = defaultdict(list)
    for number, mutant in enumerate(chosen, 1):
        name = f"{mutant.path}:{mutant.line}:{mutant.start}: {mutant.old} -> {mutant.new}"
        if name not in known:
            known[name] = noticed_by(tree, mutant, reach)
            with results.open("a", encoding="utf-8") as out:
                out.write(json.dumps([name, known[name]]) + "\n")
        outcome[known[name] is not None].append(mutant)
        sys.stderr.write(f"\r{number} of {len(chosen)}, {len(outcome[True])} noticed")
    sys.stderr.write("\n")
    for mutant in outcome[False]:
        sys.stdout.write(f"survived: {mutant.path}:{mutant.line}: {mutant.old} -> {mutant.new}\n")
    sys.stdout.write(f"{len(outcome[True])} of {len(chosen)} noticed; {len(every)} could be planted\n")


if __name__ == "__main__":
    main()
