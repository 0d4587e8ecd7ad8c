"""The folder of a process in the spool, and the lock by which others know that it lives."""

from __future__ import annotations

import logging
import os
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from headgate.adapters.file_lock import take_lock
from headgate.adapters.private_files import make_private_folder
from headgate.core.ids import new_id

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from headgate.adapters.file_lock import Lock

log = logging.getLogger("headgate")

_LOCK: Final = "lock"
_SHIPPING: Final = "shipping.lock"
_PRIVATE: Final = 0o700


class SpoolFolder:
    """A folder of this process's own, below the spool's, with a folder for each stream."""

    def __init__(self, root: Path, streams: Sequence[str], name: str) -> None:
        """Make it; `OSError` if that fails. Other processes see it only once it is locked."""
        make_private_folder(root)
        unseen = root / f".{name}"
        unseen.mkdir(_PRIVATE)
        try:
            for stream in streams:
                (unseen / stream).mkdir(_PRIVATE)
            lock = take_lock(unseen / _LOCK)
            assert lock is not None  # noqa: S101 (no other process knows of it)
            self._lock = lock
            self.path = unseen.rename(root / name)
        except BaseException:
            shutil.rmtree(unseen, ignore_errors=True)
            raise

    @property
    def is_there(self) -> bool:
        """Whether it has not been deleted."""
        return self._lock.descriptor is not None and os.fstat(self._lock.descriptor).st_nlink > 0

    def close(self) -> None:
        """Release the lock: nothing more is written."""
        self._lock.release()


def new_name() -> str:
    """For the folder of this process."""
    return f"{os.getpid()}-{new_id()[:12]}"


def folders(root: Path) -> list[Path]:
    """The folders of all processes, living and dead."""
    with suppress(FileNotFoundError, NotADirectoryError):
        return sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    return []


def is_written_to(folder: Path) -> bool:
    """Whether the process that a folder belongs to is alive. Once it is not, it never will be again."""
    try:
        lock = take_lock(folder / _LOCK)
    except FileNotFoundError:
        return False
    if lock is None:
        return True
    lock.release()
    return False


def remove_stream(folder: Path, stream: str) -> None:
    """Remove what is left of a stream and, after the last one, the folder."""
    shutil.rmtree(folder / stream, ignore_errors=True)
    with suppress(OSError):
        if [path.name for path in folder.iterdir()] == [_LOCK]:
            shutil.rmtree(folder, ignore_errors=True)


def shipping_lock(root: Path) -> Lock | None:
    """The lock of the one process that exports; None if another has it. `OSError` if the lock cannot be tried."""
    make_private_folder(root)
    return take_lock(root / _SHIPPING)


def forgotten_spools(root: Path) -> list[tuple[Path, int]]:
    """The spools beside this one that are not empty and that no process exports now, with their bytes."""
    found = []
    for other in folders(root.parent):
        with suppress(OSError):
            size = sum(file.stat().st_size for file in other.rglob("*.log"))
            if other != root and size and not _is_shipped(other):
                found.append((other, size))
    return found


def _is_shipped(root: Path) -> bool:
    """Whether a process exports it."""
    if not (root / _SHIPPING).exists():
        return False
    lock = take_lock(root / _SHIPPING)
    if lock is not None:
        lock.release()
    return lock is None


def warn_of_forgotten(root: Path) -> None:
    """Log what waits in other spools for sinks that are not configured now."""
    for spool, size in forgotten_spools(root):
        log.warning(
            "spool %s: %d bytes wait for a sink that is not configured; configure it, or delete the folder", spool, size
        )
