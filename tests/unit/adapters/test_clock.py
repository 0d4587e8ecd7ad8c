"""What the machine lets a process have."""

from __future__ import annotations

import sys

import pytest

from headgate.adapters import clock
from headgate.adapters.clock import cpu_wait_seconds


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says how long a thread waits for a processor")
def test_the_time_a_thread_was_kept_waiting_only_grows() -> None:
    """The scheduler's figure is a number of seconds that never steps back."""
    before = cpu_wait_seconds()
    sum(range(100_000))
    assert 0 <= before <= cpu_wait_seconds()


def test_a_system_that_does_not_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the scheduler's figures no wait is assumed."""
    monkeypatch.setattr(clock, "_SCHEDULER", "/nowhere")
    assert cpu_wait_seconds() == 0.0
