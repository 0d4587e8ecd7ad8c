"""Locks on files, by which processes know which of them owns a folder."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from pathlib import Path


class Lock:
    """A locked file. The system releases it when the process dies."""

    def __init__(self, descriptor: int) -> None:
        """`descriptor` is locked. A child process that inherits it holds the lock too."""
        self._descriptor: int | None = descriptor
        _locks.add(self)

    @property
    def descriptor(self) -> int | None:
        """The descriptor that holds the lock; None after `release`."""
        return self._descriptor

    def release(self) -> None:
        """Release the lock; a second call does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


_locks: Final[WeakSet[Lock]] = WeakSet()


def _release_copies() -> None:
    """In a forked child: the lock belongs to the parent and must not outlive it."""
    for lock in list(_locks):
        lock.release()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_release_copies)


def take_lock(file: Path) -> Lock | None:
    """Lock a file; None if it is locked already, by another process or within this one."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return Lock(descriptor)
