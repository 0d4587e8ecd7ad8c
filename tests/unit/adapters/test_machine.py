"""What the machine lets a process have."""

from __future__ import annotations

import sys

import pytest

from headgate.adapters import machine
from headgate.adapters.machine import seconds_kept_waiting


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says how long a thread waits for a processor")
def test_the_time_a_thread_was_kept_waiting_only_grows() -> None:
    """The scheduler's figure is a number of seconds that never steps back."""
    before = seconds_kept_waiting()
    sum(range(100_000))
    assert 0 <= before <= seconds_kept_waiting()


def test_a_system_that_does_not_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the scheduler's figures no wait is assumed."""
    monkeypatch.setattr(machine, "_SCHEDULER", "/nowhere")
    assert seconds_kept_waiting() == 0.0
