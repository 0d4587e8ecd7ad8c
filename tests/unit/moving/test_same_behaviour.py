"""Applications that `headgate migrate` has moved over behave as they did, under the same traffic on one clock."""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.unit.frameworks.kits import TestClient
from tests.unit.moving.applications import APPLICATIONS, Application

from headgate.migrate.detect import move
from headgate.testing import FakeClock

_CALLERS = ("ann", "bob")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """One clock for both: that of `limits`, and headgate's."""
    made = FakeClock()
    monkeypatch.setattr(time, "time", lambda: made.now / 1_000_000)
    for module in ("headgate.adapters.clock", "headgate.adapters.memory.store"):
        monkeypatch.setattr(f"{module}.clock_in_ns", lambda: made.now * 1_000)
    return made


def statuses(source: str, paths: tuple[str, ...], clock: FakeClock) -> list[int]:
    """What an application answers: bursts at the beginning of three minutes, where windows of both begin."""
    namespace: dict[str, Any] = {"__name__": "application"}
    exec(compile(source, "application", "exec"), namespace)  # noqa: S102 (our own)
    app = namespace["app"]
    found: list[int] = []
    # Entered, Starlette's client has one event loop; otherwise it begins a thread and a loop for every call.
    with app.test_client() if hasattr(app, "test_client") else TestClient(app) as client:
        for _ in range(3):
            for path in paths:
                for _ in range(6):
                    found += [client.get(path, headers={"x-user": user}).status_code for user in _CALLERS]
                if path == "/b":
                    found += [client.post(path).status_code for _ in range(3)]
            # At the very end of a moving window limits still counts its oldest entry, and headgate does not.
            clock.advance(seconds=61 if "moving-window" in source or "sliding_window_log" in source else 60)
    return found


@pytest.mark.parametrize("application", APPLICATIONS, ids=lambda each: each.name)
def test_a_moved_application_admits_and_refuses_as_before(application: Application, clock: FakeClock) -> None:
    """The same calls are admitted and refused by the application as it was and by what it was moved to."""
    moved = move(application.source)
    assert "slowapi" not in moved.text
    assert "flask_limiter" not in moved.text
    start = clock.now
    before = statuses(application.source, application.paths, clock)
    clock.set(start)
    after = statuses(moved.text, application.paths, clock)
    assert after == before
    assert {200, 429} <= set(before)


def test_there_are_twenty() -> None:
    """Ten of each library."""
    assert len({each.name for each in APPLICATIONS}) == 20
