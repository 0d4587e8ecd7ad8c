"""One log of the spool: numbered frames in segment files, and the end that writes them.

Every event in a log has a number, from 0. A frame stores the number of its first event, so a gap between two
frames says exactly how many events are missing. Head and payload have checksums of their own. The head begins with
the version of the format. All versions have the same head, so that each can pass over what it cannot read. A segment
file is named after its first event; when the log is full, the oldest segment is deleted.

A frame is with the operating system before `append` returns, so it survives the process. It is not synced to disk:
a power failure may lose the last frames.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple
from zlib import crc32

if TYPE_CHECKING:
    from pathlib import Path

VERSION: Final = 1
"""The version of the format that is written; see docs/reference/formats.md."""
_NAME: Final = b"hgf"
_MARK: Final = _NAME + b"%d" % VERSION
_FIELDS: Final = struct.Struct("<4sQIII")  # mark, first, many, size, sum of the payload
_SUM: Final = struct.Struct("<I")
HEAD: Final = _FIELDS.size + _SUM.size
MAX_PAYLOAD: Final = 64 * 1024 * 1024
"""In bytes; a head that names a larger payload is not a head."""


class Head(NamedTuple):
    """What a frame says of itself."""

    first: int
    """The number of its first event."""
    many: int
    """How many events it has; with none, it only says what `first` is by now."""
    size: int
    """Of the payload, in bytes."""
    sum: int
    version: int = VERSION

    @property
    def end(self) -> int:
        """The number of the first event after it."""
        return self.first + self.many


def framed(first: int, many: int, payload: bytes) -> bytes:
    """A frame as it is written."""
    fields = _FIELDS.pack(_MARK, first, many, len(payload), crc32(payload))
    return b"".join((fields, _SUM.pack(crc32(fields)), payload))


def head_of(data: bytes) -> Head | None:
    """The head that some bytes begin with; None if they are not one."""
    if len(data) < HEAD:
        return None
    fields = data[: _FIELDS.size]
    mark, first, many, size, check = _FIELDS.unpack(fields)
    name, version = mark[:-1], mark[-1:]
    if name != _NAME or not version.isdigit() or size > MAX_PAYLOAD:
        return None
    if crc32(fields) != _SUM.unpack_from(data, _FIELDS.size)[0]:
        return None
    return Head(first, many, size, check, int(version))


def is_whole(head: Head, payload: bytes) -> bool:
    """Whether it is the payload that the head was made for."""
    return len(payload) == head.size and crc32(payload) == head.sum


def find_head(data: bytes, start: int) -> int | None:
    """Where the next head begins at or behind `start`, if there is one."""
    at = data.find(_NAME, start)
    while at >= 0:
        if head_of(data[at : at + HEAD]) is not None:
            return at
        at = data.find(_NAME, at + 1)
    return None


_END: Final = ".log"


def segment(folder: Path, first: int) -> Path:
    """The file that begins with an event's number."""
    return folder / f"{first:020d}{_END}"


def segments(folder: Path) -> list[int]:
    """The numbers that the files begin with, in order; none if there is no folder."""
    with suppress(FileNotFoundError, NotADirectoryError):
        names = [file.name.removesuffix(_END) for file in folder.iterdir() if file.name.endswith(_END)]
        return sorted(int(name) for name in names if name.isascii() and name.isdigit())
    return []


def size_of(folder: Path, first: int) -> int:
    """The bytes of a file; 0 if it was deleted."""
    with suppress(FileNotFoundError):
        return segment(folder, first).stat().st_size
    return 0


def delete(folder: Path, first: int) -> None:
    """Delete a file, if it exists."""
    segment(folder, first).unlink(missing_ok=True)


_PARTS: Final = 8
_MAX_SEGMENT: Final = 8 * 1024 * 1024
_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_APPEND


def segment_size(limit: int) -> int:
    """How large a file of a log of so many bytes may become."""
    return min(_MAX_SEGMENT, limit // _PARTS)


def largest_payload(limit: int) -> int:
    """What fits into such a file."""
    return segment_size(limit) - HEAD


class Log:
    """The writing end. The caller numbers the events; numbers never decrease."""

    def __init__(self, folder: Path, limit: int) -> None:
        """The folder exists, is empty, and has no other writer. It never has more than `limit` bytes."""
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
            self._end_segment()
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
        """Close the file."""
        if self._file is not None:
            self._end_segment()

    def _end_segment(self) -> None:
        """End a file; the next frame begins another."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
            self._others[self._first] = self._size

    def _give_up(self, file: int) -> None:
        """After a write that failed half-way: cut off what was written, and end the file.

        The next frame begins a new file, so that no reader ever finds two different frames at one offset.
        """
        with suppress(OSError):
            os.ftruncate(file, self._size)
            if not self._size:
                delete(self._folder, self._first)
        self._end_segment()

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
