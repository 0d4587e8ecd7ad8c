"""Hypothesis profiles, shared fixtures, and the tests that this machine has no server for.

The profile `fast` is for every run, `long` (HYPOTHESIS_PROFILE=long) for half a million steps per algorithm.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from tests.support.optional_servers import HOW_TO_GET, find_server

if TYPE_CHECKING:
    from collections.abc import Generator

# Generating a history may take longer than Hypothesis likes on a busy machine; there are no deadlines.
settings.register_profile(
    "fast", deadline=None, derandomize=True, max_examples=40, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "long", deadline=None, max_examples=1_500, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
pytest_plugins = ["tests.support.hanging", "tests.support.parsing", "tests.support.servers", "tests.support.service"]
collect_ignore = ["chaos"]  # outages that last minutes; `make chaos` names the folder
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--collect-garbage``: a socket that a test leaks fails that test, not a later one; a third slower."""
    parser.addoption("--collect-garbage", action="store_true", help="collect garbage after every test")


@pytest.hookimpl(trylast=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Collect garbage after the test, while warnings still count as its own."""
    if item.config.getoption("--collect-garbage"):
        gc.collect()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:  # noqa: ARG001 (the hook's name for it)
    """Give loggers the levels back that a test's frameworks have changed: other tests count the lines they see."""
    loggers = [logging.getLogger(), logging.getLogger("headgate")]
    levels = [logger.level for logger in loggers]
    try:
        return (yield)
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Switch coverage off while a test marked `untraced` runs."""
    tracer = sys.gettrace()
    if tracer is None or pyfuncitem.get_closest_marker("untraced") is None:
        return (yield)
    sys.settrace(None)
    try:
        return (yield)
    finally:
        sys.settrace(tracer)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests whose optional server is missing; `make test` says which, once, at its end."""
    left_out = [item for item in items if any(find_server(name) is None for name in _needed(item))]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


def _needed(item: pytest.Item) -> list[str]:
    names = [str(mark.args[0]) for mark in item.iter_markers("needs")]
    if unlisted := {*names} - HOW_TO_GET.keys():
        msg = f"{item.nodeid} needs {', '.join(unlisted)}: say how to get it in tests/support/optional_servers.py"
        raise pytest.UsageError(msg)
    return [*names, "redis-server"] if "redis_server" in getattr(item, "fixturenames", ()) else names
