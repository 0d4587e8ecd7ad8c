"""A test that hangs is a failure: its process prints where every thread is, and ends.

A watchdog thread of the C library does it, so it works whatever Python code holds. Under pytest-xdist the worker is
replaced and the test counts as failed. The bound is generous, so that a busy machine does not reach it.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from typing import TYPE_CHECKING, Final, TextIO

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

SECONDS: Final = float(os.environ.get("TEST_SECONDS", "900"))
_output: Final[list[TextIO]] = []


def pytest_configure() -> None:
    """Keep the real standard error: what a test prints is captured, and lost when its process ends."""
    _output.append(os.fdopen(os.dup(sys.__stderr__.fileno() if sys.__stderr__ is not None else 2), "w"))


def pytest_unconfigure() -> None:
    """Close it."""
    while _output:
        _output.pop().close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Watch one test with its fixtures; chaos tests take minutes by design."""
    if "chaos" in item.path.parts or os.environ.get("HYPOTHESIS_PROFILE") == "long":
        return (yield)
    faulthandler.dump_traceback_later(SECONDS, exit=True, file=_output[-1])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()
