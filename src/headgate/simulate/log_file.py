"""A log file as requests: its format is detected, compressed or not, and nearly sorted lines are sorted."""

from __future__ import annotations

import gzip
import zlib
from operator import attrgetter, itemgetter
from typing import IO, TYPE_CHECKING, Final, Protocol

from headgate.errors import InvalidRequest, InvalidSettings, short_repr
from headgate.simulate.log_lines import AccessLog, JsonLog
from headgate.simulate.traffic import Skipped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from headgate.simulate.traffic import LoggedRequest

MAX_LINE: Final = 65_536
_PAGE: Final = 10_000
_GZIP: Final = b"\x1f\x8b"


class _Format(Protocol):
    def request(self, line: str) -> LoggedRequest:
        """The request of a line; `ValueError` if it is malformed."""


class LogFile:
    """The requests of a file, a page at a time."""

    def __init__(self, path: Path, fields: Mapping[str, str] | None = None) -> None:
        """`fields` maps fields to JSON names; see `JsonLog`."""
        self._path = path
        self._fields = fields
        self.share = 0.0
        """The share of the file that was read."""
        self.skipped = Skipped()
        self.has_whole_seconds = False
        self.decided: int | None = None

    def pages(self) -> Iterator[list[LoggedRequest]]:
        """All requests, by time."""
        return in_order(self._read())

    def _read(self) -> Iterator[list[LoggedRequest]]:
        page: list[LoggedRequest] = []
        try:
            size = max(1, self._path.stat().st_size)
            with self._path.open("rb") as raw:
                is_packed = raw.read(2) == _GZIP
                raw.seek(0)
                # Closed with the file that it reads.
                lines = _lines(gzip.GzipFile(fileobj=raw) if is_packed else raw)
                form: _Format | None = None
                for number, line in enumerate(lines, start=1):
                    if not line.strip():
                        continue
                    if form is None:
                        form = self._form(line)
                    self._add(form, number, line, page)
                    if len(page) >= _PAGE:
                        self.share = min(1.0, raw.tell() / size)
                        yield page
                        page = []
        except OSError as error:
            if error.errno is not None:
                msg = f"{short_repr(str(self._path))} cannot be read: {error.strerror}"
                raise InvalidSettings(msg) from error
            self.skipped.add(f"the file is damaged: {error}")
        except (EOFError, zlib.error) as error:
            self.skipped.add(f"the file ends too early or is damaged: {error}")
        self.share = 1.0
        yield page

    def _form(self, line: bytes) -> _Format:
        if line.lstrip().startswith(b"{"):
            return JsonLog(self._fields)
        self.has_whole_seconds = True
        return AccessLog()

    def _add(self, form: _Format, number: int, line: bytes, page: list[LoggedRequest]) -> None:
        if len(line) >= MAX_LINE:
            self.skipped.add(f"line {number} is longer than {MAX_LINE} bytes")
            return
        text = line.decode(errors="replace").strip()
        try:
            page.append(form.request(text))
        except (ValueError, OverflowError, InvalidRequest) as error:
            self.skipped.add(f"line {number}: {error}: {short_repr(text)}")


def _lines(file: IO[bytes] | gzip.GzipFile) -> Iterator[bytes]:
    """The lines, cut at `MAX_LINE`: a file without line ends would fill the memory."""
    while line := file.readline(MAX_LINE):
        yield line
        while len(line) == MAX_LINE and not line.endswith(b"\n"):
            line = file.readline(MAX_LINE)


WINDOW: Final = 20_000
"""A request may be this many lines behind its sorted position. One that is further behind is late."""


def in_order(pages: Iterable[list[LoggedRequest]], window: int = WINDOW) -> Iterator[list[LoggedRequest]]:
    """The same requests sorted by time, except those further than `window` from their position."""
    held: list[LoggedRequest] = []
    for page in pages:
        held += page
        if len(held) >= 2 * window:
            _sort(held)
            yield held[:window]
            del held[:window]
        else:
            yield []  # lets the caller report progress
    _sort(held)
    for start in range(0, len(held), _PAGE):
        yield held[start : start + _PAGE]


def _sort(requests: list[LoggedRequest]) -> None:
    # Without recorded outcomes the time alone is the key: a third of the sorting time.
    requests.sort(key=itemgetter(0) if all(logged[2] is None for logged in requests) else attrgetter("order"))
