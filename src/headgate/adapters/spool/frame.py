"""A frame of a log: a head that says what it is, and a payload. Both are checked by sums of their own.

Everything in a log has a number: the first event is 0. A frame knows the number of its first event, so
whatever is missing between two frames is known exactly, whoever lost it.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple
from zlib import crc32

_MARK: Final = b"hgf1"
_FIELDS: Final = struct.Struct("<4sQIII")  # mark, first, many, size, sum of the payload
_SUM: Final = struct.Struct("<I")
HEAD: Final = _FIELDS.size + _SUM.size
LARGEST: Final = 64 * 1024 * 1024
"""A payload that claims to be larger is none."""


class Head(NamedTuple):
    """What a frame says of itself."""

    first: int
    """The number of its first event."""
    many: int
    """How many events it has; with none, it only says what `first` is by now."""
    size: int
    """Of the payload, in bytes."""
    sum: int

    @property
    def end(self) -> int:
        """The number of the first event behind it."""
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
    if mark != _MARK or size > LARGEST or crc32(fields) != _SUM.unpack_from(data, _FIELDS.size)[0]:
        return None
    return Head(first, many, size, check)


def is_whole(head: Head, payload: bytes) -> bool:
    """Whether it is the payload that the head was made for."""
    return len(payload) == head.size and crc32(payload) == head.sum


def find_head(data: bytes, start: int) -> int | None:
    """Where the next head begins at or behind `start`, if there is one."""
    at = data.find(_MARK, start)
    while at >= 0:
        if head_of(data[at : at + HEAD]) is not None:
            return at
        at = data.find(_MARK, at + 1)
    return None
