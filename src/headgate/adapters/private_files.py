"""Folders and files that only their owner can read: they hold users, addresses, tokens and hashes of keys."""

from __future__ import annotations

import os
from typing import IO, TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from pathlib import Path

_FOLDER: Final = 0o700
_FILE: Final = 0o600
_OTHERS: Final = 0o077


def make_private_folder(folder: Path) -> None:
    """Make a folder, and those above it that are missing, for this user only. One that is there stays as it is."""
    # `mkdir(mode, parents=True)` gives the mode to the last one only.
    for missing in reversed([each for each in folder.parents if not each.exists()]):
        missing.mkdir(_FOLDER, exist_ok=True)
    folder.mkdir(_FOLDER, exist_ok=True)


def open_private(file: Path, mode: Literal["wb", "ab"]) -> IO[bytes]:
    """Open a file for writing; a new one can be read by this user only."""
    return open(file, mode, opener=lambda path, flags: os.open(path, flags, _FILE))


def others_may_read(file: Path) -> int | None:
    """The mode of a file, if another user can read or write it; None if only its owner can."""
    mode = file.stat().st_mode & 0o777
    return mode if mode & _OTHERS else None
