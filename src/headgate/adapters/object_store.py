"""Object stores for files that are kept for years: a folder, or a prefix in an S3 bucket.

Names are relative, with slashes: ``events/2026-05/1/manifest.json``. A file exists whole or not at all, whatever
happens while it is written. All methods block, and raise `ArchiveError` and nothing else.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from urllib.parse import urlsplit

from headgate.adapters.private_files import make_private_folder, open_private
from headgate.errors import ArchiveError, InvalidSettings, short_repr

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.=-]*(/[A-Za-z0-9_-][A-Za-z0-9_.=-]*)*")
_UNFINISHED: Final = ".unfinished"
_CHUNK: Final = 2**20


class Written(NamedTuple):
    """A file that was written."""

    size: int
    sha256: str
    """In hexadecimal digits."""


class ObjectStore(Protocol):
    """A store of named files."""

    url: str
    """Its address, for messages."""

    def write(self, name: str, content: bytes | Iterable[bytes]) -> Written:
        """Write a file; it replaces one of the same name."""

    def read(self, name: str) -> bytes:
        """The content of a small file."""

    def open_input(self, name: str) -> IO[bytes]:
        """A file to read and seek in. Reading may raise `OSError`; close it."""

    def names(self, prefix: str = "") -> list[str]:
        """The names of all files below a folder, sorted, without unfinished ones."""

    def size(self, name: str) -> int:
        """The size of a file in bytes."""

    def delete(self, name: str) -> None:
        """Delete a file, if it exists."""

    def tidy(self, prefix: str, is_own: Callable[[str], bool]) -> None:
        """Delete unfinished files below a folder whose names are ours, left by killed processes."""

    def arrow(self, name: str) -> tuple[Any, str]:
        """The pyarrow file system of a file, and its path there."""


def open_object_store(url: str, s3_endpoint: str | None = None) -> ObjectStore:
    """The object store at ``s3://bucket/folder``, or in a folder, which the first write creates."""
    if not url.startswith("s3:"):
        if "://" in url:
            msg = f"{short_repr(url.partition('://')[0])} is not supported for archives; write a folder, or s3://bucket/folder"
            raise InvalidSettings(msg)
        return FolderObjectStore(Path(url))
    try:
        from headgate.adapters.s3_object_store import S3ObjectStore  # noqa: PLC0415 (an extra)
    except ModuleNotFoundError as error:
        msg = "archives in S3 need pyarrow, which is not installed: pip install 'headgate[archive]'"
        raise InvalidSettings(msg) from error
    parts = urlsplit(url)
    prefix = parts.path.strip("/")
    # The URL is not repeated in the message: it may hold a key.
    if "@" in parts.netloc or ":" in parts.netloc or not parts.netloc or parts.query or parts.fragment:
        msg = "the URL of the bucket is malformed; write s3://bucket/folder, and set credentials as for other AWS tools"
        raise InvalidSettings(msg)
    if prefix and not _NAME.fullmatch(prefix):
        msg = "the folder in a bucket may have letters, digits, '-', '_' and '.', with '/' between its parts"
        raise InvalidSettings(msg)
    return S3ObjectStore(parts.netloc, prefix, s3_endpoint)


def checked(name: str) -> str:
    """The name, if it is safe; `ArchiveError` for one that could lead to another folder."""
    if _NAME.fullmatch(name) and not name.endswith(_UNFINISHED):
        return name
    msg = f"{short_repr(name)} is not the name of a file in an archive"
    raise ArchiveError(msg)


class FolderObjectStore:
    """An `ObjectStore` in a local folder."""

    def __init__(self, folder: Path) -> None:
        """The folder is created by the first write."""
        self._folder = folder
        self.url = str(folder)

    def write(self, name: str, content: bytes | Iterable[bytes]) -> Written:
        """Write a file under a temporary name, sync it to disk, then rename it."""
        path = self._path(name)
        unfinished = path.with_name(path.name + _UNFINISHED)
        hashed, size = sha256(), 0
        with self._translated(name, "written"):
            make_private_folder(path.parent)
            try:
                with open_private(unfinished, "wb") as file:
                    for chunk in (content,) if isinstance(content, bytes) else content:
                        file.write(chunk)
                        hashed.update(chunk)
                        size += len(chunk)
                    file.flush()
                    os.fsync(file.fileno())
                unfinished.replace(path)
            except BaseException:
                with suppress(OSError):
                    unfinished.unlink(missing_ok=True)
                raise
            for folder in (path.parent, *path.parent.parents[: name.count("/")]):
                _sync_folder(folder)
        return Written(size, hashed.hexdigest())

    def read(self, name: str) -> bytes:
        """All of a file."""
        with self._translated(name, "read"):
            return self._path(name).read_bytes()

    def open_input(self, name: str) -> IO[bytes]:
        """A file to read and seek in."""
        with self._translated(name, "read"):
            return self._path(name).open("rb")

    def names(self, prefix: str = "") -> list[str]:
        """The names of all files below a folder."""
        return sorted(name for name in self._below(prefix) if not name.endswith(_UNFINISHED))

    def size(self, name: str) -> int:
        """The size of a file in bytes."""
        with self._translated(name, "read"):
            return self._path(name).stat().st_size

    def delete(self, name: str) -> None:
        """Take a file away, and the folders that are empty then."""
        self._delete(checked(name))

    def tidy(self, prefix: str, is_own: Callable[[str], bool]) -> None:
        """Delete unfinished files of killed processes."""
        for name in self._below(prefix):
            if name.endswith(_UNFINISHED) and is_own(name.removesuffix(_UNFINISHED)):
                self._delete(name)

    def arrow(self, name: str) -> tuple[Any, str]:
        """The file system, and the path."""
        from pyarrow.fs import LocalFileSystem  # noqa: PLC0415 (an extra)

        return LocalFileSystem(), str(self._path(name).absolute())

    def _path(self, name: str) -> Path:
        return self._folder / checked(name)

    def _delete(self, name: str) -> None:
        path = self._folder / name
        with self._translated(name, "deleted"):
            path.unlink(missing_ok=True)
        with suppress(OSError):  # not empty, or missing
            for folder in path.parents[: name.count("/")]:
                folder.rmdir()

    def _below(self, prefix: str) -> list[str]:
        start = self._path(prefix.rstrip("/")) if prefix else self._folder
        with self._translated(prefix or ".", "listed"):
            if not start.is_dir():
                return []
            found = (Path(folder, file) for folder, _, files in os.walk(start, onerror=_raise) for file in files)
            names = [path.relative_to(self._folder).as_posix() for path in found]
        return [name for name in names if _NAME.fullmatch(name)]  # others are not ours

    @contextmanager
    def _translated(self, name: str, done: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            msg = f"{self.url}/{name} cannot be {done}: {error.strerror or error}"
            raise ArchiveError(msg) from error


def chunks_of(file: IO[bytes]) -> Iterator[bytes]:
    """The content of a file in chunks."""
    while chunk := file.read(_CHUNK):
        yield chunk


def _sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a power failure."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _raise(error: OSError) -> None:
    raise error
