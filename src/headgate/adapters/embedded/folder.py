"""The folder of an embedded server, and the locks in it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote
from weakref import WeakSet

from headgate.errors import InvalidSettings

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from urllib.parse import SplitResult


def named_folder(address: SplitResult, data_dir: Path, name: str) -> Path:
    """The folder that ``embedded:///path/to/folder`` names; ``embedded://`` means `name` in the data directory."""
    path = unquote(address.path)
    if address.netloc or address.query or address.fragment or "\0" in path or path[:1] not in {"", "/"}:
        # It is not repeated: what stands before a host may be a password.
        msg = "embedded:// names a folder or nothing; write embedded:// or embedded:///path/to/folder"
        raise InvalidSettings(msg)
    return Path(path) if path.strip("/") else data_dir / name


class Lock:
    """A locked file. The system lets go of it for a process that dies."""

    def __init__(self, descriptor: int) -> None:
        """`descriptor` is locked. A program that inherits it holds the lock too."""
        self._descriptor: int | None = descriptor
        _locks.add(self)

    @property
    def descriptor(self) -> int | None:
        """What holds the lock; None if it was let go."""
        return self._descriptor

    def release(self) -> None:
        """Let go, unless that was done."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


_locks: Final[WeakSet[Lock]] = WeakSet()


def _let_go_of_copies() -> None:
    """In a process that was forked: the lock is its parent's, and must not outlive it."""
    for lock in list(_locks):
        lock.release()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_let_go_of_copies)


def take_lock(file: Path) -> Lock | None:
    """Lock a file, or return None if somebody else has it, be it within this process."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return Lock(descriptor)
