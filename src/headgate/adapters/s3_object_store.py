"""Files in S3, by pyarrow. Keys, profiles and regions are configured as for other AWS tools."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from hashlib import sha256
from typing import IO, TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow import fs

from headgate.adapters.object_store import Written, checked, chunks_of
from headgate.errors import ArchiveError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_SECONDS_TO_CONNECT: Final = 10
_SECONDS_FOR_A_REQUEST: Final = 60
_IN_MEMORY: Final = 2**23


class S3ObjectStore:
    """An `ObjectStore` below a prefix of an S3 bucket."""

    def __init__(self, bucket: str, prefix: str, endpoint: str | None) -> None:
        """`endpoint` is the URL of a service other than Amazon's. No connection is made yet."""
        self.url = f"s3://{bucket}/{prefix}".rstrip("/")
        self._bucket = bucket
        self._root = f"{bucket}/{prefix}".rstrip("/")
        self._endpoint = endpoint
        self._opened: fs.S3FileSystem | None = None

    def write(self, name: str, content: bytes | Iterable[bytes]) -> Written:
        """Write a file. It is collected first: a failure during an upload would leave a partial file."""
        path = self._path(name)
        with tempfile.SpooledTemporaryFile(_IN_MEMORY) as spool:
            hashed, size = sha256(), 0
            try:
                for chunk in (content,) if isinstance(content, bytes) else content:
                    spool.write(chunk)
                    hashed.update(chunk)
                    size += len(chunk)
                spool.seek(0)
            except OSError as error:
                reason = error.strerror or error
                msg = f"{self.url}/{name} not uploaded, no temporary file: {reason}; set TMPDIR to a folder with space"
                raise ArchiveError(msg) from error
            with self._translated(name, "written"), self._files.open_output_stream(path, compression=None) as sink:
                for chunk in chunks_of(spool):
                    sink.write(chunk)
        return Written(size, hashed.hexdigest())

    def read(self, name: str) -> bytes:
        """The content of a file."""
        with self._translated(name, "read"), self._files.open_input_file(self._path(name)) as file:
            return bytes(file.read())

    def open_input(self, name: str) -> IO[bytes]:
        """A file to read and seek in."""
        with self._translated(name, "read"):
            return self._files.open_input_file(self._path(name))  # type: ignore[return-value] # it reads and seeks

    def names(self, prefix: str = "") -> list[str]:
        """The names of all files below a folder."""
        start = self._path(prefix.rstrip("/")) if prefix else self._root
        with self._translated(prefix or ".", "listed"):
            found = self._files.get_file_info(fs.FileSelector(start, allow_not_found=True, recursive=True))
        before = len(self._root) + 1
        return sorted(each.path[before:] for each in found if each.type == fs.FileType.File)

    def size(self, name: str) -> int:
        """The size of a file in bytes."""
        with self._translated(name, "read"):
            info = self._files.get_file_info(self._path(name))
            if info.type != fs.FileType.File:
                raise FileNotFoundError("there is no such file")  # noqa: EM101, TRY003 (translated in the line above)
            return int(info.size)

    def delete(self, name: str) -> None:
        """Delete a file, if it exists."""
        path = self._path(name)
        with self._translated(name, "deleted"):
            if self._files.get_file_info(path).type == fs.FileType.File:
                self._files.delete_file(path)

    def tidy(self, prefix: str, is_own: Callable[[str], bool]) -> None:
        """Do nothing: an unfinished upload is not a file."""

    def arrow(self, name: str) -> tuple[Any, str]:
        """The file system, and the path."""
        with self._translated(name, "read"):
            return self._files, self._path(name)

    @property
    def _files(self) -> fs.S3FileSystem:
        if self._opened is None:
            named: dict[str, Any] = {}
            if self._endpoint is None:
                named["region"] = fs.resolve_s3_region(self._bucket)
            else:
                scheme, _, rest = self._endpoint.partition("://")
                named |= {"endpoint_override": rest, "scheme": scheme}
            self._opened = fs.S3FileSystem(
                connect_timeout=_SECONDS_TO_CONNECT, request_timeout=_SECONDS_FOR_A_REQUEST, **named
            )
        return self._opened

    def _path(self, name: str) -> str:
        return f"{self._root}/{checked(name)}"

    @contextmanager
    def _translated(self, name: str, done: str) -> Iterator[None]:
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            reason = getattr(error, "strerror", None) or str(error)
            msg = f"{self.url}/{name} cannot be {done}: {reason.partition(chr(10))[0]}"
            raise ArchiveError(msg) from error
