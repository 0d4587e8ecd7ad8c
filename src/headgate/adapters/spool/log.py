"""Writing one log: frames at the end of the newest file, and the oldest file deleted when there is no more room.

What is written is with the operating system before `append` returns, so it outlives the process. It is not
forced to the disk: a machine that loses its power may lose what it had not written by then.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from headgate.adapters.spool.frame import HEAD, framed
from headgate.adapters.spool.segments import delete, segment, segments, size_of

if TYPE_CHECKING:
    from pathlib import Path

_PARTS: Final = 8
_LARGEST_SEGMENT: Final = 8 * 1024 * 1024
_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_APPEND


def segment_size(limit: int) -> int:
    """How large a file of a log of so many bytes may become."""
    return min(_LARGEST_SEGMENT, limit // _PARTS)


def largest_payload(limit: int) -> int:
    """What fits into such a file."""
    return segment_size(limit) - HEAD


class Log:
    """The writing end. Whoever appends knows the numbers of events; they never go back."""

    def __init__(self, folder: Path, limit: int) -> None:
        """The folder is there, empty, and nobody else's to write to. It never has more than `limit` bytes."""
        self._folder = folder
        self._limit = limit
        self._file: int | None = None
        self._first = 0
        self._size = 0
        self._others: dict[int, int] = {}
        """The sizes of earlier files, as far as it is known; readers delete what they are done with."""

    def append(self, first: int, many: int, payload: bytes) -> None:
        """Append a frame, or raise `OSError` and have appended nothing."""
        frame = framed(first, many, payload)
        if self._file is not None and self._size and self._size + len(frame) > segment_size(self._limit):
            self._seal()
        self._make_room(len(frame))
        if self._file is None:
            self._file = os.open(segment(self._folder, first), _FLAGS, 0o600)
            self._first, self._size = first, os.fstat(self._file).st_size
        try:
            _write(self._file, frame)
        except BaseException:
            self._give_up(self._file)
            raise
        self._size += len(frame)

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._seal()

    def _seal(self) -> None:
        """End a file; the next frame begins another."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
            self._others[self._first] = self._size

    def _give_up(self, file: int) -> None:
        """After a write that failed half-way: what is there of it is cut off, and nothing is put in its place.

        The next frame begins a new file, so that no reader ever finds two things at one place.
        """
        with suppress(OSError):
            os.ftruncate(file, self._size)
            if not self._size:
                delete(self._folder, self._first)
        self._seal()

    def _make_room(self, size: int) -> None:
        """Delete the oldest files until so many bytes fit."""
        if self._size_of_all() + size <= self._limit:
            return
        current = self._first if self._file is not None else None
        self._others = {first: size_of(self._folder, first) for first in segments(self._folder) if first != current}
        while self._others and self._size_of_all() + size > self._limit:
            oldest = min(self._others)
            delete(self._folder, oldest)
            del self._others[oldest]

    def _size_of_all(self) -> int:
        return sum(self._others.values()) + (self._size if self._file is not None else 0)


def _write(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
