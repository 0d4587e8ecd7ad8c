"""A test that configures logging changes nothing for those after it."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

CONFTEST = Path(__file__).parents[1] / "conftest.py"
LOGGERS = [logging.getLogger(), logging.getLogger("headgate")]


@pytest.mark.parametrize("fails", [False, True])
def test_levels_that_a_test_sets_end_with_it(request: pytest.FixtureRequest, *, fails: bool) -> None:
    """Litestar sets them when an application is made; what other tests see in the log does not depend on that."""
    before = [logger.level for logger in LOGGERS]
    around_a_test = _hook(request)
    next(around_a_test)
    for logger in LOGGERS:
        logger.setLevel(logger.level + 1)
    with suppress(StopIteration, RuntimeError):
        if fails:
            around_a_test.throw(RuntimeError())
        else:
            around_a_test.send(None)
    assert [logger.level for logger in LOGGERS] == before


def _hook(request: pytest.FixtureRequest) -> Generator[None, object, object]:
    """What `tests/conftest.py` does around a test."""
    plugins = request.config.pluginmanager.get_plugins()
    (conftest,) = [each for each in plugins if getattr(each, "__file__", None) == str(CONFTEST)]
    found: Generator[None, object, object] = conftest.pytest_runtest_protocol(request.node)
    return found
