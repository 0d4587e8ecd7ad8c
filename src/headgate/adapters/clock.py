"""The one place that reads the clock.

What this machine lets this process have.
"""

from __future__ import annotations

import os
from contextlib import suppress
from time import monotonic, monotonic_ns, sleep
from time import time_ns as clock_in_ns
from typing import Final

__all__ = ["clock_in_ns", "monotonic", "monotonic_ns", "sleep", "wall_clock"]


def wall_clock() -> int:
    """Microseconds since the Unix epoch."""
    return clock_in_ns() // 1_000


_SCHEDULER: Final = "/proc/thread-self/schedstat"
_NANOSECOND: Final = 1e-9


def cpu_wait_seconds() -> float:
    """How long this thread was ready to run so far while the machine ran others; 0 where the system does not say.

    The file is opened each time, which takes some microseconds: one kept open would be that of the thread, and of the
    process before a fork, which opened it.
    """
    with suppress(OSError, ValueError, IndexError):
        file = os.open(_SCHEDULER, os.O_RDONLY)
        try:
            return int(os.read(file, 100).split()[1]) * _NANOSECOND
        finally:
            os.close(file)
    return 0.0
