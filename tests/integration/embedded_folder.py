"""What tests of embedded servers ask of a folder."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from headgate.adapters.file_lock import take_lock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def eventually(true: Callable[[], bool]) -> bool:
    """Whether something becomes true within 10 seconds."""
    for _ in range(1_000):
        if true():
            return True
        time.sleep(0.01)  # for another process; nothing tells
    return False


def no_server_runs(folder: Path) -> bool:
    """Whether no server writes in a folder."""
    return is_free(folder / "server.lock")


def is_free(file: Path) -> bool:
    """Whether no process holds a lock."""
    lock = take_lock(file)
    if lock is not None:
        lock.release()
    return lock is not None
