"""One service for each data directory: who is there keeps a lock, and says in its file who it is."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from headgate.adapters.file_lock import take_lock
from headgate.adapters.private_files import make_private_folder
from headgate.errors import HeadgateError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_ELSEWHERE: Final = "set HEADGATE_DATA_DIR to another folder"
_MAX_BYTES: Final = 500


@contextmanager
def claimed(data_dir: Path, parts: Sequence[str], who: str) -> Iterator[None]:
    """Keep other services from these parts of a data directory inside the block; `HeadgateError` if one is there.

    `who` is what another service is told of this one. The lock ends with the process, however that ends.
    """
    locks = []
    try:
        for part in parts:
            file = _lock_file(data_dir, part)
            try:
                make_private_folder(data_dir)
                lock = take_lock(file)
            except OSError as error:
                msg = f"the data directory {data_dir} cannot be used: {error.strerror or error}; {_ELSEWHERE}"
                raise HeadgateError(msg) from error
            if lock is None:
                msg = f"another service uses the data directory {data_dir}{_named(file)}; stop it, or {_ELSEWHERE}"
                raise HeadgateError(msg)
            locks.append(lock)
            assert lock.descriptor is not None  # noqa: S101 (it was just taken)
            os.truncate(lock.descriptor, 0)
            os.write(lock.descriptor, who.encode()[:_MAX_BYTES])
        yield
    finally:
        for lock in locks:
            lock.release()


def claimant(data_dir: Path, part: str) -> str:
    """What the last service with this part of a data directory said of itself, or nothing."""
    return _said(_lock_file(data_dir, part))


def _lock_file(data_dir: Path, part: str) -> Path:
    return data_dir / f"serve-{part}.lock"


def _said(file: Path) -> str:
    with suppress(OSError, UnicodeDecodeError):
        said = file.read_text(encoding="utf-8").strip()
        return said if said.isprintable() else ""
    return ""


def _named(file: Path) -> str:
    """What the other service says of itself; nothing if it has not said it yet."""
    said = _said(file)
    return f" ({said})" if said else ""
