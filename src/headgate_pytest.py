"""Headgate's plugin for pytest: fixtures with a fake clock and limiters on it.

pytest imports this module in every run where headgate is installed, so it stands beside the package, and the package
is imported only by tests that ask for a fixture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate import Limiter, sync
    from headgate.testing import FakeClock


@pytest.fixture
def headgate_clock() -> FakeClock:
    """A clock that moves only when the test moves it; it starts at 2026-01-01 00:00 UTC."""
    from headgate.testing import FakeClock  # noqa: PLC0415 (only for tests that use it)

    return FakeClock()


@pytest.fixture
def headgate_limiter(headgate_clock: FakeClock) -> Iterator[Limiter]:
    """A limiter in memory on `headgate_clock`, for applications with `await`: give it to them as their store."""
    from headgate import Limiter  # noqa: PLC0415 (as above)
    from headgate.dataplane.limiter import run_now  # noqa: PLC0415 (as above)

    limiter = Limiter.open("memory://", clock=headgate_clock)
    yield limiter
    run_now(limiter.close())


@pytest.fixture
def headgate_sync_limiter(headgate_clock: FakeClock) -> Iterator[sync.Limiter]:
    """The same for applications without `await`."""
    from headgate import sync  # noqa: PLC0415 (as above)

    with sync.Limiter.open("memory://", clock=headgate_clock) as limiter:
        yield limiter
