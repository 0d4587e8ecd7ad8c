"""Write docs/reference/messages.md: every log line and every error message of the product, read from the source.

    python tools/messages.py            (`make messages`)

The source is parsed, not run. A log line is a call of a method of `log`. An error message is a text that is given to
an error class, to a function that makes one, or to one of `_REPORTERS`. Texts are followed through local variables,
constants of modules and tables of texts. A value that is filled in at run time stands in braces.
"""

from __future__ import annotations

import ast
import operator
import re
import sys
from collections import defaultdict, deque
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs/reference/messages.md"
_SOURCE: Final = ROOT / "src/headgate"
_WITH_TRACEBACK: Final = ", with a traceback"
_LEVELS: Final = {
    "critical": "CRITICAL",
    "exception": "ERROR" + _WITH_TRACEBACK,
    "error": "ERROR",
    "warning": "WARNING",
    "info": "INFO",
    "debug": "DEBUG",
    "log": "varies",
}
_REPORTERS: Final = {"problem": "problem", "Problem": "problem", "complain": "command line", "BadParameter": "usage"}
"""Functions that are given the text of a message, and what the message is then called."""
_BUILTIN: Final = {"Exception", "ValueError", "TypeError", "RuntimeError", "OSError", "KeyError", "AttributeError"}
_CONVERSION: Final = re.compile(r"%(?:0?\d+)?(?:\.\d+)?[sdrgfo]")
_IN_BRACES: Final = re.compile(r"\{[^}]*\}")
_WORD: Final = re.compile(r"[A-Za-z]{2,}")
_OPERATORS: Final[dict[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
}
_MAX_VALUE: Final = 40
_CLOSE: Final = 2
"""Lines between a text and the statement that raises it."""
_HEAD: Final = """\
# Messages

Every log line and every error message of headgate, by the part of the product that writes it. This page is
generated from the source by `make messages`. A value that is filled in at run time stands in braces.

Logs go to standard error, one line each; `HEADGATE_LOG_LEVEL` and `HEADGATE_LOG_FORMAT` are in
[settings](settings.md). What each error class means is in [errors](errors.md). The HTTP edges put the text of an
error into `detail` of a problem document.
"""


class Message(NamedTuple):
    """One text."""

    kind: str
    """The level of a log line, or the name of an error."""
    text: str
    module: str
    is_log: bool


class _Module:
    """A source file, with the texts that its constants stand for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.relative_to(_SOURCE).as_posix()
        self.dotted = "headgate." + self.name.removesuffix(".py").replace("/", ".")
        self.tree = ast.parse(path.read_text(encoding="utf-8"))
        self.constants = {name: value for name, value in _assigned(self.tree.body)}  # noqa: C416 (pairs, not a mapping)
        self.imports = {
            alias.asname or alias.name: (node.module or "", alias.name)
            for node in ast.walk(self.tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }


def _assigned(body: Iterable[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    for node in body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            yield node.target.id, node.value


class Messages:
    """All messages of the source."""

    def __init__(self) -> None:
        """Read every file."""
        modules = [_Module(path) for path in sorted(_SOURCE.rglob("*.py"))]
        self._modules = {module.dotted: module for module in modules}
        self._errors = self._error_classes()
        self._makers = self._error_makers()

    def _error_classes(self) -> set[str]:
        """The names of all classes that are errors: those that inherit from one."""
        classes = [
            (node.name, {ast.unparse(base).rpartition(".")[2] for base in node.bases})
            for module in self._modules.values()
            for node in ast.walk(module.tree)
            if isinstance(node, ast.ClassDef)
        ]
        found = set(_BUILTIN)
        while new := {name for name, bases in classes if bases & found} - found:
            found |= new
        return found

    def _error_makers(self) -> dict[tuple[str, str], str]:
        """Functions that return an error, by module and name, with the name of the error."""
        makers = {}
        for origin, module in self._modules.items():
            for node in ast.walk(module.tree):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
                    returned = ast.unparse(node.returns).rpartition(".")[2]
                    if returned in self._errors:
                        makers[origin, node.name] = returned
        return makers

    def _maker(self, module: _Module, name: str) -> str | None:
        """The error that a function makes, as a module knows the function."""
        return self._makers.get((module.dotted, name)) or self._makers.get(module.imports.get(name, ("", "")))

    def found(self) -> tuple[Message, ...]:
        """Every message, each once in its module."""
        found: dict[Message, None] = {}
        for module in self._modules.values():
            for function in _functions(module.tree):
                for message in self._in_function(module, function):
                    found[message] = None
        return tuple(found)

    def _in_function(self, module: _Module, function: _Scope) -> Iterator[Message]:
        for node in function.nodes:
            if isinstance(node, ast.Call):
                yield from self._of_call(module, function, node)
            elif isinstance(node, ast.Return) and function.explains and node.value is not None:
                for text in self._texts(module, function, node.value):
                    yield Message("reason", text, module.name, is_log=False)

    def _of_call(self, module: _Module, function: _Scope, call: ast.Call) -> Iterator[Message]:
        owner, _, name = _callee(call.func).rpartition(".")
        if owner == "log" and name in _LEVELS:
            arguments = call.args[1:] if name == "log" else call.args
            for text in self._strings(module, function, arguments[0], 4):
                values = [self._part(module, each) for each in arguments[1:]]
                has_traceback = any(keyword.arg == "exc_info" for keyword in call.keywords)
                level = _LEVELS[name] + _WITH_TRACEBACK * has_traceback
                yield Message(level, _filled(text, values), module.name, is_log=True)
            return
        kind = name if name in self._errors else self._maker(module, name) or _REPORTERS.get(name)
        if owner == "super()" and name == "__init__" and function.owner in self._errors:
            kind = function.owner
        if kind is None:
            return
        for argument in call.args:
            for text in self._texts(module, function, argument):
                yield Message(kind, text, module.name, is_log=False)

    def _texts(self, module: _Module, function: _Scope, node: ast.expr, depth: int = 4) -> list[str]:
        """Every sentence that an expression may stand for."""
        return [text for text in self._strings(module, function, node, depth) if _is_sentence(text)]

    def _strings(  # noqa: PLR0911 (one for each kind of expression)
        self, module: _Module, function: _Scope, node: ast.expr, depth: int
    ) -> list[str]:
        if not depth:
            return []
        if isinstance(node, ast.Constant):
            return [node.value] if isinstance(node.value, str) else []
        if isinstance(node, ast.JoinedStr):
            return ["".join(self._part(module, each) for each in node.values)]
        if isinstance(node, ast.IfExp):
            return [text for each in (node.body, node.orelse) for text in self._strings(module, function, each, depth)]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            ends = self._strings(module, function, node.right, depth) or [_value(node.right)]
            return [a + b for a in self._strings(module, function, node.left, depth) for b in ends]
        if isinstance(node, ast.Dict):
            return [text for each in node.values for text in self._strings(module, function, each, depth - 1)]
        if isinstance(node, ast.Subscript):
            return self._strings(module, function, node.value, depth - 1)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
            tables = [node.func.value, *node.args[1:]]
            return [text for each in tables for text in self._strings(module, function, each, depth - 1)]
        if isinstance(node, ast.Name):
            return self._named(module, function, node, depth - 1)
        return []

    def _part(self, module: _Module, node: ast.expr) -> str:
        """A part of an f-string: its text, the value of a constant, or an expression in braces."""
        if isinstance(node, ast.Constant):
            return str(node.value)
        value = node.value if isinstance(node, ast.FormattedValue) else node
        number = self._evaluated(module, value)
        if number is None:
            return _value(value)
        return f"{number:,}" if isinstance(number, int) else f"{number:g}" if isinstance(number, float) else str(number)

    def _evaluated(self, module: _Module, node: ast.expr) -> int | float | str | None:
        """The value of a constant, or of a calculation with constants; None for everything else."""
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, int | float | str) else None
        if isinstance(node, ast.Name):
            origin, value = self._constant(module, node.id)
            return None if value is None else self._evaluated(origin, value)
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            left, right = self._evaluated(module, node.left), self._evaluated(module, node.right)
            if isinstance(left, int | float) and isinstance(right, int | float):
                number: int | float = _OPERATORS[type(node.op)](left, right)
                return number
        return None

    def _named(self, module: _Module, function: _Scope, name: ast.Name, depth: int) -> list[str]:
        local = function.assigned_to(name)
        if local:
            return [text for each in local for text in self._strings(module, function, each, depth)]
        origin, value = self._constant(module, name.id)
        return [] if value is None else self._strings(origin, function, value, depth)

    def _constant(self, module: _Module, name: str) -> tuple[_Module, ast.expr | None]:
        """A constant of a module, or of the module that it is imported from."""
        if name in module.constants:
            return module, module.constants[name]
        origin, original = module.imports.get(name, ("", ""))
        other = self._modules.get(origin)
        return (module, None) if other is None or original not in other.constants else self._constant(other, original)


class _Scope(NamedTuple):
    """A function, or what a module does outside of functions."""

    nodes: list[ast.AST]
    variables: dict[str, list[ast.expr]]
    owner: str
    """The class it belongs to, if it is a method."""
    explains: bool
    """Whether it returns a reason, or None if there is none."""

    def assigned_to(self, name: ast.Name) -> list[ast.expr]:
        """What a variable may hold: what the line before assigns to it, or else anything that is assigned to it."""
        values = self.variables.get(name.id, [])
        close = [value for value in values if 0 < name.lineno - (value.end_lineno or value.lineno) <= _CLOSE]
        return close[-1:] or values


def _functions(tree: ast.Module) -> Iterator[_Scope]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    owners = {
        id(method): node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for method in node.body
    }
    scopes: list[ast.AST] = [tree, *(node for node in ast.walk(tree) if isinstance(node, kinds))]
    for scope in scopes:
        nodes: list[ast.AST] = []
        waiting = deque(ast.iter_child_nodes(scope))
        while waiting:
            node = waiting.popleft()
            nodes.append(node)
            if not isinstance(node, kinds):
                waiting.extend(ast.iter_child_nodes(node))
        variables = defaultdict(list)
        for name, value in _assigned(node for node in nodes if isinstance(node, ast.stmt)):
            variables[name].append(value)
        returns = "" if isinstance(scope, ast.Module) else ast.unparse(getattr(scope, "returns", None) or ast.Pass())
        is_reason = returns == "str | None" and ast.get_docstring(scope) is not None  # type: ignore[arg-type]
        yield _Scope(nodes, {} if scope is tree else dict(variables), owners.get(id(scope), ""), is_reason)


def _callee(function: ast.expr) -> str:
    """What is called, as it is written; the owner of a method only where it is short, as every owner that counts is."""
    match function:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=ast.Name(id=owner), attr=name):
            return f"{owner}.{name}"
        case ast.Attribute(value=ast.Call(func=ast.Name(id=owner)), attr=name):
            return f"{owner}().{name}"
        case ast.Attribute(attr=name):
            return f".{name}"
    return ""


def _is_sentence(text: str) -> bool:
    return " " in text and not text.startswith(",") and len(_WORD.findall(_IN_BRACES.sub(" ", text))) > 1


def _value(node: ast.expr) -> str:
    """An expression in braces, as short as it can be understood."""
    while isinstance(node, ast.Call) and node.args and not isinstance(node.func, ast.Attribute):
        node = node.args[0]  # short_repr(x), len(x)
    text = ast.unparse(node).replace("self.", "").replace("_", " ").strip()
    text = re.sub(r"\s+", " ", text)
    return f"{{{text}}}" if len(text) <= _MAX_VALUE and '"' not in text and "'" not in text else "{…}"


def _filled(text: str, values: list[str]) -> str:
    """A log line with its values."""
    given = iter(values)
    return _CONVERSION.sub(lambda _: next(given, "{…}"), text).replace("%%", "%")


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip().replace("|", "\\|").replace("<", "&lt;")


def _subject(module: str) -> str:
    """The part of the product that a file belongs to."""
    folders = module.split("/")[:-1]
    return "/".join(folders[:2]) if folders else "headgate"


@cache
def read_messages() -> tuple[Message, ...]:
    """Every message of the source as it is now."""
    return Messages().found()


def page() -> str:
    """The whole page."""
    groups: dict[str, list[Message]] = defaultdict(list)
    for message in read_messages():
        groups[_subject(message.module)].append(message)
    out = [_HEAD]
    for subject in sorted(groups):
        out.append(f"\n## {subject}\n")
        for title, is_log, head in (("Log lines", True, "level"), ("Errors", False, "error")):
            chosen = sorted(
                (message for message in groups[subject] if message.is_log is is_log),
                key=lambda message: (message.kind, message.text.lower(), message.module),
            )
            if chosen:
                out.append(f"\n### {title} of {subject}\n\n| {head} | message | file |\n|---|---|---|\n")
                out += [f"| {each.kind} | {_cell(each.text)} | `{Path(each.module).name}` |\n" for each in chosen]
    return "".join(out)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE.relative_to(ROOT)} is written\n")
