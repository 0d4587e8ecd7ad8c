"""Metric samples of this process, and of all processes of one service through files in a shared folder.

Any process answers `/metrics` for all of them. A process that replaces a dead one continues its counters, so no sum
ever decreases.
"""

from __future__ import annotations

import os
import platform
import resource
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from headgate.core.metrics import MetricKind, Sample, metric_of, summed
from headgate.core.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from headgate.core.units import Micros

_SUFFIX: Final = ".json"
_TEXT_FILE: Final = "told.txt"
_RESTARTS: Final = "headgate_process_restarts_total"


class _Kept(NamedTuple):
    """What is in a file."""

    process: int
    samples: list[Sample]


_read: Final = msgspec.json.Decoder(_Kept).decode
_written: Final = msgspec.json.Encoder().encode


class WorkerSamples:
    """One process's file of samples, and access to those of the others."""

    def __init__(self, folder: Path, worker: str) -> None:
        """`worker` is the name of this process among the others."""
        self._folder = folder
        self._file = folder / f"{worker}{_SUFFIX}"
        self._text_file = folder / _TEXT_FILE
        self._read: tuple[tuple[int, int], str] | None = None
        """The text that was read last, and which version of the file it is."""
        before = _kept(self._file)
        self._inherited = [] if before is None else _without_restarts(_counters(before.samples))

    def share(self, samples: Iterable[Sample]) -> list[Sample]:
        """Publish these samples to the other processes; returns them with the inherited counters added."""
        whole = summed([*self._inherited, *samples])
        new = self._file.with_suffix(".new")
        with suppress(OSError):  # the disk is full, or the service is just ending: the others know the last ones
            new.write_bytes(_written(_Kept(os.getpid(), whole)))
            new.replace(self._file)
        return whole

    def keep(self, text: str) -> None:
        """Save the metrics text of all processes, so that every process can serve it."""
        new = self._text_file.with_suffix(f".{os.getpid()}")
        with suppress(OSError):  # as above
            new.write_text(text, encoding="utf-8")
            new.replace(self._text_file)

    def kept(self) -> str | None:
        """The text that any process saved last; None if it cannot be read."""
        try:
            found = self._text_file.stat()
            if self._read is None or self._read[0] != (found.st_mtime_ns, found.st_ino):
                self._read = (found.st_mtime_ns, found.st_ino), self._text_file.read_text(encoding="utf-8")
        except OSError:  # no text is saved yet, or the service is just ending
            return None
        return self._read[1]

    def of_others(self) -> list[Sample]:
        """What the others shared last; of those that are dead only what is counted."""
        found: list[Sample] = []
        for file in self._folder.glob(f"*{_SUFFIX}"):
            kept = None if file == self._file else _kept(file)
            if kept is not None:
                found += kept.samples if _is_alive(kept.process) else _counters(kept.samples)
        return found


def _kept(file: Path) -> _Kept | None:
    try:
        return _read(file.read_bytes())
    except (OSError, msgspec.DecodeError):
        return None  # no process has written it yet, or the service is just ending


def _counters(samples: Sequence[Sample]) -> list[Sample]:
    return [sample for sample in samples if metric_of(sample.name).kind is not MetricKind.GAUGE]


def _without_restarts(samples: Sequence[Sample]) -> list[Sample]:
    """What a process takes over from the one that it replaces; restarts it is told by its supervisor."""
    return [sample for sample in samples if sample.name != _RESTARTS]


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def process_samples(worker: str, started: Micros, restarts: int = 0) -> Callable[[], Iterator[Sample]]:
    """Samples of this process, which began to serve at `started`, after so many others that have died."""
    build = Sample("headgate_build_info", 1, (worker, version("headgate"), platform.python_version()))
    birth = Sample("process_start_time_seconds", started / SECOND, (worker,))

    def samples() -> Iterator[Sample]:
        yield build
        yield birth
        yield Sample(_RESTARTS, restarts, (worker,))
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
