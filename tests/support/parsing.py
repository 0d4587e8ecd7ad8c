"""A failure is reported whatever garbage there is: on CPython before 3.11.8, none is collected while Python is parsed.

There, a collection in the middle of `ast.parse` runs finalizers, and one that parses too, as each traceback that is
formatted does, breaks the outer one: "AST constructor recursion depth mismatch" (CPython's issue 106905). pytest parses
the source of what failed, so that such a failure ended the whole run and hid its cause. Python 3.12 collects garbage
between instructions only.
"""

from __future__ import annotations

import ast
import gc
import sys
import threading
from functools import wraps
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_parse: Final[Callable[..., ast.AST]] = ast.parse
_parsing: Final = threading.RLock()  # of a signal handler, too


@wraps(_parse)
def _parsed(*arguments: object, **options: object) -> ast.AST:
    with _parsing:
        collects = gc.isenabled()
        gc.disable()
        try:
            return _parse(*arguments, **options)
        finally:
            if collects:
                gc.enable()


def pytest_configure() -> None:
    """Have everything in this process parse that way: pytest, and tracebacks."""
    if sys.version_info < (3, 11, 8):
        ast.parse = _parsed  # type: ignore[assignment] # it has overloads


def pytest_unconfigure() -> None:
    """Parse as Python does."""
    ast.parse = _parse  # type: ignore[assignment] # as above
