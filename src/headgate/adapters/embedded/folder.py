"""The folder of an embedded server, and the locks in it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from headgate.errors import InvalidSettings

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from urllib.parse import SplitResult

_IN_DATA_DIR: Final = "valkey"


def named_folder(address: SplitResult, data_dir: Path) -> Path:
    """The folder that ``embedded:///path/to/folder`` names; ``embedded://`` means one in the data directory."""
    path = unquote(address.path)
    if address.netloc or address.query or address.fragment or "\0" in path or path[:1] not in {"", "/"}:
        # It is not repeated: what stands before a host may be a password.
        msg = "embedded:// names a folder or nothing; write embedded:// or embedded:///path/to/folder"
        raise InvalidSettings(msg)
    return Path(path) if path.strip("/") else data_dir / _IN_DATA_DIR


def take_lock(file: Path) -> int | None:
    """Lock a file and return its descriptor, or None if somebody else has it. Closing the last copy lets go.

    The system lets go for a process that dies. Two descriptors exclude each other also within one process.
    """
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
