"""A log file: its lines as calls, whatever of the known formats they are in, compressed or not."""

from __future__ import annotations

import gzip
import zlib
from typing import IO, TYPE_CHECKING, Final, Protocol

from headgate.errors import InvalidRequest, InvalidSettings, shown
from headgate.simulate.access_log import AccessLog
from headgate.simulate.json_log import JsonLines
from headgate.simulate.ordering import in_order
from headgate.simulate.traffic import Skipped

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from headgate.simulate.traffic import Call

LONGEST_LINE: Final = 65_536
_PAGE: Final = 10_000
_GZIP: Final = b"\x1f\x8b"


class _Format(Protocol):
    def call(self, line: str) -> Call:
        """The call that a line tells of; `ValueError` if it tells of none."""


class LogFile:
    """The calls in a file, a page at a time."""

    def __init__(self, path: Path, fields: Mapping[str, str] | None = None) -> None:
        """`fields` says where JSON lines have something; see `JsonLines`."""
        self._path = path
        self._fields = fields
        self.share = 0.0
        """How much of the file was read."""
        self.skipped = Skipped()
        self.has_whole_seconds = False

    def pages(self) -> Iterator[list[Call]]:
        """All calls, in the order of their times."""
        return in_order(self._read())

    def _read(self) -> Iterator[list[Call]]:
        page: list[Call] = []
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
                msg = f"{shown(str(self._path))} cannot be read: {error.strerror}"
                raise InvalidSettings(msg) from error
            self.skipped.add(f"the file is damaged: {error}")
        except (EOFError, zlib.error) as error:
            self.skipped.add(f"the file ends too early or is damaged: {error}")
        self.share = 1.0
        yield page

    def _form(self, line: bytes) -> _Format:
        if line.lstrip().startswith(b"{"):
            return JsonLines(self._fields)
        self.has_whole_seconds = True
        return AccessLog()

    def _add(self, form: _Format, number: int, line: bytes, page: list[Call]) -> None:
        if len(line) >= LONGEST_LINE:
            self.skipped.add(f"line {number} is longer than {LONGEST_LINE} bytes")
            return
        text = line.decode(errors="replace").strip()
        try:
            page.append(form.call(text))
        except (ValueError, OverflowError, InvalidRequest) as error:
            self.skipped.add(f"line {number}: {error}: {shown(text)}")


def _lines(file: IO[bytes] | gzip.GzipFile) -> Iterator[bytes]:
    """The lines, of each at most the beginning: a file without any end of line would fill the memory."""
    while line := file.readline(LONGEST_LINE):
        yield line
        while len(line) == LONGEST_LINE and not line.endswith(b"\n"):
            line = file.readline(LONGEST_LINE)
