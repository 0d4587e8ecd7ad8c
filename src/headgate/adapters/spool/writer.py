"""What a deciding process appends to: it never raises, and remembers what the disk does not take.

Batches that cannot be written wait in memory, up to a bound; then the oldest are dropped. The numbers
of what was dropped are left out of the log, so that its readers can count them.
"""

from __future__ import annotations

import logging
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from headgate.adapters.spool.batches import encoded
from headgate.adapters.spool.folder import SpoolFolder, new_name
from headgate.adapters.spool.log import Log, largest_payload

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from headgate.adapters.spool.batches import Batch

log = logging.getLogger("headgate")

_MAX_IN_MEMORY: Final = 16 * 1024 * 1024


class Writer:
    """The streams of one process. Its methods block, and are called by one thread at a time."""

    def __init__(self, root: Path, limits: Mapping[str, int], max_in_memory: int = _MAX_IN_MEMORY) -> None:
        """`limits` says how many bytes each stream may have on disk; `max_in_memory` is for each as well."""
        self._root = root
        self._streams = {name: _Stream(limit, max_in_memory) for name, limit in limits.items()}
        self._folder: SpoolFolder | None = None
        self._fails = False

    def append(self, stream: str, batch: Batch) -> None:
        """Take a batch; `write` brings it to the disk."""
        self._streams[stream].append(batch)

    def skip(self, stream: str, many: int) -> None:
        """So many events were lost before they came here."""
        self._streams[stream].skip(many)

    def write(self) -> None:
        """Write all that waits, if the disk takes it."""
        if not any(stream.has_news for stream in self._streams.values()):
            return
        try:
            self._open()
            for stream in self._streams.values():
                stream.write()
        except OSError as error:
            if not self._fails:
                reason = error.strerror or error
                log.warning("spool %s: cannot be written, events wait in memory: %s", self._root, reason)
            self._fails = True
        else:
            if self._fails:
                log.info("spool %s: writing recovered", self._root)
            self._fails = False
        for stream in self._streams.values():
            stream.shrink()

    def close(self) -> None:
        """Write what can be written, and close the files."""
        self.write()
        for stream in self._streams.values():
            stream.close()
        if self._folder is not None:
            self._folder.close()
        lost = sum(stream.waiting for stream in self._streams.values())
        if lost:
            log.error(
                "spool %s: not written before the end of the process, %d events and counts are lost", self._root, lost
            )

    def waiting(self, stream: str) -> int:
        """How many events are not on disk yet."""
        return self._streams[stream].waiting

    def dropped(self, stream: str) -> int:
        """How many were dropped because the disk took nothing for too long, or had no form that can be written."""
        return self._streams[stream].dropped

    def _open(self) -> None:
        """Make the folder, or a new one if it was deleted."""
        if self._folder is not None and self._folder.is_there:
            return
        name, goes_on = new_name(), False
        if self._folder is not None:
            log.warning("spool %s: deleted while in use, its events are lost; a new folder is made", self._folder.path)
            self._folder.close()
            if not self._folder.path.exists():  # under the same name readers see what is missing
                name, goes_on = self._folder.path.name, True
        self._folder = SpoolFolder(self._root, list(self._streams), name)
        for stream_name, stream in self._streams.items():
            stream.begin(self._folder.path / stream_name, goes_on=goes_on)


class _Stream:
    """What waits for one log."""

    def __init__(self, limit: int, max_in_memory: int) -> None:
        self._limit = limit
        self._max_in_memory = max_in_memory
        self._log: Log | None = None
        self._number = 0
        self._log_end = 0
        """The number that the log has reached."""
        self._payloads: deque[tuple[int, bytes]] = deque()
        self._bytes = 0
        self.waiting = 0
        self.dropped = 0

    @property
    def has_news(self) -> bool:
        return bool(self._payloads) or self._log_end < self._number

    def append(self, batch: Batch) -> None:
        payloads, unfit = encoded(batch, largest_payload(self._limit))
        self._drop(unfit)
        for many, payload in payloads:
            self._payloads.append((many, payload))
            self._bytes += len(payload)
            self.waiting += many

    def skip(self, many: int) -> None:
        self._number += many

    def begin(self, folder: Path, *, goes_on: bool) -> None:
        """Write to a new log, which `goes_on` where the last one was, or begins with 0."""
        self.close()
        self._log = Log(folder, self._limit)
        if not goes_on:
            self._number -= self._log_end
            self._log_end = 0

    def write(self) -> None:
        assert self._log is not None  # noqa: S101 (`begin` comes first)
        while self._payloads:
            many, payload = self._payloads[0]
            self._log.append(self._number, many, payload)
            self._take()
            self._number += many
            self._log_end = self._number
        if self._log_end < self._number:
            self._log.append(self._number, 0, b"")
            self._log_end = self._number

    def shrink(self) -> None:
        """Drop the oldest, until the rest may stay in memory."""
        while self._bytes > self._max_in_memory:
            self._drop(self._take())

    def close(self) -> None:
        if self._log is not None:
            with suppress(OSError):
                self._log.close()

    def _take(self) -> int:
        many, payload = self._payloads.popleft()
        self._bytes -= len(payload)
        self.waiting -= many
        return many

    def _drop(self, many: int) -> None:
        self.dropped += many
        self._number += many
