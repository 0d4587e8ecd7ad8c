"""Going through a log, frame after frame, across whatever is missing or damaged."""

from __future__ import annotations

import os
from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from headgate.adapters.spool.frame import HEAD, Head, find_head, head_of, is_whole
from headgate.adapters.spool.segments import segment, segments

if TYPE_CHECKING:
    from io import FileIO
    from pathlib import Path


class Found(NamedTuple):
    """A frame, and where the one behind it begins."""

    head: Head
    payload: bytes | None
    """None if it is damaged, or was not asked for."""
    behind: int


class Cursor:
    """A place in a log: the number of the next event, and where that is in which file."""

    def __init__(self, folder: Path, number: int = 0, segment: int = 0, offset: int = 0) -> None:
        """At the beginning, unless told."""
        self._folder = folder
        self.number = number
        self.segment = segment
        self.offset = offset

    def copy(self) -> Cursor:
        """Another one, at the same place."""
        return Cursor(self._folder, self.number, self.segment, self.offset)

    def find(self) -> Found | None:
        """The next frame that has events and is whole; None if there is none yet.

        What is damaged or was deleted is passed over: then `number` has moved on to what is there, and
        the difference is what was lost.
        """
        while (found := self._next(with_payload=True)) is not None:
            if found.payload is not None and found.head.many:
                return found
            self.move_behind(found)
        return None

    def go_to_end(self) -> None:
        """Behind the last frame that is there by now, whatever is in it."""
        while (found := self._next(with_payload=False)) is not None:
            self.move_behind(found)

    def move_behind(self, found: Found) -> None:
        """Be done with a frame."""
        self.offset, self.number = found.behind, found.head.end

    def _next(self, *, with_payload: bool) -> Found | None:
        while True:
            there = segments(self._folder)
            if self.segment not in there:
                if not self._go_on(there):
                    return None
                continue
            try:
                with segment(self._folder, self.segment).open("rb", buffering=0) as file:
                    found = self._look(file, with_payload=with_payload)
            except FileNotFoundError:  # it was deleted just now
                continue
            if found is not None:
                self.number = max(self.number, found.head.first)
                return found
            # Where a later file was there before the look, nobody writes to this one any more.
            if not self._go_on(there):
                return None

    def _go_on(self, there: list[int]) -> bool:
        """To the beginning of the next file, if there is one."""
        following = bisect_right(there, self.segment) if self.segment in there else 0
        later = [first for first in there[following:] if first >= self.segment]
        if not later:
            return False
        self.segment, self.offset = later[0], 0
        self.number = max(self.number, self.segment)
        return True

    def _look(self, file: FileIO, *, with_payload: bool) -> Found | None:
        """The next frame in a file; None if there is none, or only a part of one."""
        file.seek(self.offset)
        data = file.read(HEAD)
        head = head_of(data)
        if head is None:
            rest = data + file.readall()
            at = find_head(rest, 1)
            if at is None:
                return None
            self.offset += at
            file.seek(self.offset)
            head = head_of(file.read(HEAD))
            assert head is not None  # noqa: S101 (it was found there)
        behind = self.offset + HEAD + head.size
        if behind > os.fstat(file.fileno()).st_size:
            return None
        payload = file.read(head.size) if with_payload else None
        return Found(head, payload if payload is not None and is_whole(head, payload) else None, behind)
