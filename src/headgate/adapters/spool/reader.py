"""A sink's way through one log. Its place is in a small file beside it, so that it goes on there after a restart."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.adapters.spool.cursor import Cursor
from headgate.adapters.spool.segments import segments

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from headgate.adapters.spool.cursor import Found

_END: Final = ".place"


class Place(NamedTuple):
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
        place = _kept(self._file) or _beginning(folder)
        self._begun, self._refused, self._stored = place.begun, place.refused, place.stored
        self._cursor = Cursor(folder, place.number, place.segment, place.offset)

    def find(self, most: int = 1, enough: int = 1) -> list[Found]:
        """The next frames that it has not stored, all of one file; none, if there are none yet.

        So many at most, and no more once they have `enough` events.
        """
        first = self._cursor.find()
        if first is None:
            return []
        found, ahead = [first], self._cursor.copy()
        while len(found) < most and sum(each.head.many for each in found) < enough:
            ahead.move_behind(found[-1])
            following = ahead.find()
            if following is None or ahead.segment != self._cursor.segment:
                break
            found.append(following)
        return found

    def keep(self, found: Sequence[Found], refused: int) -> None:
        """Be done with frames, of whose events the sink can never take so many."""
        self._refused += refused
        self._stored += sum(each.head.many for each in found) - refused
        self.lose(found[-1])

    def lose(self, found: Found) -> None:
        """Go on behind a frame that nobody can read."""
        self._cursor.move_behind(found)
        self.keep_place()

    def keep_place(self) -> None:
        """Write the place down. On a full disk that fails: then what comes after a restart may have come before."""
        new = self._file.with_suffix(".new")
        with suppress(OSError):
            new.write_text(json.dumps(self.place._asdict()), encoding="ascii")
            new.replace(self._file)

    @property
    def place(self) -> Place:
        """Where it is."""
        cursor = self._cursor
        return Place(cursor.number, cursor.segment, cursor.offset, self._begun, self._stored, self._refused)

    @property
    def number(self) -> int:
        """All before this number is done with."""
        return self._cursor.number

    @property
    def account(self) -> tuple[int, int, int]:
        """How many were stored, refused, and lost before they could be read. Together they are all that came by."""
        done = self._cursor.number - self._begun
        return self._stored, self._refused, done - self._stored - self._refused


def places(folder: Path) -> list[str]:
    """The names of all who have a place in a log."""
    return sorted(file.name.removesuffix(_END) for file in folder.glob(f"*{_END}"))


def _kept(file: Path) -> Place | None:
    """The place in a file; None if there is no file, or nothing good in it."""
    with suppress(FileNotFoundError, ValueError, TypeError):
        place = Place(**json.loads(file.read_bytes()))
        if all(type(number) is int and number >= 0 for number in place):
            return place
    return None


def _beginning(folder: Path) -> Place:
    """Where a new reader begins: if nobody has read here, at the very beginning, be it deleted or not."""
    others = [place for file in folder.glob(f"*{_END}") if (place := _kept(file)) is not None]
    first = 0
    if others:
        first = next(iter(segments(folder)), max(place.number for place in others))
    return Place(first, first, 0, first, 0, 0)
