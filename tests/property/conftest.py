"""Counts the steps: the long profile has to walk at least half a million of them per algorithm."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from tests.property.histories import LONG, STEPS

from headgate.core.meter import Algorithm

if TYPE_CHECKING:
    from collections.abc import Iterator

LEAST_STEPS: Final = 500_000


@pytest.fixture(scope="session", autouse=True)
def _enough_steps(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if LONG and _everything_ran(request.session):
        too_few = {algorithm.value: STEPS[algorithm] for algorithm in Algorithm if STEPS[algorithm] < LEAST_STEPS}
        assert not too_few, f"fewer than {LEAST_STEPS} steps: {too_few}"


def _everything_ran(session: pytest.Session) -> bool:
    """Whether every file of this folder was run, whole, and nothing failed. A part of them walks fewer steps."""
    is_part = session.config.getoption("keyword") or any("::" in each for each in session.config.args)
    folder = Path(__file__).parent
    missing = {*folder.glob("test_*.py")} - {each.path for each in session.items}
    return not (session.testsfailed or is_part or missing)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many steps were walked against each algorithm."""
    if STEPS:
        counts = ", ".join(f"{algorithm.value} {STEPS[algorithm]:,}" for algorithm in Algorithm)
        terminalreporter.write_line(f"steps walked: {counts}")
