"""Counts the steps: the long profile has to walk at least half a million of them per algorithm."""

from __future__ import annotations

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
    everything_ran = not request.session.testsfailed and not request.config.getoption("keyword")
    if LONG and everything_ran:
        too_few = {algorithm.value: STEPS[algorithm] for algorithm in Algorithm if STEPS[algorithm] < LEAST_STEPS}
        assert not too_few, f"fewer than {LEAST_STEPS} steps: {too_few}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many steps were walked against each algorithm."""
    if STEPS:
        counts = ", ".join(f"{algorithm.value} {STEPS[algorithm]:,}" for algorithm in Algorithm)
        terminalreporter.write_line(f"steps walked: {counts}")
