"""Lines of JSON: our own events, or whatever a server or gateway writes, by the names of its fields."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from headgate.core.event import EventKind
from headgate.core.request import NO_ATTRIBUTES, Request
from headgate.core.units import SECOND
from headgate.simulate.access_log import path_of
from headgate.simulate.traffic import COLUMNS, Call, Calls

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headgate.core.units import Micros

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
"""What a request consists of, and where it is looked for unless somebody says."""
ATTRIBUTE: Final = "attribute."
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_EVENT_KINDS: Final = frozenset(EventKind)
_TEXTS: Final = frozenset({str, type(None)})
_NUMBERS: Final = frozenset({int, type(None)})
_LATEST: Final = 253_402_300_800 * SECOND
"""The year 10000, in which times have no text any more."""
# Numbers below these are seconds, milliseconds; others microseconds. Each is good until the year 5138.
_SECONDS_BELOW: Final = 10**11
_MILLISECONDS_BELOW: Final = 10**14


class JsonLines:
    """Reads lines; `ValueError` for one that is none."""

    def __init__(self, fields: Mapping[str, str] | None = None) -> None:
        """`fields` says where something is: ``{"user": "auth.sub", "attribute.region": "region"}``."""
        chosen = dict(fields or {})
        self._places: dict[str, Sequence[Sequence[str]]] = {
            name: [place.split(".") for place in ((chosen[name],) if name in chosen else usual)]
            for name, usual in FIELDS.items()
        }
        self._attributes = {
            name.removeprefix(ATTRIBUTE): place.split(".")
            for name, place in chosen.items()
            if name.startswith(ATTRIBUTE)
        }
        self._takes_events = not chosen
        self._calls = Calls()

    def call(self, line: str) -> Call:
        """The call that a line tells of."""
        try:
            data = json.loads(line)
        except RecursionError:
            msg = "it is nested too deeply"
            raise ValueError(msg) from None
        if not isinstance(data, dict):
            msg = "it is no JSON object"
            raise ValueError(msg)  # noqa: TRY004 (as all that is wrong with a line)
        if self._takes_events and isinstance(data.get("decision"), str) and data["decision"] in _EVENT_KINDS:
            return self._event(data)
        texts: dict[str, Any] = {
            name: self._text(data, name) for name in ("user", "tenant", "api_key", "ip", "tier", "method", "path")
        }
        if isinstance(texts["path"], str):
            texts["path"] = path_of(texts["path"])
        attributes = {name: str(value) for name, place in self._attributes.items() if (value := _at(data, place))}
        cost = self._found(data, "cost")
        if isinstance(cost, float) and cost.is_integer():
            cost = int(cost)
        return Call(
            time_of(self._found(data, "at")), Request(**texts, attributes=attributes or NO_ATTRIBUTES, cost=cost)
        )

    def _event(self, data: Mapping[str, Any]) -> Call:
        """One that we have written ourselves, by all appearances."""
        event = [data.get(name) for name in COLUMNS]
        *_, rule, _, source, server, sequence, _ = event
        if not _TEXTS.issuperset(map(type, (rule, source, server))) or type(sequence) not in _NUMBERS:
            msg = "it is no event as headgate writes them"
            raise ValueError(msg)
        return self._calls.of(time_of(data.get("at")), event)

    def _found(self, data: Mapping[str, Any], name: str) -> Any:  # noqa: ANN401 (whatever the JSON says)
        for place in self._places[name]:
            value = _at(data, place)
            if value is not None:
                return value
        return None

    def _text(self, data: Mapping[str, Any], name: str) -> str | None:
        value = self._found(data, name)
        if value is None or value in ("-", ""):
            return None
        return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else value


def _at(data: object, place: Sequence[str]) -> Any:  # noqa: ANN401 (whatever the JSON says)
    for name in place:
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
            value = float(value)  # some write numbers as texts
        else:
            moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            return _possible((moment - _EPOCH) // _MICROSECOND)
    if isinstance(value, bool) or not isinstance(value, int | float):
        msg = "it has no time"
        raise ValueError(msg)  # noqa: TRY004 (as all that is wrong with a line)
    if not 0 < value < _LATEST:  # which no NaN is
        msg = "its time is out of range"
        raise ValueError(msg)
    if value < _SECONDS_BELOW:
        return _possible(round(value * SECOND))
    return _possible(round(value * 1_000) if value < _MILLISECONDS_BELOW else round(value))


def _possible(at: Micros) -> Micros:
    if not 0 < at < _LATEST:
        msg = "its time is out of range"
        raise ValueError(msg)
    return at
