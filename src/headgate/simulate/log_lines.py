"""Lines of logs as requests: access logs of nginx and Apache, and JSON lines.

    203.0.113.9 - u_42 [31/Jan/2026:12:00:00 +0000] "GET /search?q=a HTTP/1.1" 200 512 "-" "curl/8.5"

An access log is in the common or the combined format. JSON lines are headgate's own events, or what a server or
gateway writes; `FIELDS` says which names are tried.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from headgate.core.event import EventKind
from headgate.core.request import NO_ATTRIBUTES, Request
from headgate.core.units import SECOND, Micros
from headgate.simulate.traffic import COLUMNS, EventParser, LoggedRequest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# A user name may contain blanks; it ends before the time, which has one form only.
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
_NO_USER: Final = frozenset({"-", "", '""'})
_MAX_CACHED: Final = 1_000


class AccessLog:
    """Parses lines; `ValueError` for a malformed one."""

    def __init__(self) -> None:
        """Equal times of several lines are parsed once."""
        self._times: dict[str, Micros] = {}

    def request(self, line: str) -> LoggedRequest:
        """The request of a line."""
        found = _LINE.match(line)
        if found is None:
            msg = "not a line of the common or combined log format"
            raise ValueError(msg)
        ip, user, time, method, target = found.groups()
        at = self._times.get(time) or self._at(time)
        return LoggedRequest(
            at,
            Request(
                user=None if user in _NO_USER else user,
                ip=None if ip == "-" else ip,
                method=method,
                path=path_of(target),
            ),
        )

    def _at(self, time: str) -> Micros:
        """``31/Jan/2026:12:00:00 +0000``."""
        month = _MONTHS.get(time[3:6])
        if month is None:
            msg = f"{time[3:6]} is not a month"
            raise ValueError(msg)
        offset = timedelta(hours=int(time[21:24]), minutes=int(time[21] + time[24:26]))
        clock = (int(time[12:14]), int(time[15:17]), min(int(time[18:20]), 59))  # leap seconds are written as 60
        moment = datetime(int(time[7:11]), month, int(time[0:2]), *clock, tzinfo=timezone(offset))
        at = int(moment.timestamp()) * SECOND
        if at <= 0:
            msg = "the time is before 1970"
            raise ValueError(msg)
        if len(self._times) >= _MAX_CACHED:
            self._times.clear()
        self._times[time] = at
        return at


def path_of(target: str) -> str:
    """The path of a request target, without query, scheme and host."""
    if "\\" in target:
        target = _ESCAPED.sub(_unescaped, target.encode()).decode(errors="replace")
    if not target.startswith("/"):
        return urlsplit(target).path or "/"
    end = target.find("?")
    return target if end < 0 else target[:end]


def _unescaped(found: re.Match[bytes]) -> bytes:
    """Servers write a quotation mark as a backslash and ``x22``."""
    return bytes([int(found[1], 16)]) if found[1] else found[2]


FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "at": ("at", "time", "timestamp", "ts", "@timestamp", "time_iso8601", "msec", "start_time"),
    "user": ("user", "user_id", "remote_user", "request.user_id"),
    "tenant": ("tenant", "tenant_id"),
    "api_key": ("api_key",),
    "ip": ("ip", "remote_addr", "client_ip", "remote_ip", "request.client_ip", "request.remote_ip", "ClientHost"),
    "tier": ("tier", "plan"),
    "method": ("method", "request_method", "request.method", "RequestMethod"),
    "path": ("path", "endpoint", "uri", "request_uri", "url", "request.uri", "RequestPath"),
    "cost": (),
}
"""The fields of a request, and the JSON names that are tried by default."""
ATTRIBUTE: Final = "attribute."
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_EVENT_KINDS: Final = frozenset(EventKind)
_TEXTS: Final = frozenset({str, type(None)})
_NUMBERS: Final = frozenset({int, type(None)})
_LATEST: Final = 253_402_300_800 * SECOND
"""The year 10000: later times have no ISO 8601 form."""
# Numbers below these are seconds or milliseconds; larger ones are microseconds. Each holds until the year 5138.
_SECONDS_BELOW: Final = 10**11
_MILLISECONDS_BELOW: Final = 10**14


class JsonLog:
    """Parses lines; `ValueError` for a malformed one."""

    def __init__(self, fields: Mapping[str, str] | None = None) -> None:
        """`fields` maps fields to JSON names: ``{"user": "auth.sub", "attribute.region": "region"}``."""
        chosen = dict(fields or {})
        self._names: dict[str, Sequence[Sequence[str]]] = {
            name: [dotted.split(".") for dotted in ((chosen[name],) if name in chosen else usual)]
            for name, usual in FIELDS.items()
        }
        self._attributes = {
            name.removeprefix(ATTRIBUTE): dotted.split(".")
            for name, dotted in chosen.items()
            if name.startswith(ATTRIBUTE)
        }
        self._takes_events = not chosen
        self._events = EventParser()

    def request(self, line: str) -> LoggedRequest:
        """The request of a line."""
        try:
            data = json.loads(line)
        except RecursionError:
            msg = "nested too deeply"
            raise ValueError(msg) from None
        if not isinstance(data, dict):
            msg = "not a JSON object"
            raise ValueError(msg)  # noqa: TRY004 (as for every malformed line)
        if self._takes_events and isinstance(data.get("decision"), str) and data["decision"] in _EVENT_KINDS:
            return self._event(data)
        texts: dict[str, Any] = {
            name: self._text(data, name) for name in ("user", "tenant", "api_key", "ip", "tier", "method", "path")
        }
        if isinstance(texts["path"], str):
            texts["path"] = path_of(texts["path"])
        attributes = {name: str(value) for name, path in self._attributes.items() if (value := _value_at(data, path))}
        cost = self._found(data, "cost")
        if isinstance(cost, float) and cost.is_integer():
            cost = int(cost)
        return LoggedRequest(
            time_of(self._found(data, "at")), Request(**texts, attributes=attributes or NO_ATTRIBUTES, cost=cost)
        )

    def _event(self, data: Mapping[str, Any]) -> LoggedRequest:
        """A line that looks like an event of headgate."""
        event = [data.get(name) for name in COLUMNS]
        *_, rule, _, source, server, sequence, _ = event
        if not _TEXTS.issuperset(map(type, (rule, source, server))) or type(sequence) not in _NUMBERS:
            msg = "not an event of headgate"
            raise ValueError(msg)
        return self._events.of(time_of(data.get("at")), event)

    def _found(self, data: Mapping[str, Any], name: str) -> Any:  # noqa: ANN401 (any JSON value)
        for path in self._names[name]:
            value = _value_at(data, path)
            if value is not None:
                return value
        return None

    def _text(self, data: Mapping[str, Any], name: str) -> str | None:
        value = self._found(data, name)
        if value is None or value in ("-", ""):
            return None
        return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else value


def _value_at(data: object, path: Sequence[str]) -> Any:  # noqa: ANN401 (any JSON value)
    for name in path:
        if not isinstance(data, dict):
            return None
        data = data.get(name)
    return data


def time_of(value: object) -> Micros:
    """A time as text, or as a number of seconds, milliseconds or microseconds since 1970."""
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            value = float(value)  # some programs write numbers as strings
        else:
            moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            return _possible((moment - _EPOCH) // _MICROSECOND)
    if isinstance(value, bool) or not isinstance(value, int | float):
        msg = "no time"
        raise ValueError(msg)  # noqa: TRY004 (as for every malformed line)
    if not 0 < value < _LATEST:  # false for NaN
        msg = "the time is out of range"
        raise ValueError(msg)
    if value < _SECONDS_BELOW:
        return _possible(round(value * SECOND))
    return _possible(round(value * 1_000) if value < _MILLISECONDS_BELOW else round(value))


def _possible(at: Micros) -> Micros:
    if not 0 < at < _LATEST:
        msg = "the time is out of range"
        raise ValueError(msg)
    return at
