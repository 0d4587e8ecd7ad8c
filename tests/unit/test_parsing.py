"""The test suite itself: what is parsed to report a failure is not disturbed by garbage."""

from __future__ import annotations

import ast
import gc
import traceback

PAGE = "\n".join(f"x{number} = [{number}, f(y, {number})]" for number in range(300))


class Finalized:
    """Garbage whose finalizer formats a traceback, which parses Python."""

    def __init__(self, tracebacks: list[str]) -> None:
        self._self = self  # only a collection finds it
        self._tracebacks = tracebacks

    def __del__(self) -> None:
        try:
            raise RuntimeError  # noqa: TRY301 (caught to be formatted)
        except RuntimeError:
            self._tracebacks.append(traceback.format_exc())


def test_python_is_parsed_while_there_is_garbage_that_parses() -> None:
    """A collection cannot make a parse fail, and garbage is collected afterwards."""
    tracebacks: list[str] = []
    Finalized(tracebacks)
    thresholds = gc.get_threshold()
    gc.set_threshold(50)
    try:
        assert len(ast.parse(PAGE).body) == 300
    finally:
        gc.set_threshold(*thresholds)
    gc.collect()
    assert gc.isenabled()
    assert "RuntimeError" in tracebacks[0]
