"""What a process reports about itself at `/metrics`, for all processes of its service."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.adapters.clock import monotonic, wall_clock
from headgate.adapters.file_lock import take_lock
from headgate.adapters.process_samples import WorkerSamples, process_samples
from headgate.core.metrics import DecisionTotals, exposition, summed
from headgate.edge.overview.live_rates import LiveRates
from headgate.errors import HeadgateError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator

    from headgate.core.metrics import Sample
    from headgate.dataplane.flusher import Counted

LEADER: Final = "main"
"""The name of the process that was started, among its workers, which have numbers."""
_SECONDS_BETWEEN: Final = 0.5
_MAX_CREDIT: Final = 10.0
_FOLDERS: Final = "headgate-metrics-"
_LOCK: Final = "lock"


class Telemetry:
    """Gathers samples when it is asked for them."""

    def __init__(
        self,
        worker: str = LEADER,
        folder: Path | None = None,
        clock: Callable[[], float] = monotonic,
        restarts: int = 0,
    ) -> None:
        """`folder` is shared with the other processes of the service, if there are any.

        `restarts` is how often this process was started again.
        """
        self.worker = worker
        self._clock = clock
        self._text: str | None = None
        self._credit, self._credited = _MAX_CREDIT, clock()
        """How often samples may be written now, and since when that is so; it grows by one a second."""
        self._shared = None if folder is None else WorkerSamples(folder, worker)
        self._totals = DecisionTotals()
        self._sources: list[Callable[[], Iterable[Sample]]] = [
            self._totals.samples,
            process_samples(worker, wall_clock(), restarts),
        ]
        self.rates = LiveRates(self.gathered, wall_clock)
        """How fast the counters grow, inside `rates.reading()`."""

    def add(self, *sources: Callable[[], Iterable[Sample]]) -> None:
        """Report these samples too: each part of the service that has some gives a function."""
        self._sources += sources

    def observe(self, counted: Counted) -> None:
        """Add what was decided since the last time."""
        self._totals.add(counted.counts, counted.latencies)

    def text(self) -> str:
        """The samples of all processes, as Prometheus reads them.

        To write them takes a millisecond, and any client may ask: more than a few times in a row, and more than once a
        second from then on, the answer is the last one again, of whichever process: one that is older than what
        another process has told would make sums fall.
        """
        now = self._clock()
        self._credit = min(_MAX_CREDIT, self._credit + now - self._credited)
        self._credited = now
        if self._text is None or self._credit >= 1.0:
            self._credit -= 1.0
            self._text = self._written()
            if self._shared is not None:
                self._shared.keep(self._text)
        elif self._shared is not None:
            self._text = self._shared.kept() or self._text
        return self._text

    def gathered(self) -> list[Sample]:
        """The samples of all processes now."""
        mine = self._share()
        return mine if self._shared is None else summed([*mine, *self._shared.of_others()])

    def _written(self) -> str:
        return exposition(self.gathered())

    def _share(self) -> list[Sample]:
        """What is shared before it is told is still known if this process dies; so no sum is told and then falls."""
        mine = summed(sample for source in self._sources for sample in source())
        return mine if self._shared is None else self._shared.share(mine)

    @asynccontextmanager
    async def sharing(self) -> AsyncIterator[None]:
        """Let the other processes know, inside the block, what this one has to report."""
        if self._shared is None:
            yield
            return
        self._share()
        keeping = asyncio.create_task(self._keep_sharing())
        try:
            yield
        finally:
            keeping.cancel()
            self._share()

    async def _keep_sharing(self) -> None:
        while True:
            await asyncio.sleep(_SECONDS_BETWEEN)
            self._share()


@contextmanager
def shared_folder(workers: int) -> Iterator[Path | None]:
    """A folder for what several processes report, gone at the end of the block; None for one process."""
    if workers == 1:
        yield None
        return
    try:
        parent = Path(tempfile.gettempdir())
        _remove_left(parent)
        unnamed = Path(tempfile.mkdtemp(prefix=".headgate-"))
        lock = take_lock(unnamed / _LOCK)
        folder = unnamed.rename(parent / f"{_FOLDERS}{unnamed.name.rpartition('-')[2]}")  # now others look at the lock
    except OSError as error:
        msg = f"there is no folder for temporary files: {error.strerror or error}; set TMPDIR to one"
        raise HeadgateError(msg) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            lock.release()


def _remove_left(parent: Path) -> None:
    """Remove the folders of services that were killed: those whose lock is free."""
    for folder in parent.glob(f"{_FOLDERS}*"):
        with suppress(OSError):  # another user's, or just removed
            lock = take_lock(folder / _LOCK)
            if lock is not None:
                shutil.rmtree(folder, ignore_errors=True)
                lock.release()
