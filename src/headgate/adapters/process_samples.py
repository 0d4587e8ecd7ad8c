"""What the system knows about this process."""

from __future__ import annotations

import os
import platform
import resource
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.core.metrics import Sample
from headgate.core.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headgate.core.units import Micros


def process_samples(worker: str, started: Micros) -> Callable[[], Iterator[Sample]]:
    """Samples of this process, which began to serve at `started`."""
    build = Sample("headgate_build_info", 1, (worker, version("headgate"), platform.python_version()))
    birth = Sample("process_start_time_seconds", started / SECOND, (worker,))

    def samples() -> Iterator[Sample]:
        yield build
        yield birth
        used = resource.getrusage(resource.RUSAGE_SELF)
        yield Sample("process_cpu_seconds_total", used.ru_utime + used.ru_stime, (worker,))
        with suppress(OSError):  # only Linux says it
            pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
            yield Sample("process_resident_memory_bytes", int(pages) * resource.getpagesize(), (worker,))
        with suppress(OSError):
            yield Sample("process_open_fds", len(os.listdir("/dev/fd")) - 1, (worker,))  # noqa: PTH208 (names are enough; one is the list's own)
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if most != resource.RLIM_INFINITY:
            yield Sample("process_max_fds", most, (worker,))

    return samples
