"""Lines of an access log, in the common or the combined format that nginx and Apache write.

203.0.113.9 - u_42 [31/Jan/2026:12:00:00 +0000] "GET /search?q=a HTTP/1.1" 200 512 "-" "curl/8.5"
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import Final
from urllib.parse import urlsplit

from headgate.core.request import Request
from headgate.core.units import SECOND, Micros
from headgate.simulate.traffic import Call

# A user's name may have blanks; the time, which is written in one way only, tells where it ends.
_LINE: Final = re.compile(
    r"(?P<ip>\S+) \S+ (?P<user>.*?) \[(?P<time>\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4})\] "
    r'"(?P<method>[A-Za-z_-]{1,32}) (?P<target>[^"\\\s]*(?:\\.[^"\\\s]*)*) HTTP/[0-9.]{1,5}" \d{3}(?: |$)',
    re.ASCII,
)
_MONTHS: Final = {
    name: number
    for number, name in enumerate(
        ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"), start=1
    )
}
_ESCAPED: Final = re.compile(rb'\\(?:x([0-9A-Fa-f]{2})|(["\\]))')
_NOBODY: Final = frozenset({"-", "", '""'})
_MOST_REMEMBERED: Final = 1_000


class AccessLog:
    """Reads lines; `ValueError` for one that is none."""

    def __init__(self) -> None:
        """Times are worked out once for all lines that have the same."""
        self._times: dict[str, Micros] = {}

    def call(self, line: str) -> Call:
        """The call that a line tells of."""
        found = _LINE.match(line)
        if found is None:
            msg = "it is no line of the common or combined log format"
            raise ValueError(msg)
        ip, user, time, method, target = found.groups()
        at = self._times.get(time) or self._at(time)
        return Call(
            at,
            Request(
                user=None if user in _NOBODY else user,
                ip=None if ip == "-" else ip,
                method=method,
                path=path_of(target),
            ),
        )

    def _at(self, time: str) -> Micros:
        """``31/Jan/2026:12:00:00 +0000``."""
        month = _MONTHS.get(time[3:6])
        if month is None:
            msg = f"{time[3:6]} is no month"
            raise ValueError(msg)
        offset = timedelta(hours=int(time[21:24]), minutes=int(time[21] + time[24:26]))
        clock = (int(time[12:14]), int(time[15:17]), min(int(time[18:20]), 59))  # leap seconds are written as 60
        moment = datetime(int(time[7:11]), month, int(time[0:2]), *clock, tzinfo=timezone(offset))
        at = int(moment.timestamp()) * SECOND
        if at <= 0:
            msg = "its time lies before 1970"
            raise ValueError(msg)
        if len(self._times) >= _MOST_REMEMBERED:
            self._times.clear()
        self._times[time] = at
        return at


def path_of(target: str) -> str:
    """The path that was asked for: without the query, without what an absolute address has before it."""
    if "\\" in target:
        target = _ESCAPED.sub(_unescaped, target.encode()).decode(errors="replace")
    if not target.startswith("/"):
        return urlsplit(target).path or "/"
    end = target.find("?")
    return target if end < 0 else target[:end]


def _unescaped(found: re.Match[bytes]) -> bytes:
    """Servers write a quotation mark as a backslash, ``x22``."""
    return bytes([int(found[1], 16)]) if found[1] else found[2]
