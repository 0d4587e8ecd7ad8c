"""Months of events, and the archived parts of a month as their manifests describe them.

A part is complete when its manifest exists. A month has several parts if events arrived late.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.core.units import SECOND
from headgate.errors import ArchiveError, InvalidRequest, short_repr

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.core.units import Micros

FORMAT: Final = 1
EVENT_COLUMNS: Final = (
    *("at", "sequence", "id", "user_id", "tenant", "api_key", "ip", "tier", "method", "endpoint", "rule", "decision"),
    *("source", "count", "limit", "cost", "status", "retry_after", "latency", "region", "server", "extra"),
)
"""The archived columns of an event, in this order; the names are those of the table."""
_FOLDER: Final = re.compile(r"events/([0-9]{4}-[0-9]{2})/([0-9]{1,9})(?:-([0-9a-f]{8})-[0-9a-f]{8})?")
_MONTH: Final = re.compile(r"([0-9]{4})-(0[1-9]|1[0-2])")
_FILE: Final = re.compile(r"[0-9]{4,9}\.parquet")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_FIRST_YEAR: Final = 1970
_LAST_YEAR: Final = 9998
_MONTHS: Final = 12
_TAG: Final = 8


class Month(NamedTuple):
    """A month, in UTC."""

    year: int
    number: int

    @classmethod
    def of(cls, at: Micros) -> Month:
        """The month of a time."""
        time = datetime.fromtimestamp(at // SECOND, UTC)
        return cls(time.year, time.month)

    @classmethod
    def parse(cls, text: str) -> Month:
        """Parse ``2026-05``; `InvalidRequest` for other texts."""
        found = _MONTH.fullmatch(text) if isinstance(text, str) else None
        if found is None or not _FIRST_YEAR <= int(found[1]) <= _LAST_YEAR:
            msg = f"{short_repr(text)} is not a month; write it as 2026-05"
            raise InvalidRequest(msg)
        return cls(int(found[1]), int(found[2]))

    @property
    def start(self) -> datetime:
        """Its first instant."""
        return datetime(self.year, self.number, 1, tzinfo=UTC)

    @property
    def end(self) -> datetime:
        """The first instant after it."""
        return self.later(1).start

    def later(self, months: int) -> Month:
        """The month this many months later."""
        years, number = divmod(self.number - 1 + months, _MONTHS)
        return Month(self.year + years, number + 1)

    def __str__(self) -> str:
        """``2026-05``."""
        return f"{self.year:04}-{self.number:02}"


class EventMark(NamedTuple):
    """Identifies a set of stored events."""

    number: int
    mark: str


@dataclass(frozen=True, slots=True)
class PartFile:
    """One Parquet file of a part."""

    name: str
    rows: int
    size: int
    """In bytes."""
    sha256: str
    first: datetime
    """The time of its first event."""
    last: datetime


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a month, as in its manifest."""

    month: Month
    number: int
    """Counts from 1."""
    folder: str
    """Its folder in the object store."""
    origin: str
    """The id of its database; empty if the manifest has none."""
    rows: int
    first: datetime
    last: datetime
    digest: str
    """Of all events in order, independent of the file format; see the reference on archives."""
    columns: tuple[tuple[str, str], ...]
    """Names and types."""
    files: tuple[PartFile, ...]
    written_at: datetime
    written_by: str

    @property
    def size(self) -> int:
        """In bytes."""
        return sum(file.size for file in self.files)

    def as_data(self) -> dict[str, Any]:
        """The manifest as JSON data."""
        return {
            "format": FORMAT,
            "month": str(self.month),
            "part": self.number,
            "folder": self.folder,
            "origin": self.origin,
            "rows": self.rows,
            "first": _text(self.first),
            "last": _text(self.last),
            "digest": self.digest,
            "columns": [{"name": name, "type": kind} for name, kind in self.columns],
            "files": [
                {
                    "name": file.name,
                    "rows": file.rows,
                    "bytes": file.size,
                    "sha256": file.sha256,
                    "first": _text(file.first),
                    "last": _text(file.last),
                }
                for file in self.files
            ],
            "written_at": _text(self.written_at),
            "written_by": self.written_by,
        }


class PartFolder(NamedTuple):
    """What the name of a folder says about its part, complete or not."""

    month: str
    number: int
    tag: str
    """The first digits of the part's origin; empty if the name has none."""

    @classmethod
    def parse(cls, folder: str) -> PartFolder | None:
        """Parse a name; None if it is not that of a part."""
        found = _FOLDER.fullmatch(folder)
        return None if found is None else cls(found[1], int(found[2]), found[3] or "")

    def may_be_of(self, origin: str) -> bool:
        """Whether a database with this origin may have written it."""
        return self.tag in {"", origin[:_TAG]}


def part_folder(month: Month, number: int, origin: str, random: str) -> str:
    """The folder of a new part. `random`, 8 hexadecimal digits, makes it unique."""
    return f"events/{month}/{number}-{origin[:_TAG]}-{random}"


def part_of(data: object, folder: str) -> Part:
    """Parse a manifest that was found in a folder; `ArchiveError` if it is malformed, or of another part."""
    try:
        if not isinstance(data, dict) or data["format"] != FORMAT:
            msg = f"it is not of format {FORMAT}; install the headgate version that wrote it, or a newer one"
            raise ArchiveError(msg)  # noqa: TRY301 (one message for all problems)
        part = _read(data)
        name = PartFolder.parse(folder)
        if part.folder != folder or name is None or name[:2] != (str(part.month), part.number):
            msg = f"it is the manifest of {part.folder}"
            raise ArchiveError(msg)  # noqa: TRY301 (as above)
        if sum(file.rows for file in part.files) != part.rows or not part.files:
            msg = "the rows of its files do not add up"
            raise ArchiveError(msg)  # noqa: TRY301 (as above)
    except (ArchiveError, InvalidRequest, LookupError, TypeError, ValueError) as error:
        reason = error if isinstance(error, ArchiveError) else "headgate did not write it"
        msg = f"{folder}/manifest.json cannot be used: {reason}"
        raise ArchiveError(msg) from error
    return part


def _read(data: Mapping[str, Any]) -> Part:
    return Part(
        month=Month.parse(data["month"]),
        number=_whole(data["part"]),
        folder=str(data.get("folder", f"events/{data['month']}/{data['part']}")),
        origin=str(data.get("origin", "")),
        rows=_whole(data["rows"]),
        first=_time(data["first"]),
        last=_time(data["last"]),
        digest=_matching(_DIGEST, data["digest"]),
        columns=tuple((str(column["name"]), str(column["type"])) for column in data["columns"]),
        files=tuple(
            PartFile(
                name=_matching(_FILE, file["name"]),
                rows=_whole(file["rows"]),
                size=_whole(file["bytes"]),
                sha256=_matching(_DIGEST, file["sha256"]),
                first=_time(file["first"]),
                last=_time(file["last"]),
            )
            for file in data["files"]
        ),
        written_at=_time(data["written_at"]),
        written_by=str(data["written_by"]),
    )


def _whole(value: object) -> int:
    if type(value) is int and value > 0:
        return value
    raise TypeError


def _matching(form: re.Pattern[str], value: str) -> str:
    """A text of a known form: names come from outside and must not lead to other files."""
    if form.fullmatch(value):
        return value
    raise ValueError


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def _text(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
