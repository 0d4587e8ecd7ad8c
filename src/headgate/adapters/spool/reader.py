"""A sink's progress through one log. Its offset is saved in a small file beside the log and survives a restart.

A `Cursor` moves from frame to frame and skips what is missing or damaged; a `Reader` counts what its sink stored.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.adapters.spool.log import HEAD, VERSION, Head, find_head, head_of, is_whole, segment, segments, size_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from io import FileIO
    from pathlib import Path


class SpooledFrame(NamedTuple):
    """A frame, and where the next one begins."""

    head: Head
    payload: bytes | None
    """None if it is damaged, or was not asked for."""
    next_at: int


class Damage(NamedTuple):
    """A part of a file that cannot be read. What it had counts as dropped, as far as the numbers after it say so."""

    segment: int
    offset: int
    size: int
    """In bytes."""


class Cursor:
    """A position in a log: the number of the next event, its file and the offset in it."""

    def __init__(
        self, folder: Path, number: int = 0, segment: int = 0, offset: int = 0, damage: list[Damage] | None = None
    ) -> None:
        """At the beginning, unless a position is given. What is damaged is added to `damage`."""
        self._folder = folder
        self.damage = [] if damage is None else damage
        self.number = number
        self.segment = segment
        self.offset = offset
        self.newer: int | None = None
        """The version of the format that the next frame has, if that is one which this process cannot read."""

    def copy(self) -> Cursor:
        """Another cursor at the same position."""
        return Cursor(self._folder, self.number, self.segment, self.offset, self.damage)

    def find(self) -> SpooledFrame | None:
        """The next frame that has events and is whole; None if there is none yet.

        What is damaged or was deleted is passed over: then `number` has moved on to what is there, and
        the difference is what was lost. A frame of a newer format is not: it waits for a version that reads it.
        """
        while (found := self._next(with_payload=True)) is not None:
            self.newer = found.head.version if found.head.version > VERSION else None
            if self.newer is not None:
                return None
            if found.payload is not None and found.head.many:
                return found
            self.move_behind(found)
        return None

    def go_to_end(self) -> None:
        """Behind the last frame that is there by now, whatever is in it."""
        while (found := self._next(with_payload=False)) is not None:
            self.move_behind(found)

    def move_behind(self, found: SpooledFrame) -> None:
        """Be done with a frame."""
        self.offset, self.number = found.next_at, found.head.end

    def _next(self, *, with_payload: bool) -> SpooledFrame | None:
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
            # If a later file existed before this one was read, this one is not written to any more.
            tail = self.tail()
            if not self._go_on(there):
                return None
            if tail is not None:
                self.damage.append(tail)

    def tail(self) -> Damage | None:
        """What is left of the file here; None if it is read to its end."""
        size = size_of(self._folder, self.segment) - self.offset
        return Damage(self.segment, self.offset, size) if size > 0 else None

    def head_here(self) -> Head | None:
        """The head of a frame that is cut off; None if not even that can be read."""
        with suppress(OSError), segment(self._folder, self.segment).open("rb", buffering=0) as file:
            file.seek(self.offset)
            return head_of(file.read(HEAD))
        return None

    def _go_on(self, there: list[int]) -> bool:
        """To the beginning of the next file, if there is one."""
        next_index = bisect_right(there, self.segment) if self.segment in there else 0
        later = [first for first in there[next_index:] if first >= self.segment]
        if not later:
            return False
        self.segment, self.offset = later[0], 0
        self.number = max(self.number, self.segment)
        return True

    def _look(self, file: FileIO, *, with_payload: bool) -> SpooledFrame | None:
        """The next frame in a file; None if there is none, or only a part of one."""
        file.seek(self.offset)
        data = file.read(HEAD)
        head = head_of(data)
        if head is None:
            rest = data + file.readall()
            at = find_head(rest, 1)
            if at is None:
                return None
            self.damage.append(Damage(self.segment, self.offset, at))
            self.offset += at
            file.seek(self.offset)
            head = head_of(file.read(HEAD))
            assert head is not None  # noqa: S101 (it was found there)
        next_at = self.offset + HEAD + head.size
        if next_at > os.fstat(file.fileno()).st_size:
            return None
        payload = file.read(head.size) if with_payload else None
        if payload is not None and not is_whole(head, payload):
            self.damage.append(Damage(self.segment, self.offset, next_at - self.offset))
            payload = None
        return SpooledFrame(head, payload, next_at)


_END: Final = ".place"


class Offset(NamedTuple):
    """Where a reader is, and what became of all before it."""

    number: int
    segment: int
    offset: int
    begun: int
    """The number that it began with: a sink that is added later has no part in what others were done with."""
    stored: int
    refused: int


class Reader:
    """Reads a log for a sink, and accounts for every number in it."""

    def __init__(self, folder: Path, name: str) -> None:
        """`name` is the sink's, within the folder of a log."""
        self._file = folder / f"{name}{_END}"
        saved = _saved(self._file) or _beginning(folder)
        self._begun, self._refused, self._stored = saved.begun, saved.refused, saved.stored
        self._cursor = Cursor(folder, saved.number, saved.segment, saved.offset)
        self._reported = (saved.segment, saved.offset)

    def find(self, most: int = 1, enough: int = 1) -> list[SpooledFrame]:
        """The next frames that it has not stored, all of one file; none, if there are none yet.

        So many at most, and no more once they have `enough` events.
        """
        first = self._cursor.find()
        if first is None:
            return []
        found, ahead = [first], self._cursor.copy()
        while len(found) < most and sum(each.head.many for each in found) < enough:
            ahead.move_behind(found[-1])
            frame = ahead.find()
            if frame is None or ahead.segment != self._cursor.segment:
                break
            found.append(frame)
        return found

    def keep(self, found: Sequence[SpooledFrame], refused: int) -> None:
        """Be done with frames, of whose events the sink can never take so many."""
        self._refused += refused
        self._stored += sum(each.head.many for each in found) - refused
        self.lose(found[-1])

    def lose(self, found: SpooledFrame) -> None:
        """Skip a frame that cannot be read."""
        self._cursor.move_behind(found)
        self.save_offset()

    def new_damage(self) -> list[Damage]:
        """The damage that was found since the last call: a frame that is read ahead is found more than once."""
        found = sorted({each for each in self._cursor.damage if each[:2] >= self._reported})
        self._cursor.damage.clear()
        if found:
            self._reported = (found[-1].segment, found[-1].offset + 1)
        return found

    def give_up_tail(self) -> None:
        """Behind the last whole frame of a log that is not written to any more: what is cut off there is damaged."""
        tail = self._cursor.tail()
        if tail is not None:
            self._cursor.damage.append(tail)
            head = self._cursor.head_here()
            if head is not None:
                self._cursor.number = max(self._cursor.number, head.end)

    def save_offset(self) -> None:
        """Save the offset. On a full disk that fails, and after a restart some batches may be read a second time."""
        new = self._file.with_suffix(".new")
        with suppress(OSError):
            new.write_text(json.dumps(self.offset._asdict()), encoding="ascii")
            new.replace(self._file)

    @property
    def offset(self) -> Offset:
        """How far it has read."""
        cursor = self._cursor
        return Offset(cursor.number, cursor.segment, cursor.offset, self._begun, self._stored, self._refused)

    @property
    def newer(self) -> int | None:
        """The version of the format of what comes next, if this process cannot read it."""
        return self._cursor.newer

    @property
    def number(self) -> int:
        """All before this number is done with."""
        return self._cursor.number

    @property
    def ledger(self) -> tuple[int, int, int]:
        """How many events were stored, refused, and lost before they could be read: together, all it has passed."""
        done = self._cursor.number - self._begun
        return self._stored, self._refused, done - self._stored - self._refused


def sink_names(folder: Path) -> list[str]:
    """The sinks that have a saved offset in a log."""
    return sorted(file.name.removesuffix(_END) for file in folder.glob(f"*{_END}"))


def _saved(file: Path) -> Offset | None:
    """The offset in a file; None if there is no file, or no valid offset in it. What else it says is passed over."""
    with suppress(FileNotFoundError, ValueError, TypeError, LookupError):
        saved = json.loads(file.read_bytes())
        offset = Offset(*(saved[name] for name in Offset._fields))
        if all(type(number) is int and number >= 0 for number in offset):
            return offset
    return None


def _beginning(folder: Path) -> Offset:
    """Where a new reader begins: at number 0 if no sink has read here, even if that file was deleted."""
    others = [offset for file in folder.glob(f"*{_END}") if (offset := _saved(file)) is not None]
    first = 0
    if others:
        first = next(iter(segments(folder)), max(offset.number for offset in others))
    return Offset(first, first, 0, first, 0, 0)
