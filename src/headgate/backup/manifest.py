"""The manifest of a backup: what is in it, of which version, and the checksum of each file.

It is written last: files without a manifest are not a backup. A manifest that is not consistent is rejected.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any, Final

from headgate.errors import ArchiveError, short_repr

FORMAT: Final = 1
NAME: Final = "manifest.json"
MAX_SIZE: Final = 2**20
COUNTERS: Final = "counters"
EVENTS: Final = "events"
_BACKUP: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_IDENTIFIER: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class File:
    """One file of a backup: a table, or the counters."""

    holds: str
    """The name of the table, or ``counters``."""
    columns: tuple[str, ...]
    """Of the table, in the order of the file."""
    count: int
    """The number of rows or counters."""
    size: int
    """In bytes, compressed."""
    text: int
    """In bytes, decompressed."""
    sha256: str

    @property
    def name(self) -> str:
        """Its name in the folder of the backup. It is computed, so a manifest cannot name another file."""
        return f"{self.holds}.{'dump' if self.holds == COUNTERS else 'copy'}.gz"


@dataclass(frozen=True, slots=True)
class Manifest:
    """The description of a backup."""

    name: str
    at: str
    """The time of its data, in ISO 8601."""
    headgate: str
    """The version that made it."""
    postgres: str
    schema: int
    """The number of the newest migration."""
    lineage: str
    origin: str
    """The id of its database; a restore keeps it."""
    change: int
    """The number of the newest change."""
    events: tuple[str, str] | None
    """The times of the first and the last event."""
    files: tuple[File, ...]

    @property
    def size(self) -> int:
        """Of all files, in bytes."""
        return sum(file.size for file in self.files)

    @property
    def tables(self) -> tuple[File, ...]:
        """The files with tables."""
        return tuple(file for file in self.files if file.holds != COUNTERS)

    @property
    def counters(self) -> File | None:
        """The file with the counters, if there is one."""
        return next((file for file in self.files if file.holds == COUNTERS), None)


def folder_of(name: str) -> str:
    """The folder of a backup; raises `ArchiveError` for an impossible name."""
    if _BACKUP.fullmatch(name):
        return f"backups/{name}"
    msg = f"{short_repr(name)} is not the name of a backup; 'headgate backup list' lists them"
    raise ArchiveError(msg)


def encode(manifest: Manifest) -> bytes:
    """A manifest as a JSON file."""
    content = {"format": FORMAT, **asdict(manifest)}
    return json.dumps({**content, "sha256": _digest(content)}, indent=2).encode() + b"\n"


def parse(name: str, data: bytes) -> Manifest:
    """Parse the manifest of the named backup; `ArchiveError` says what is wrong with it."""
    try:
        content = json.loads(data)
        number = content.pop("format")
        digest = content.pop("sha256", None)
    except (ValueError, RecursionError, AttributeError, KeyError, TypeError) as error:
        raise _refused(name, "is not the manifest of a backup") from error
    if isinstance(number, int) and number > FORMAT:
        by = short_repr(content.get("headgate"))
        raise _refused(name, f"has format {number}, and this headgate reads format {FORMAT}; install {by} or newer")
    if number != FORMAT:
        raise _refused(name, "has an unknown format")
    if digest != _digest({"format": number, **content}):
        raise _refused(name, "is damaged: its checksum differs")
    try:
        manifest = _manifest(content)
    except (ValueError, KeyError, TypeError) as error:
        raise _refused(name, f"has an unexpected field or value ({type(error).__name__})") from error
    if manifest.name != name:
        raise _refused(name, f"is that of {short_repr(manifest.name)}")
    return manifest


def _manifest(content: dict[str, Any]) -> Manifest:
    files = tuple(_file(**each) for each in content.pop("files"))
    if len({file.holds for file in files}) < len(files):
        msg = "duplicate file"
        raise ValueError(msg)
    events = content.pop("events")
    manifest = Manifest(
        name=_text(content.pop("name")),
        at=_text(content.pop("at")),
        headgate=_text(content.pop("headgate")),
        postgres=_text(content.pop("postgres")),
        schema=_whole(content.pop("schema")),
        lineage=_text(content.pop("lineage")),
        origin=_text(content.pop("origin", "")),
        change=_whole(content.pop("change")),
        events=None if events is None else (_moment(events[0]), _moment(events[1])),
        files=files,
    )
    if content:
        raise ValueError(min(content))
    return manifest


def _file(holds: str, columns: list[str], sha256: str, **numbers: int) -> File:
    if (
        not _IDENTIFIER.fullmatch(holds)
        or not all(map(_IDENTIFIER.fullmatch, columns))
        or not _DIGEST.fullmatch(sha256)
    ):
        raise ValueError(holds)
    return File(holds, tuple(columns), sha256=sha256, **{name: _whole(number) for name, number in numbers.items()})


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    raise TypeError(value)


def _moment(value: object) -> str:
    datetime.fromisoformat(_text(value))
    return _text(value)


def _whole(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise TypeError(value)


def _digest(content: dict[str, Any]) -> str:
    """Of the content of a manifest, independent of white space."""
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _refused(name: str, why: str) -> ArchiveError:
    return ArchiveError(f"the backup {name} cannot be used: its manifest {why}")
