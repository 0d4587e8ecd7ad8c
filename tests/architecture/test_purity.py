"""What the core may not do, and what only one module may do."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

import pytest
from tests.architecture.source import attributes, files, imported, imported_names, name_of, tree

if TYPE_CHECKING:
    from pathlib import Path

# Modules that only compute. secrets draws random numbers, for names that nothing is ever decided by (core/ids.py).
PURE: Final = frozenset(
    [
        *("__future__", "array", "bisect", "calendar", "collections", "collections.abc", "dataclasses", "datetime"),
        *(
            "difflib",
            "enum",
            "functools",
            "hashlib",
            "heapq",
            "binascii",
            "ipaddress",
            "itertools",
            "math",
            "operator",
            "re",
        ),
        *("string", "struct", "types", "typing", "urllib.parse", "zlib"),
    ]
)
DOERS: Final = frozenset({"open", "print", "input", "exec", "eval", "compile", "__import__", "breakpoint"})
CLOCKS: Final = {
    "datetime": {"now", "utcnow", "today"},
    "date": {"today"},
}
ENVIRONMENT: Final = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}

each_file = pytest.mark.parametrize("file", files(), ids=name_of)
each_core_file = pytest.mark.parametrize("file", files("core"), ids=name_of)


@each_core_file
def test_the_core_imports_only_what_computes(file: Path) -> None:
    """The core imports itself, the errors, and modules of Python that neither read nor write nor wait."""
    allowed = PURE | {"secrets"} if name_of(file) == "headgate.core.ids" else PURE
    foreign = {name for name in imported(file) if not name.startswith(("headgate.core", "headgate.errors"))}
    assert foreign <= allowed


@each_core_file
def test_the_core_never_waits_and_never_touches_the_world(file: Path) -> None:
    """In the core nothing is awaited, opened, printed or evaluated, and no global is changed."""
    forbidden = (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await, ast.Global, ast.Nonlocal)
    for node in ast.walk(tree(file)):
        assert not isinstance(node, forbidden), f"{file}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in DOERS, f"{file}:{node.lineno}"


@each_file
def test_one_module_reads_the_clock(file: Path) -> None:
    """Time is an argument everywhere; it is read in headgate.adapters.clock and nowhere else."""
    if name_of(file) == "headgate.adapters.clock":
        assert imported(file) >= {"time"}
        return
    assert "time" not in imported(file)
    read = [line for owner, name, line in attributes(file) if name in CLOCKS.get(owner, ())]
    assert not read, f"{file} reads the clock on lines {read}"


@each_file
def test_one_module_reads_the_environment(file: Path) -> None:
    """Settings come from headgate.settings, which alone looks at environment variables."""
    if name_of(file) == "headgate.settings":
        return
    read = [line for owner, name, line in attributes(file) if owner == "os" and name in ENVIRONMENT]
    read += [line for module, name, line in imported_names(file) if module == "os" and name in ENVIRONMENT]
    assert not read, f"{file} reads the environment on lines {read}"


def test_the_exceptions_of_these_rules_are_needed() -> None:
    """The modules that may read the clock and the environment do, so that these tests look at the right names."""
    names = {name_of(file): file for file in files()}
    assert any(name in ENVIRONMENT for _, name, _ in attributes(names["headgate.settings"]))
    assert ("time", "time_ns") in {
        (module, name) for module, name, _ in imported_names(names["headgate.adapters.clock"])
    }
    assert "secrets" in imported(names["headgate.core.ids"])
