"""The files of one log. Each is named after the number of its first event, so their order is that of their names."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

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
    """The bytes of a file; 0 if somebody has deleted it."""
    with suppress(FileNotFoundError):
        return segment(folder, first).stat().st_size
    return 0


def delete(folder: Path, first: int) -> None:
    """Delete a file, unless somebody has."""
    segment(folder, first).unlink(missing_ok=True)
