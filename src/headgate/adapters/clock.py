"""The one place that reads the clock."""

from __future__ import annotations

from time import monotonic, monotonic_ns, sleep
from time import time_ns as clock_in_ns

__all__ = ["clock_in_ns", "monotonic", "monotonic_ns", "sleep", "wall_clock"]


def wall_clock() -> int:
    """Microseconds since the Unix epoch."""
    return clock_in_ns() // 1_000
