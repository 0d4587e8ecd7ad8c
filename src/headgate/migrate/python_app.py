"""Applications limited by slowapi or flask-limiter, as source. They are read and never run.

@limiter.limit("5 per minute")        becomes   @rate_limit("5/minute", per="ip", algorithm="fixed_window")
limiter = Limiter(get_remote_address, app=app)  limiter = RateLimiter(app, "memory://")
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from headgate.core.meter import MAX_LOG
from headgate.errors import InvalidFields, InvalidLimit, Problem
from headgate.migrate.edits import Edits
from headgate.migrate.moved import STRATEGIES, Moved, Note, headgate_limits, notes_in_order
from headgate.migrate.syntax import argument, dotted, is_true, name_of, root_of, texts_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_LIBRARIES: Final = {"slowapi": "slowapi", "flask_limiter": "flask-limiter"}
_ADDRESS_FUNCTIONS: Final = {"get_remote_address", "get_ipaddr"}
_OPTIONS: Final = {"error_message": "message", "scope": "name"}
_SAME: Final = ("methods", "per_method", "cost", "exempt_when", "deduct_when")
_FUNCTIONS: Final = ("cost", "exempt_when")
_WINDOWS: Final = (
    "fixed windows begin at whole multiples of their length, not with the first call of a key: how much passes in one "
    "window is the same, when it ends is not"
)
_ALL_OR_NONE: Final = (
    "all limits of a call are taken together or not at all: a call that one of them refuses no longer counts for the "
    "others"
)
_REFUSAL: Final = "a refused call gets a problem document (application/problem+json) and the headers of headgate"


def library_of(source: str) -> str | None:
    """Which of the libraries a Python module imports, if any."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return None
    return next((_LIBRARIES[name] for name in map(root_of, ast.walk(tree)) if name in _LIBRARIES), None)


def move_python(source: str) -> Moved:
    """The same application with headgate's own decorators."""
    library = library_of(source)
    if library is None:
        msg = "this is no Python module that imports slowapi or flask_limiter"
        raise InvalidFields([Problem((), msg)])
    return _Move(source, library).run()


class _Move:
    """One module on its way."""

    def __init__(self, source: str, library: str) -> None:
        self.tree = ast.parse(source)
        self.edits = Edits(source)
        self.library = library
        self.is_flask = library == "flask-limiter"
        roots = {root_of(node) for node in ast.walk(self.tree)}
        self.framework = "flask" if self.is_flask else "fastapi" if "fastapi" in roots else "starlette"
        self.notes: list[Note] = []
        self.names: set[str] = set()
        """What has to be imported of headgate."""
        self.limiters: dict[str, ast.Call] = {}
        """The limiters of the module, by their names."""
        self.handled: set[ast.AST] = set()

    def run(self) -> Moved:
        """Change every place, from the limiters to the imports."""
        for node in ast.walk(self.tree):
            if (
                isinstance(node, ast.Assign)
                and isinstance(node.value, ast.Call)
                and name_of(node.value.func) == "Limiter"
            ):
                self._limiter(node, node.value)
        if not self.limiters:
            msg = "no limiter is made here (limiter = Limiter(…)); name the module that makes it and has the limits"
            raise InvalidFields([Problem((), msg)])
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call) and self._is_limiters(node.func, "limit", "shared_limit"):
                self._limit(node)
        if not self.is_flask:
            self._slowapi_application()
        self._leftovers()
        self._imports()
        self.notes += [Note(0, _REFUSAL), Note(0, _ALL_OR_NONE)]
        if any(self._algorithm(call) == "fixed_window" for call in self.limiters.values()):
            self.notes.append(Note(0, _WINDOWS))
        return Moved(self.library, self.edits.result(), notes_in_order(self.notes))

    def note(self, node: ast.AST, message: str) -> None:
        self.notes.append(Note(getattr(node, "lineno", 0), message))

    # Limiters

    def _limiter(self, statement: ast.Assign, call: ast.Call) -> None:
        for target in statement.targets:
            if isinstance(target, ast.Name):
                self.limiters[target.id] = call
                self.handled.add(target)
        if not self.is_flask:
            self.edits.remove(statement)
            return
        app = argument(call, "app", 1)
        given = [*([self.edits.text_of(app)] if app is not None else []), *self._application(call)]
        self.names.add("RateLimiter")
        self.edits.replace(call, f"RateLimiter({', '.join(given)})")

    def _application(self, call: ast.Call, *, defaults: bool = True) -> list[str]:
        """What the application is given beside itself: store, rules, defaults."""
        store = argument(call, "storage_uri")
        address = '"memory://"' if store is None else self.edits.text_of(store)
        has_app = not self.is_flask or argument(call, "app", 1) is not None
        given = [address if has_app else f"store={address}"]
        application = texts_of(argument(call, "application_limits"))
        if application:
            limits = [part for text in application for part in headgate_limits(text).split(";")]
            rule = {"name": "application", "per": "ip", "limits": limits, "algorithm": self._algorithm(call)}
            given.append(f"rules=[{rule!r}]".replace("'", '"'))
        given_defaults = argument(call, "default_limits")
        texts = texts_of(given_defaults)
        if texts and defaults:
            limits_text = headgate_limits(";".join(texts))
            self.names.add("limit")
            options = ", ".join(self._counting(call, None, call))
            given.append(f'default_limits=limit("{limits_text}", {options})')
        elif given_defaults is not None and not texts:
            self.note(given_defaults, "these default limits are not texts; write them as default_limits by hand")
        enabled = argument(call, "enabled")
        if enabled is not None:
            given.append(f"enabled={self.edits.text_of(enabled)}")
        known = {"key_func", "app", "storage_uri", "default_limits", "application_limits", "enabled", "strategy"}
        for keyword in call.keywords:
            if keyword.arg not in known:
                self.note(keyword.value, f"{keyword.arg} of Limiter has no equivalent here and is left out")
        return given

    def _algorithm(self, call: ast.Call) -> str:
        strategy = argument(call, "strategy")
        text = strategy.value if isinstance(strategy, ast.Constant) and isinstance(strategy.value, str) else None
        if strategy is not None and text not in STRATEGIES:
            self.note(strategy, "this strategy is not known from the source; fixed-window is assumed")
        return STRATEGIES.get(text or "fixed-window", "fixed_window")

    # Limits

    def _is_limiters(self, node: ast.AST, *attributes: str) -> bool:
        return (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in self.limiters
            and node.attr in attributes
        )

    def _limit(self, call: ast.Call) -> None:
        assert isinstance(call.func, ast.Attribute)  # noqa: S101 (just looked at)
        assert isinstance(call.func.value, ast.Name)  # noqa: S101 (as above)
        self.handled.add(call.func.value)
        limiter = self.limiters[call.func.value.id]
        given = [
            self._limits(call, limiter),
            *self._counting(limiter, argument(call, "key_func", self._key_index(call)), call),
        ]
        known = {"limit_value", "key_func", "override_defaults"}
        if call.func.attr == "shared_limit":
            known.add("scope")
            scope = argument(call, "scope", 1)
            if isinstance(scope, ast.Constant) and isinstance(scope.value, str):
                given.append(f'name="{scope.value}"')
            else:
                self.note(call, "a scope that is not a text has no equivalent; give the shared limit a name")
        for keyword in call.keywords:
            if keyword.arg in known:
                if keyword.arg == "override_defaults" and not is_true(keyword.value):
                    self.note(
                        keyword.value, "the default limits no longer apply to this route beside its own; add them"
                    )
            elif keyword.arg in _SAME or keyword.arg in _OPTIONS:
                text = self._function(keyword.value) if keyword.arg in _FUNCTIONS else self.edits.text_of(keyword.value)
                given.append(f"{_OPTIONS.get(keyword.arg, keyword.arg)}={text}")
            else:
                self.note(keyword.value, f"{keyword.arg} has no equivalent here and is left out")
        if self.is_flask:
            self.edits.replace(call, f"{call.func.value.id}.limit({', '.join(given)})")
        else:
            self.names.add("rate_limit")
            self.edits.replace(call, f"rate_limit({', '.join(given)})")

    def _key_index(self, call: ast.Call) -> int:
        """Where a key function stands among the arguments without names."""
        return 2 if isinstance(call.func, ast.Attribute) and call.func.attr == "shared_limit" else 1

    def _limits(self, call: ast.Call, limiter: ast.Call) -> str:
        value = argument(call, "limit_value", 0)
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            try:
                text = headgate_limits(value.value)
            except InvalidLimit as error:
                self.note(value, f"{error}; write it by hand")
                return self.edits.text_of(value)
            amounts = [int(part.partition("/")[0]) for part in text.split(";")]
            if self._algorithm(limiter) == "sliding_window_log" and max(amounts) > MAX_LOG:
                self.note(value, f"a moving window holds at most {MAX_LOG}; use algorithm='sliding_window_counter'")
            return f'"{text}"'
        if value is None:
            self.note(call, "this limit has no value; write it by hand")
            return '""'
        self.note(value, "what this gives must be in headgate's words, such as '10/5 minutes'")
        return self._function(value)

    def _counting(self, limiter: ast.Call, own: ast.expr | None, at: ast.AST) -> list[str]:
        """What a limit is counted by, and how."""
        key = own if own is not None else argument(limiter, "key_func", 0)
        algorithm = f'algorithm="{self._algorithm(limiter)}"'
        name = None if key is None else name_of(key)
        if key is None or name in _ADDRESS_FUNCTIONS:
            if name == "get_ipaddr":
                self.note(
                    at, "get_ipaddr trusts X-Forwarded-For of anyone; name your proxies in trusted_proxies instead"
                )
            return ['per="ip"', algorithm]
        return [f"key={self._function(key)}", algorithm]

    def _function(self, value: ast.expr) -> str:
        """A value, or a function that gets the call even if it takes no arguments there."""
        text = self.edits.text_of(value)
        if isinstance(value, ast.Lambda):
            return text if value.args.args else f"lambda _request: {self.edits.text_of(value.body)}"
        if not isinstance(value, ast.Name | ast.Attribute):
            return text
        found = next(
            (each for each in ast.walk(self.tree) if isinstance(each, ast.FunctionDef) and each.name == text), None
        )
        if found is None:
            if self.is_flask:
                return f"lambda _request: {text}()"
            self.note(value, f"{text} gets Starlette's connection; see whether it takes it")
            return text
        return text if found.args.args else f"lambda _request: {text}()"

    # The application of slowapi

    def _slowapi_application(self) -> None:
        has_middleware = any(
            name_of(node) in {"SlowAPIMiddleware", "SlowAPIASGIMiddleware"} for node in ast.walk(self.tree)
        )
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Assign) and dotted(node.targets[0]).endswith(".state.limiter"):
                app = dotted(node.targets[0]).removesuffix(".state.limiter")
                limiter = self.limiters.get(dotted(node.value))
                if limiter is None:
                    continue
                self.handled.add(node.value)
                if not has_middleware and argument(limiter, "default_limits") is not None:
                    self.note(node, "without SlowAPIMiddleware default limits have no effect there; they are left out")
                self.names.add("setup")
                given = ", ".join([app, *self._application(limiter, defaults=has_middleware)])
                self.edits.replace(node, f"setup({given})")
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                self._application_call(node, node.value)
            elif isinstance(node, ast.Name) and node.id == "RateLimitExceeded":
                self._exception(node)

    def _application_call(self, statement: ast.Expr, call: ast.Call) -> None:
        called = dotted(call.func).rpartition(".")[2]
        names = {name_of(argument) for argument in call.args}
        if (called == "add_exception_handler" and "_rate_limit_exceeded_handler" in names) or (
            called == "add_middleware" and names & {"SlowAPIMiddleware", "SlowAPIASGIMiddleware"}
        ):
            self.edits.remove(statement)
            self.handled.update(ast.walk(statement))

    def _exception(self, node: ast.Name) -> None:
        if node not in self.handled:
            self.names.add("RateLimited")
            self.edits.replace(node, "RateLimited")
            self.note(node, "RateLimited has a verdict (verdict.limit, verdict.retry_after) in place of exc.limit")

    # What is left

    def _leftovers(self) -> None:
        for node in ast.walk(self.tree):
            if self._is_limiters(node, "exempt"):
                assert isinstance(node, ast.Attribute)  # noqa: S101 (just looked at)
                self.handled.add(node.value)
                if not self.is_flask:
                    self.names.add("exempt")
                    self.edits.replace(node, "exempt")
            elif self._is_limiters(node, "init_app"):
                self.handled.update(ast.walk(node))
            elif isinstance(node, ast.Name) and node.id in self.limiters and node not in self.handled:
                self.note(node, f"{node.id} is used here in another way; change it by hand")

    def _imports(self) -> None:
        is_first = True
        for node in self._their_imports():
            if is_first:
                self.edits.replace(node, "\n".join(self._new_imports()))
                is_first = False
            else:
                self.edits.remove(node)

    def _their_imports(self) -> Iterator[ast.stmt]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import | ast.ImportFrom) and root_of(node) in _LIBRARIES:
                yield node

    def _new_imports(self) -> list[str]:
        own = sorted(self.names - {"limit"})
        lines = [f"from headgate.{self.framework} import {', '.join(own)}"] if own else []
        if "limit" in self.names:
            lines.append(f"from headgate.{'wsgi' if self.is_flask else 'asgi'} import limit")
        return lines
