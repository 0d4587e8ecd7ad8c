"""Every Python and YAML block in the documentation works, and shows what is true."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from typing import TYPE_CHECKING, Any, Final

import pytest

from headgate.adapters.rules_file import RulesFile

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Fences = Callable[[Path, str], list[tuple[int, str]]]

_SHOWN: Final = re.compile(r"# => (?P<value>.*)$")


class _Shown(ast.NodeTransformer):
    """Turns `expression  # => value` into a check of the value, and `print(…)  # => text` into one of the text."""

    def __init__(self, text: str) -> None:
        self.lines = text.splitlines()
        self.found = 0

    def visit_Expr(self, node: ast.Expr) -> ast.Expr:
        """Wrap the expression if a value stands behind it."""
        shown = _SHOWN.search(self.lines[(node.end_lineno or node.lineno) - 1])
        if shown is None:
            return node
        self.found += 1
        value, check = node.value, "_shown"
        if isinstance(value, ast.Call) and ast.unparse(value.func) == "print":
            value, check = ast.Tuple(value.args, ast.Load()), "_printed"
        call = ast.parse(f"{check}(0, {shown['value']!r}, {node.lineno})", mode="eval").body
        assert isinstance(call, ast.Call)
        call.args[0] = ast.copy_location(value, node)
        return ast.copy_location(ast.Expr(ast.copy_location(call, node)), node)


def _shown(value: object, expected: str, line: int) -> None:
    assert repr(value) == expected, f"line {line} of the block shows {expected}, but it is {value!r}"


def _printed(values: tuple[object, ...], expected: str, line: int) -> None:
    text = " ".join(map(str, values))
    assert text == expected, f"line {line} of the block prints {text}, not {expected}"


def _run(page: Path, line: int, text: str, namespace: dict[str, Any]) -> None:
    tree = ast.parse(text, str(page))
    checks = _Shown(text)
    tree = ast.fix_missing_locations(checks.visit(tree))
    assert checks.found == text.count("# => "), "a shown value that is not behind an expression is never checked"
    ast.increment_lineno(tree, line - 1)
    code = compile(tree, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if not code.co_flags & inspect.CO_COROUTINE:
        exec(code, namespace)  # noqa: S102 (our own documentation)
        return

    async def awaited() -> None:
        await eval(code, namespace)  # noqa: S307 (our own documentation)

    asyncio.run(awaited())


@pytest.mark.filterwarnings("ignore:Using `httpx` with `starlette.testclient`")  # as applications still do
@pytest.mark.usefixtures("still_clock")
def test_python_blocks_run_and_show_what_is_true(
    page: Path, fences: Fences, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Python blocks of a page run in order, beside the rules of the page, and show true values."""
    blocks = fences(page, "python")
    if not blocks:
        return
    rules = fences(page, "yaml") or fences(root / "docs/quickstart.md", "yaml")
    (tmp_path / "rules.yaml").write_text(rules[0][1], encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "__main__", "_shown": _shown, "_printed": _printed}
    for line, text in blocks:
        _run(page, line, text, namespace)


def test_rules_in_the_documentation_are_valid(page: Path, fences: Fences, tmp_path: Path) -> None:
    """Every YAML block is a complete file of rules that headgate accepts."""
    for number, (_, text) in enumerate(fences(page, "yaml")):
        path = tmp_path / f"{number}.yaml"
        path.write_text(text, encoding="utf-8")
        assert RulesFile(path).load().rules or "tiers" in text
