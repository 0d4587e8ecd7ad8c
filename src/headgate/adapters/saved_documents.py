"""The last good documents in a folder: written beside, forced to the disk, then renamed; never half there.

A file is one line of JSON that says what it is, and the document's body after it.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

from headgate.adapters.private_files import make_private_folder
from headgate.errors import InvalidFields, Problem
from headgate.ports import Document

log = logging.getLogger("headgate")

_MAX_HEADER_BYTES: Final = 1_000
_MAX_BODY_BYTES: Final = 256 * 1024 * 1024


class SavedDocuments:
    """See `headgate.ports.SavedDocuments`."""

    def __init__(self, folder: Path) -> None:
        """The folder is made when something is first kept."""
        self._folder = folder
        self._is_known_to_fail = False

    def has(self, kind: str) -> bool:
        """Whether a document was kept, be it whole or not."""
        return self._file(kind).is_file()

    def read(self, kind: str) -> Document | None:
        """The document that was kept last, or `InvalidFields` if what is there is not whole."""
        file = self._file(kind)
        try:
            with file.open("rb") as reading:
                number, lineage, digest = _header(reading)
                document = Document(kind, number, reading.read(_MAX_BODY_BYTES), digest, lineage)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _refused(file, f"cannot be read: {error.strerror}") from error
        except (ValueError, RecursionError) as error:
            raise _refused(file, "has no header of a saved document") from error
        if not document.is_intact:
            raise _refused(file, "is incomplete or was modified: its digest differs")
        return document

    def write(self, document: Document) -> None:
        """Keep a document; processes that share the folder keep each one once."""
        file = self._file(document.kind)
        with suppress(InvalidFields):
            there = self.read(document.kind)
            if there is not None and there.lineage == document.lineage and there.number >= document.number:
                return  # another process may have been faster
        try:
            make_private_folder(self._folder)
            _replace(file, document)
        except OSError as error:
            if not self._is_known_to_fail:
                log.warning("documents cannot be saved in %s: %s", self._folder, error.strerror)
            self._is_known_to_fail = True
        else:
            self._is_known_to_fail = False

    def _file(self, kind: str) -> Path:
        return self._folder / f"{kind}.document"


def _header(reading: BinaryIO) -> tuple[int, str, bytes]:
    """Number, lineage and digest, from the first line; `ValueError` if that is something else."""
    match json.loads(reading.readline(_MAX_HEADER_BYTES)):
        case {"number": int() as number, "lineage": str() as lineage, "digest": str() as digest}:
            return number, lineage, bytes.fromhex(digest)
    msg = "no header"
    raise ValueError(msg)


def _replace(file: Path, document: Document) -> None:
    header = {"number": document.number, "lineage": document.lineage, "digest": document.digest.hex()}
    descriptor, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    try:
        with os.fdopen(descriptor, "wb") as writing:
            writing.write(json.dumps(header).encode() + b"\n" + document.body)
            writing.flush()
            os.fsync(writing.fileno())
        Path(name).replace(file)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # or a power cut may undo the renaming
    finally:
        os.close(folder)


def _refused(file: Path, why: str) -> InvalidFields:
    return InvalidFields([Problem(("digest",), f"the saved document {file} {why}")])
